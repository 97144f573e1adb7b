//! `pgmux demo`: pgmux in front of a throwaway PostgreSQL, measured, then left to be tried.
//!
//! Everything lives in one temp directory and in child processes that end with their guards: on success, on
//! errors and on signals alike.

mod bench;
mod cluster;
mod front;
mod interrupt;
mod process;
mod programs;
mod table;

use std::fmt;
use std::time::{Duration, Instant};

use crate::cli::DemoArgs;
use cluster::Cluster;
use front::Front;
use interrupt::Interrupt;
use programs::Programs;

/// Why a demo ended early.
#[derive(Debug)]
pub enum Stop {
    /// By Ctrl-C or another signal.
    Interrupted,
    /// By something that did not work, in a sentence.
    Failed(String),
}

impl fmt::Display for Stop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Interrupted => f.write_str("interrupted"),
            Self::Failed(text) => f.write_str(text),
        }
    }
}

impl Stop {
    fn failed(what: &str, error: impl fmt::Display) -> Self {
        Self::Failed(format!("{what}: {error}"))
    }
}

/// Runs the demo until Ctrl-C, or for `args.seconds` after its measurement.
pub fn run(args: &DemoArgs) -> Result<(), Stop> {
    let interrupt = Interrupt::install()?;
    front::port_is_free(args.port)?;
    let programs = Programs::find().map_err(Stop::Failed)?;
    let dir = tempfile::Builder::new().prefix("pgmux-demo-").tempdir();
    let dir = dir.map_err(|error| Stop::failed("cannot make a temp directory", error))?;

    println!(
        "Starting {} from {} ...",
        programs.version(),
        programs.dir().display()
    );
    let cluster = Cluster::start(&programs, dir.path(), &interrupt)?;
    println!("Starting pgmux ...");
    let front = Front::start(&cluster, dir.path(), args.port, &interrupt)?;
    println!("\nConnect with:\n\n    psql {}\n", cluster.url(args.port));

    let results = bench::compare(&programs, &cluster, &front, dir.path(), &interrupt)?;
    println!("\n{}", table::render(&results));
    println!("Connect with:\n\n    psql {}\n", cluster.url(args.port));
    match args.seconds {
        Some(seconds) => println!("Serving for {seconds} s; Ctrl-C ends it at once."),
        None => println!("Serving until Ctrl-C."),
    }
    serve(
        &cluster,
        &front,
        args.seconds.map(Duration::from_secs),
        &interrupt,
    )
}

/// Waits; a process that ends by itself is an error.
fn serve(
    cluster: &Cluster,
    front: &Front,
    time: Option<Duration>,
    interrupt: &Interrupt,
) -> Result<(), Stop> {
    let started = Instant::now();
    while time.is_none_or(|time| started.elapsed() < time) {
        if interrupt.came() {
            break;
        }
        cluster.process().alive()?;
        front.process().alive()?;
        std::thread::sleep(process::POLL);
    }
    println!("Cleaning up ...");
    Ok(())
}
