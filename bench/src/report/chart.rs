//! Grouped bars as SVG: one group a client count, one bar a target, a whisker
//! from the smallest to the largest round.

use std::fmt::Write as _;

use crate::results::{Figure, Results};
use crate::stats::Spread;
use crate::target::{Cell, Mode};

/// One picture.
pub fn render(results: &Results, names: &[&str], figure: Figure, mode: Mode) -> String {
    let groups: Vec<Group> = results
        .cells()
        .into_iter()
        .filter(|cell| cell.mode == mode)
        .map(|cell| Group::of(results, names, figure, cell))
        .collect();
    let shown: Vec<usize> = (0..names.len())
        .filter(|nth| groups.iter().any(|group| group.bars[*nth].is_some()))
        .collect();
    let highest = groups
        .iter()
        .flat_map(|group| group.bars.iter().flatten())
        .map(|bar| bar.max)
        .fold(0.0, f64::max);
    let axis = Axis::up_to(highest);

    let mut svg = String::new();
    let _ = write!(
        svg,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" \
         font-family=\"sans-serif\" font-size=\"12\" fill=\"#222\">\n\
         <rect width=\"{WIDTH}\" height=\"{HEIGHT}\" fill=\"#fff\"/>\n"
    );
    let title = format!("{} by number of clients, {mode}", figure.head());
    label(&mut svg, LEFT, 22.0, "start", 15, &title);
    legend(&mut svg, names, &shown);
    grid(&mut svg, &axis);
    let width = (WIDTH - LEFT - RIGHT) / groups.len().max(1) as f64;
    for (nth, group) in groups.iter().enumerate() {
        let left = LEFT + nth as f64 * width;
        group.draw(&mut svg, &axis, &shown, left, width, figure.decimals());
    }
    svg.push_str("</svg>\n");
    svg
}

struct Group {
    clients: u32,
    /// By the index of the target's name.
    bars: Vec<Option<Spread>>,
}

impl Group {
    fn of(results: &Results, names: &[&str], figure: Figure, cell: Cell) -> Self {
        let bars = names.iter().map(|name| results.spread(figure, name, cell));
        Self {
            clients: cell.clients,
            bars: bars.collect(),
        }
    }

    fn draw(
        &self,
        svg: &mut String,
        axis: &Axis,
        shown: &[usize],
        left: f64,
        width: f64,
        decimals: usize,
    ) {
        let bar_width = width * 0.8 / shown.len().max(1) as f64;
        for (slot, nth) in shown.iter().enumerate() {
            let Some(spread) = self.bars[*nth] else {
                continue;
            };
            let x = left + width * 0.1 + slot as f64 * bar_width;
            let y = axis.y(spread.median);
            let _ = writeln!(
                svg,
                "<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{:.1}\" height=\"{:.1}\" fill=\"{}\"/>",
                bar_width * 0.9,
                BOTTOM - y,
                colour(*nth)
            );
            let middle = x + bar_width * 0.45;
            let (low, high) = (axis.y(spread.min), axis.y(spread.max));
            let _ = writeln!(
                svg,
                "<path d=\"M{middle:.1} {low:.1}V{high:.1}\" stroke=\"#222\"/>"
            );
            let text = format!("{:.decimals$}", spread.median);
            label(svg, middle, high.min(y) - 4.0, "middle", 9, &text);
        }
        let text = self.clients.to_string();
        label(svg, left + width / 2.0, BOTTOM + 18.0, "middle", 12, &text);
    }
}

/// The vertical axis, from zero: bars that do not begin at zero lie.
struct Axis {
    top: f64,
    step: f64,
}

impl Axis {
    fn up_to(highest: f64) -> Self {
        let rough = highest.max(1e-6) / 5.0;
        let magnitude = 10f64.powf(rough.log10().floor());
        let step = [1.0, 2.0, 2.5, 5.0, 10.0]
            .map(|factor| factor * magnitude)
            .into_iter()
            .find(|step| *step >= rough)
            .unwrap_or(10.0 * magnitude);
        Self {
            top: step * (highest / step).ceil().max(1.0),
            step,
        }
    }

    fn y(&self, value: f64) -> f64 {
        BOTTOM - (BOTTOM - TOP) * value / self.top
    }

    fn ticks(&self) -> impl Iterator<Item = f64> {
        let count = (self.top / self.step).round() as u32;
        (0..=count).map(|nth| f64::from(nth) * self.step)
    }
}

fn grid(svg: &mut String, axis: &Axis) {
    for tick in axis.ticks() {
        let y = axis.y(tick);
        let _ = writeln!(
            svg,
            "<path d=\"M{LEFT} {y:.1}H{:.1}\" stroke=\"#ddd\"/>",
            WIDTH - RIGHT
        );
        let digits = if axis.step < 1.0 { 2 } else { 0 };
        label(
            svg,
            LEFT - 6.0,
            y + 4.0,
            "end",
            11,
            &format!("{tick:.digits$}"),
        );
    }
}

fn legend(svg: &mut String, names: &[&str], shown: &[usize]) {
    let mut x = LEFT;
    for nth in shown {
        let name = names[*nth];
        let _ = writeln!(
            svg,
            "<rect x=\"{x:.1}\" y=\"34\" width=\"11\" height=\"11\" fill=\"{}\"/>",
            colour(*nth)
        );
        label(svg, x + 16.0, 44.0, "start", 12, name);
        x += 34.0 + 7.2 * name.chars().count() as f64;
    }
}

fn label(svg: &mut String, x: f64, y: f64, anchor: &str, size: u32, text: &str) {
    let text = text.replace('&', "&amp;").replace('<', "&lt;");
    let _ = writeln!(
        svg,
        "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\" font-size=\"{size}\">{text}</text>"
    );
}

/// Okabe and Ito's colours, which colour-blind readers tell apart.
fn colour(nth: usize) -> &'static str {
    const COLOURS: [&str; 7] = [
        "#999999", "#e69f00", "#0072b2", "#56b4e9", "#009e73", "#d55e00", "#cc79a7",
    ];
    COLOURS[nth % COLOURS.len()]
}

const WIDTH: f64 = 860.0;
const HEIGHT: f64 = 380.0;
const LEFT: f64 = 64.0;
const RIGHT: f64 = 16.0;
const TOP: f64 = 72.0;
const BOTTOM: f64 = 346.0;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::tests::{CELL, sample};

    #[test]
    fn the_axis_ends_on_a_round_step_at_or_above_the_highest_bar() {
        for highest in [0.004, 0.9, 1.0, 17.3, 31_234.0] {
            let axis = Axis::up_to(highest);
            assert!(axis.top >= highest, "{highest}");
            assert!((3..=11).contains(&axis.ticks().count()), "{highest}");
        }
        assert!(Axis::up_to(0.0).top > 0.0);
    }

    #[test]
    fn a_bar_stands_for_each_target_that_has_the_figure() {
        let results = Results {
            samples: vec![
                sample(0, "direct", CELL, 100.0, 0.0),
                sample(0, "a<b", CELL, 100.0, 5.0),
            ],
            cut_short: false,
        };
        let svg = render(&results, &["direct", "a<b"], Figure::CpuUs, Mode::Simple);
        // Background, one legend entry, one bar.
        assert_eq!(svg.matches("<rect").count(), 3);
        assert!(svg.contains("a&lt;b") && !svg.contains("a<b"));
        assert!(!svg.contains("NaN") && !svg.contains("inf"));
    }
}
