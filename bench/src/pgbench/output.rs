//! What pgbench writes: progress on stderr, a summary on stdout, latencies in logs.

use anyhow::{Context, Result};

/// One line of `--progress --progress-timestamp`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Progress {
    /// When, in seconds since 1970.
    pub epoch: f64,
    /// Transactions per second since the report before.
    pub tps: f64,
}

/// A line of standard error.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Line {
    /// A progress report.
    Progress(Progress),
    /// Anything else: a healthy run says nothing.
    Complaint,
    /// Nothing.
    Blank,
}

/// The part of the summary that must not be missed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Summary {
    /// Transactions over the whole run.
    pub processed: u64,
    /// Transactions that failed.
    pub failed: u64,
}

/// Classifies a line of standard error.
pub fn parse_line(line: &str) -> Line {
    if line.trim().is_empty() {
        return Line::Blank;
    }
    match parse_progress(line) {
        Some(progress) => Line::Progress(progress),
        None => Line::Complaint,
    }
}

fn parse_progress(line: &str) -> Option<Progress> {
    let rest = line.strip_prefix("progress: ")?;
    let (epoch, rest) = rest.split_once(" s, ")?;
    let (tps, rest) = rest.split_once(" tps, ")?;
    // "N failed" came with PostgreSQL 15; a report of failures is a complaint.
    if let Some((_, failed)) = rest
        .split_once("stddev ")
        .and_then(|(_, r)| r.split_once(", "))
    {
        let count = failed.split_ascii_whitespace().next()?;
        if count.parse::<u64>().is_ok_and(|count| count > 0) {
            return None;
        }
    }
    Some(Progress {
        epoch: epoch.parse().ok()?,
        tps: tps.parse().ok()?,
    })
}

/// Reads the summary; none when pgbench gave none, which is an error.
pub fn parse_summary(text: &str) -> Option<Summary> {
    let number_of = |prefix: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(prefix))?;
        line.trim().split([' ', '/']).next()?.parse().ok()
    };
    Some(Summary {
        processed: number_of("number of transactions actually processed:")?,
        // Before PostgreSQL 15 a failed transaction aborted its client, which is said on stderr.
        failed: number_of("number of failed transactions:").unwrap_or(0),
    })
}

/// A transaction in pgbench's log.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Logged {
    /// Whose it was.
    pub client: u32,
    /// How long it took, in microseconds.
    pub latency_us: u32,
    /// When it ended, in seconds since 1970.
    pub ended: f64,
}

/// Adds the transactions that ended at this moment or later.
///
/// The lines are `client transaction latency script epoch microseconds`.
pub fn parse_log(text: &str, from: f64, found: &mut Vec<Logged>) -> Result<()> {
    for line in text.lines() {
        let fields: Vec<&str> = line.split_ascii_whitespace().collect();
        let [client, _, latency, _, seconds, micros, ..] = fields[..] else {
            continue;
        };
        // "failed" or "skipped" stands where the number would be; the summary counts those.
        let Ok(latency_us) = latency.parse() else {
            continue;
        };
        let seconds: f64 = seconds.parse().context("pgbench's log holds no time")?;
        let micros: f64 = micros.parse().context("pgbench's log holds no time")?;
        let ended = seconds + micros / 1e6;
        if ended >= from {
            let client = client.parse().context("pgbench's log holds no client")?;
            found.push(Logged {
                client,
                latency_us,
                ended,
            });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn progress_is_read_with_its_timestamp() {
        let line = "progress: 1796000000.125 s, 30733.9 tps, lat 0.031 ms stddev 0.012, 0 failed";
        assert_eq!(
            parse_line(line),
            Line::Progress(Progress {
                epoch: 1_796_000_000.125,
                tps: 30_733.9
            })
        );
    }

    #[test]
    fn failures_in_a_progress_report_are_a_complaint() {
        let line = "progress: 1.0 s, 30733.9 tps, lat 0.031 ms stddev 0.012, 7 failed";
        assert_eq!(parse_line(line), Line::Complaint);
    }

    #[test]
    fn anything_else_on_stderr_is_a_complaint() {
        assert_eq!(
            parse_line("pgbench: error: connection to server failed"),
            Line::Complaint
        );
        assert_eq!(parse_line("progress: x s, y tps, lat"), Line::Complaint);
        assert_eq!(parse_line("  "), Line::Blank);
    }

    #[test]
    fn the_summary_counts_failures() {
        let text = "pgbench (15.18)\ntransaction type: <builtin: select only>\nnumber of transactions actually processed: 12345\nnumber of failed transactions: 2 (0.016%)\n";
        assert_eq!(
            parse_summary(text),
            Some(Summary {
                processed: 12_345,
                failed: 2
            })
        );
        let counted = "number of transactions actually processed: 10/10\n";
        assert_eq!(
            parse_summary(counted),
            Some(Summary {
                processed: 10,
                failed: 0
            })
        );
        assert_eq!(parse_summary("pgbench (15.18)\n"), None);
    }

    #[test]
    fn only_transactions_that_ended_after_the_beginning_count() {
        let text = "0 1 100 0 1000 0\n0 2 200 0 1001 500000\n0 3 failed 0 1001 600000\n";
        let mut found = Vec::new();
        parse_log(text, 1000.5, &mut found).expect("parses");
        let expected = Logged {
            client: 0,
            latency_us: 200,
            ended: 1001.5,
        };
        assert_eq!(found, [expected]);
    }
}
