//! pgmux's own counters, as it writes them to its log when SIGUSR1 asks for them.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use rustix::process::{Pid, Signal, kill_process};

use crate::interrupt::Interrupt;
use crate::target::Target;

/// Figures by name.
pub type Counters = BTreeMap<String, f64>;

/// What a run changed.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Told {
    /// How much each figure grew.
    pub grown: Counters,
    /// The figures as they were afterwards.
    pub after: Counters,
}

impl Told {
    /// Of the figures before and after a run.
    pub fn between(before: &Counters, after: Counters) -> Self {
        let grown =
            |(name, figure): (&String, &f64)| Some((name.clone(), figure - before.get(name)?));
        Self {
            grown: after.iter().filter_map(grown).collect(),
            after,
        }
    }

    /// Servers that shards got from others; none when this pgmux does not count them.
    pub fn handovers(&self) -> Option<f64> {
        self.grown.get("handovers_taken").copied()
    }

    /// How long the middle one of them took since the process began, in microseconds; none when there was none.
    pub fn handover_median_us(&self) -> Option<f64> {
        self.after.get("handover_p50_us").copied()
    }

    /// Clients that moved from shard to shard.
    pub fn clients_moved(&self) -> Option<f64> {
        self.grown.get("clients_moved").copied()
    }

    /// Servers that were opened.
    pub fn server_logins(&self) -> Option<f64> {
        self.grown.get("servers_opened").copied()
    }
}

/// Asks a target for its counters; none when it has no way to tell them.
pub fn read(target: &Target, interrupt: &Interrupt) -> Result<Option<Counters>> {
    let (Some(log), [pid]) = (&target.counters, &target.pids[..]) else {
        return Ok(None);
    };
    let from = std::fs::metadata(log)?.len();
    let pid = i32::try_from(*pid).ok().and_then(Pid::from_raw);
    kill_process(pid.context("no process")?, Signal::USR1)?;
    let mut told = None;
    interrupt.wait_until(PATIENCE, || {
        told = parse(&tail(log, from)?);
        Ok(told.is_some())
    })?;
    if told.is_none() {
        bail!("{} told no counters", target.name);
    }
    Ok(told)
}

fn tail(log: &Path, from: u64) -> Result<String> {
    let bytes = std::fs::read(log)?;
    let from = usize::try_from(from).unwrap_or(usize::MAX).min(bytes.len());
    Ok(String::from_utf8_lossy(&bytes[from..]).into_owned())
}

/// The first whole line of counters: `… stats name=figure name=figure`.
fn parse(text: &str) -> Option<Counters> {
    let whole = &text[..text.rfind('\n')?];
    let figures = whole.lines().find_map(|line| line.split_once(" stats "))?.1;
    let pair = |word: &str| {
        let (name, figure) = word.split_once('=')?;
        Some((name.to_owned(), figure.parse().ok()?))
    };
    Some(figures.split_ascii_whitespace().filter_map(pair).collect())
}

const PATIENCE: Duration = Duration::from_secs(5);

#[cfg(test)]
mod tests {
    use super::*;

    const LINE: &str = "2026-11-30T00:00:00Z  INFO engine::lifecycle: stats clients=3 handovers_taken=7 handover_p50_us=12.5\n";

    #[test]
    fn counters_are_read_from_a_whole_line_only() {
        let counters = parse(&format!("other stats\n{LINE}")).expect("counters");
        assert_eq!(counters.get("clients"), Some(&3.0));
        assert_eq!(counters.get("handover_p50_us"), Some(&12.5));
        assert_eq!(parse(LINE.trim_end()), None, "it may not be all written");
        assert_eq!(parse(""), None);
    }

    #[test]
    fn hand_overs_are_those_of_the_run_and_unknown_is_not_zero() {
        let after = parse(LINE).expect("counters");
        let before = Counters::from([("handovers_taken".to_owned(), 5.0)]);
        let told = Told::between(&before, after);
        assert_eq!(told.handovers(), Some(2.0));
        assert_eq!(told.handover_median_us(), Some(12.5));
        assert_eq!(told.server_logins(), None);
    }
}
