//! The report: Markdown for reading, SVG for seeing, CSV for reckoning further.

mod chart;
mod csv;
mod first;
mod markdown;
mod scale;
mod secure;

use std::path::Path;

use anyhow::{Context, Result};

use crate::idle;
use crate::instructions;
use crate::machine::Machine;
use crate::peers::Auth;
use crate::results::{Figure, Results, distinct};
use crate::scale::Scaling;
use crate::secure::Secured;
use crate::target::{Mode, Target};
use crate::verdict::Check;

/// Everything that was found in one run of the program.
#[derive(Debug)]
pub struct Report {
    /// Where.
    pub machine: Machine,
    /// How, as the command line would say it.
    pub settings: String,
    /// Who.
    pub targets: Vec<Target>,
    /// The runs.
    pub results: Results,
    /// More shards than one.
    pub scaling: Option<Scaling>,
    /// Logins, and clients by TLS.
    pub secured: Option<Secured>,
    /// The first queries after a start.
    pub first: Option<crate::first::Figures>,
    /// Idle clients.
    pub idle: Vec<(String, Auth, idle::Figures)>,
    /// Instructions, with what counted them.
    pub instructions: Option<(String, Vec<instructions::Figures>)>,
    /// What could not be done, in words.
    pub notes: Vec<String>,
    /// The targets of the project.
    pub checks: Vec<Check>,
}

impl Report {
    /// The text that is printed and kept.
    pub fn markdown(&self) -> String {
        markdown::render(self)
    }

    /// Writes `report.md`, `runs.csv`, `scale.csv` and one picture per figure and mode.
    pub fn write(&self, dir: &Path) -> Result<()> {
        std::fs::create_dir_all(dir).with_context(|| format!("create {}", dir.display()))?;
        let write = |name: &str, text: String| {
            let path = dir.join(name);
            std::fs::write(&path, text).with_context(|| format!("write {}", path.display()))
        };
        write("report.md", self.markdown())?;
        write("runs.csv", csv::render(&self.results, &Figure::ALL))?;
        if let Some(scaling) = &self.scaling {
            write("scale.csv", csv::render(&scaling.results, &Figure::SCALE))?;
        }
        for (figure, mode) in self.pictures() {
            let text = chart::render(&self.results, &self.names(), figure, mode);
            write(&picture_name(figure, mode), text)?;
        }
        Ok(())
    }

    /// Target names in the order of the tables.
    fn names(&self) -> Vec<&str> {
        self.targets
            .iter()
            .map(|target| target.name.as_str())
            .collect()
    }

    /// The pictures that have something to show.
    fn pictures(&self) -> Vec<(Figure, Mode)> {
        let modes = distinct(self.results.cells().into_iter().map(|cell| cell.mode));
        let figures = [Figure::CpuUs, Figure::Tps, Figure::P99Ms];
        let all = modes
            .into_iter()
            .flat_map(|mode| figures.map(|figure| (figure, mode)));
        all.filter(|(figure, mode)| {
            let mut cells = self
                .results
                .cells()
                .into_iter()
                .filter(|cell| cell.mode == *mode);
            cells.any(|cell| {
                let mut names = self.names().into_iter();
                names.any(|name| self.results.spread(*figure, name, cell).is_some())
            })
        })
        .collect()
    }
}

fn picture_name(figure: Figure, mode: Mode) -> String {
    let figure = match figure {
        Figure::CpuUs => "cpu",
        Figure::Tps => "tps",
        _ => "p99",
    };
    format!("{figure}-{mode}.svg")
}
