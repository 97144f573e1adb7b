//! The parts of a pooler that share its work: the shards of one process, or the processes of a fleet.
//!
//! What a part does is seen from outside, by the CPU time of its threads, so it needs no word of the pooler's.

use std::collections::BTreeMap;

use anyhow::{Context, Result};

use crate::interrupt::Interrupt;
use crate::login::Session;
use crate::procfs;
use crate::target::Target;

/// CPU time in nanoseconds by part.
pub type Parts = BTreeMap<String, u64>;

/// What each part has used so far. A process without shards is one part.
pub fn read(pids: &[u32]) -> Result<Parts> {
    let mut parts = Parts::new();
    for (nth, &pid) in pids.iter().enumerate() {
        let tasks = procfs::tasks(pid)?;
        let names = match pids.len() {
            1 => procfs::thread_names(pid)?,
            _ => BTreeMap::new(),
        };
        let sharded = names.values().any(|name| shard_of(name).is_some());
        for (id, task) in tasks {
            let part = match names.get(&id).and_then(|name| shard_of(name)) {
                Some(shard) => shard.to_owned(),
                // The threads beside the shards, like the one that waits for signals, take part in no query.
                None if sharded => continue,
                None => format!("process {}", nth + 1),
            };
            *parts.entry(part).or_default() += task.cpu_ns;
        }
    }
    Ok(parts)
}

/// What each part has used since `earlier`.
pub fn growth(now: &Parts, earlier: &Parts) -> Parts {
    now.iter()
        .map(|(part, ns)| {
            let before = earlier.get(part).copied().unwrap_or(0);
            (part.clone(), ns.saturating_sub(before))
        })
        .collect()
}

/// The busiest part's CPU time over the mean: 1 is balance, the number of parts is one that does all.
pub fn imbalance(parts: &Parts) -> Option<f64> {
    let busiest = *parts.values().max()? as f64;
    let mean = parts.values().sum::<u64>() as f64 / parts.len() as f64;
    (mean > 0.0).then(|| busiest / mean)
}

/// How many of so many clients each part gets. They log in one after the other and stay; then each asks in
/// its turn, and the part that works is its own.
pub fn clients_by_part(
    target: &Target,
    clients: u32,
    interrupt: &Interrupt,
) -> Result<BTreeMap<String, u32>> {
    let mut sessions = Vec::new();
    for _ in 0..clients {
        interrupt.check()?;
        sessions.push(Session::open(&target.dsn, None)?);
    }
    let mut counts: BTreeMap<String, u32> = read(&target.pids)?
        .into_keys()
        .map(|part| (part, 0))
        .collect();
    for session in &sessions {
        interrupt.check()?;
        let part = part_of(target, session, PROBES)?;
        *counts.entry(part).or_default() += 1;
    }
    sessions.into_iter().for_each(Session::close);
    Ok(counts)
}

/// The part that serves a client: the one that works while it asks so often.
pub fn part_of(target: &Target, session: &Session, probes: u32) -> Result<String> {
    let before = read(&target.pids)?;
    for _ in 0..probes {
        session.ask()?;
    }
    let grown = growth(&read(&target.pids)?, &before);
    let busiest = grown.into_iter().max_by_key(|(_, ns)| *ns);
    busiest
        .map(|(part, _)| part)
        .context("the target has no threads")
}

/// pgmux names a shard's threads `shard-N`, and its executor adds a number of its own behind another dash.
fn shard_of(thread: &str) -> Option<&str> {
    let number = thread.strip_prefix("shard-")?;
    let digits = number
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(number.len());
    (digits > 0).then(|| &thread[.."shard-".len() + digits])
}

/// Questions that show which part works: some milliseconds of CPU, far more than what is done for idle clients.
const PROBES: u32 = 50;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_executors_number_does_not_belong_to_the_shards_name() {
        assert_eq!(shard_of("shard-0-1"), Some("shard-0"));
        assert_eq!(shard_of("shard-12-13"), Some("shard-12"));
        assert_eq!(shard_of("shard-3"), Some("shard-3"));
        assert_eq!(shard_of("shard-"), None);
        assert_eq!(shard_of("pgbouncer"), None);
    }

    #[test]
    fn a_process_without_shards_is_one_part_and_several_are_several() {
        let own = std::process::id();
        let one: Vec<String> = read(&[own]).expect("self").into_keys().collect();
        assert_eq!(one, ["process 1"]);
        let two: Vec<String> = read(&[own, own]).expect("self").into_keys().collect();
        assert_eq!(two, ["process 1", "process 2"]);
        assert!(read(&[u32::MAX]).is_err());
    }

    #[test]
    fn imbalance_is_the_busiest_over_the_mean() {
        let parts = |ns: &[u64]| -> Parts {
            (0..)
                .map(|n: u32| n.to_string())
                .zip(ns.iter().copied())
                .collect()
        };
        assert_eq!(imbalance(&parts(&[5, 5, 5, 5])), Some(1.0));
        assert_eq!(imbalance(&parts(&[40, 0, 0, 0])), Some(4.0));
        assert_eq!(imbalance(&parts(&[0, 0])), None);
        assert_eq!(imbalance(&Parts::new()), None);
    }

    #[test]
    fn a_part_that_began_in_between_counts_from_zero() {
        let before = Parts::from([("a".to_owned(), 10)]);
        let now = Parts::from([("a".to_owned(), 15), ("b".to_owned(), 3)]);
        let grown = growth(&now, &before);
        assert_eq!(
            grown,
            Parts::from([("a".to_owned(), 5), ("b".to_owned(), 3)])
        );
    }
}
