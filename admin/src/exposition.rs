//! Prometheus' text format, version 0.0.4.
//!
//! Why not by the crates `metrics` and `metrics-exporter-prometheus`: they keep
//! the figures themselves, in atomics that all threads write. Here each shard
//! counts in plain cells, and a scrape has all of it as numbers already, the
//! histograms in classes of their own; what is left to do is to write them.

use crate::histogram::Histogram;
use std::fmt::{Display, Write};

/// The content type of the page.
pub(crate) const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// A page under construction.
#[derive(Default)]
pub(crate) struct Exposition {
    out: String,
}

/// A family of it: its samples follow each other, whatever the labels.
pub(crate) struct Family<'a> {
    out: &'a mut String,
    name: &'static str,
}

impl Exposition {
    /// A figure that only grows.
    pub(crate) fn counter(&mut self, name: &'static str, help: &str) -> Family<'_> {
        debug_assert!(name.ends_with("_total"));
        self.family(name, "counter", help)
    }

    /// A figure that comes and goes.
    pub(crate) fn gauge(&mut self, name: &'static str, help: &str) -> Family<'_> {
        self.family(name, "gauge", help)
    }

    /// How long something took.
    pub(crate) fn seconds(&mut self, name: &'static str, help: &str) -> Family<'_> {
        self.family(name, "histogram", help)
    }

    fn family(&mut self, name: &'static str, kind: &str, help: &str) -> Family<'_> {
        // Writing to a string cannot fail.
        let _ = write!(
            self.out,
            "# HELP {name} {}\n# TYPE {name} {kind}\n",
            escaped(help, false)
        );
        Family {
            out: &mut self.out,
            name,
        }
    }

    /// All of it.
    pub(crate) fn page(self) -> String {
        self.out
    }
}

impl Family<'_> {
    /// A sample.
    pub(crate) fn sample(&mut self, labels: &[(&str, &str)], value: impl Display) -> &mut Self {
        self.line("", labels, None, value);
        self
    }

    /// The samples of a histogram; of `quick` more it is only known that they
    /// took no time worth a bucket.
    pub(crate) fn histogram(&mut self, labels: &[(&str, &str)], times: &Histogram, quick: u64) {
        for bound in BOUNDS_US {
            let seconds = seconds(*bound);
            let count = times.within(*bound).saturating_add(quick);
            self.line("_bucket", labels, Some(&seconds), count);
        }
        let count = times.count().saturating_add(quick);
        self.line("_bucket", labels, Some("+Inf"), count);
        self.line("_sum", labels, None, seconds(times.sum()));
        self.line("_count", labels, None, count);
    }

    fn line(
        &mut self,
        suffix: &str,
        labels: &[(&str, &str)],
        bound: Option<&str>,
        value: impl Display,
    ) {
        let _ = write!(self.out, "{}{suffix}", self.name);
        let bound = bound.map(|bound| ("le", bound));
        for (at, (name, value)) in labels.iter().copied().chain(bound).enumerate() {
            let before = if at == 0 { '{' } else { ',' };
            let _ = write!(self.out, "{before}{name}=\"{}\"", escaped(value, true));
        }
        if !labels.is_empty() || bound.is_some() {
            self.out.push('}');
        }
        let _ = writeln!(self.out, " {value}");
    }
}

/// Microseconds as seconds, exactly.
pub(crate) fn seconds(micros: u64) -> String {
    let (whole, rest) = (micros / 1_000_000, micros % 1_000_000);
    if rest == 0 {
        return whole.to_string();
    }
    format!("{whole}.{rest:06}")
        .trim_end_matches('0')
        .to_owned()
}

fn escaped(text: &str, quoted: bool) -> String {
    let mut out = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '"' if quoted => out.push_str("\\\""),
            letter => out.push(letter),
        }
    }
    out
}

/// The buckets of pgmux's reference, and those of longer waits.
const BOUNDS_US: &[u64] = &[
    100, 500, 1_000, 5_000, 10_000, 50_000, 100_000, 500_000, 1_000_000, 5_000_000, 30_000_000,
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::histogram::Recorder;

    #[test]
    fn labels_are_escaped_and_a_name_is_explained_once() {
        let mut page = Exposition::default();
        page.gauge("x", "a \\ b\nc \"d\"")
            .sample(&[("user", "q\"u\\o\nté")], 1)
            .sample(&[], 2);
        assert_eq!(
            page.page(),
            "# HELP x a \\\\ b\\nc \"d\"\n# TYPE x gauge\nx{user=\"q\\\"u\\\\o\\nté\"} 1\nx 2\n"
        );
    }

    #[test]
    fn buckets_grow_and_the_last_is_the_count() {
        let recorder = Recorder::default();
        for micros in [0, 90, 700, 4_000_000, 90_000_000] {
            recorder.record(micros);
        }
        let mut page = Exposition::default();
        page.seconds("t", "h")
            .histogram(&[("a", "b")], &recorder.snapshot(), 10);
        let page = page.page();
        for line in [
            "t_bucket{a=\"b\",le=\"0.0001\"} 12",
            "t_bucket{a=\"b\",le=\"0.0005\"} 12",
            "t_bucket{a=\"b\",le=\"0.001\"} 13",
            "t_bucket{a=\"b\",le=\"1\"} 13",
            "t_bucket{a=\"b\",le=\"5\"} 14",
            "t_bucket{a=\"b\",le=\"30\"} 14",
            "t_bucket{a=\"b\",le=\"+Inf\"} 15",
            "t_sum{a=\"b\"} 94.00079",
            "t_count{a=\"b\"} 15",
        ] {
            assert!(page.lines().any(|other| other == line), "{line}\n{page}");
        }
    }

    #[test]
    fn microseconds_are_told_exactly() {
        for (micros, told) in [
            (0, "0"),
            (1, "0.000001"),
            (1_500_000, "1.5"),
            (10, "0.00001"),
        ] {
            assert_eq!(seconds(micros), told);
        }
    }
}
