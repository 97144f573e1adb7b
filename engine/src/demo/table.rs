//! The demo's figures as a table.

use super::bench::{CLIENTS, Comparison};
use crate::preflight::usable_cpus;

/// One line for each mode.
pub(super) fn render(results: &[Comparison]) -> String {
    let mut out = format!(
        "{:<10} {:>11} {:>11} {:>7} {:>12} {:>12} {:>14}\n",
        format!("{CLIENTS} clients"),
        "direct tps",
        "pgmux tps",
        "ratio",
        "direct ms",
        "pgmux ms",
        "pgmux CPU us/tx"
    );
    for Comparison {
        mode,
        direct,
        pgmux,
        cpu_us,
    } in results
    {
        let cpu = cpu_us.map_or("-".to_owned(), |us| format!("{us:.1}"));
        out.push_str(&format!(
            "{mode:<10} {:>11.0} {:>11.0} {:>7.2} {:>12.3} {:>12.3} {cpu:>14}\n",
            direct.tps,
            pgmux.tps,
            pgmux.tps / direct.tps.max(f64::MIN_POSITIVE),
            direct.latency_ms,
            pgmux.latency_ms,
        ));
    }
    out.push_str(&format!(
        "(pgbench, PostgreSQL and pgmux share {} CPUs here.)\n",
        usable_cpus()
    ));
    out
}

#[cfg(test)]
mod tests {
    use super::super::bench::Run;
    use super::*;

    #[test]
    fn a_mode_is_a_line_with_its_ratio() {
        let run = |tps, latency_ms| Run {
            transactions: 1,
            tps,
            latency_ms,
        };
        let results = [Comparison {
            mode: "simple",
            direct: run(20_000.0, 0.8),
            pgmux: run(15_000.0, 1.067),
            cpu_us: Some(9.94),
        }];
        let table = render(&results);
        let words: Vec<_> = table.lines().nth(1).unwrap().split_whitespace().collect();
        assert_eq!(
            words,
            ["simple", "20000", "15000", "0.75", "0.800", "1.067", "9.9"]
        );
    }
}
