//! What a set of processes used between two moments.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::Result;

use crate::parts::{self, Parts};
use crate::procfs::{self, MachineTicks, Task};

/// Who is looked at while a load runs.
#[derive(Clone, Debug, Default)]
pub struct Watched {
    /// The pooler's processes; none for a direct connection.
    pub pooler: Vec<u32>,
    /// PostgreSQL's postmaster; its children are looked at with it.
    pub postmaster: Option<u32>,
    /// The load's own process.
    pub load: Option<u32>,
}

/// All counters at one moment.
#[derive(Clone, Debug)]
pub struct Snapshot {
    at: Instant,
    pooler: Counters,
    postgres: Counters,
    load: Counters,
    machine: MachineTicks,
    parts: Parts,
    rss_kib: Option<u64>,
}

/// What was used between two snapshots.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Usage {
    /// Length of the window.
    pub window: Duration,
    /// The pooler's part.
    pub pooler: Task,
    /// The same CPU time by shard or process.
    pub parts: Parts,
    /// The CPU time of PostgreSQL's processes together.
    pub postgres_ns: u64,
    /// The CPU time of everything else on the machine: another's work disturbs a measurement.
    pub foreign_ns: u64,
    /// What the hypervisor took away, summed over the CPUs.
    pub steal_ns: u64,
    /// The pooler's resident memory at the end.
    pub rss_kib: Option<u64>,
}

type Counters = BTreeMap<(u32, u32), Task>;

impl Watched {
    /// Reads everything. An error when the pooler is gone.
    pub fn snapshot(&self) -> Result<Snapshot> {
        let mut postgres = Counters::new();
        if let Some(postmaster) = self.postmaster {
            add(&mut postgres, postmaster);
            for child in procfs::children(postmaster)? {
                add(&mut postgres, child);
            }
        }
        let mut load = Counters::new();
        if let Some(pid) = self.load {
            add(&mut load, pid);
        }
        let rss_kib = self.pooler_rss_kib()?;
        // The pooler's counters are read last and beside the clock: theirs is the figure that counts.
        let mut pooler = Counters::new();
        for &pid in &self.pooler {
            let tasks = procfs::tasks(pid)?.into_iter();
            pooler.extend(tasks.map(|(id, task)| ((pid, id), task)));
        }
        Ok(Snapshot {
            at: Instant::now(),
            pooler,
            postgres,
            load,
            machine: procfs::machine()?,
            parts: parts::read(&self.pooler)?,
            rss_kib,
        })
    }

    /// Pages that the processes share, like the program's text, count in each of them.
    fn pooler_rss_kib(&self) -> Result<Option<u64>> {
        let mut sum = None;
        for &pid in &self.pooler {
            *sum.get_or_insert(0) += procfs::rss_kib(pid)?;
        }
        Ok(sum)
    }
}

impl Snapshot {
    /// What was used from `earlier` until here.
    pub fn since(&self, earlier: &Snapshot) -> Usage {
        let pooler = grown(&self.pooler, &earlier.pooler);
        let postgres_ns = grown(&self.postgres, &earlier.postgres).cpu_ns;
        let load_ns = grown(&self.load, &earlier.load).cpu_ns;
        let ticks = |now: u64, before: u64| now.saturating_sub(before) * procfs::ns_per_tick();
        let busy_ns = ticks(self.machine.busy, earlier.machine.busy);
        Usage {
            window: self.at.saturating_duration_since(earlier.at),
            pooler,
            parts: parts::growth(&self.parts, &earlier.parts),
            postgres_ns,
            foreign_ns: busy_ns.saturating_sub(pooler.cpu_ns + postgres_ns + load_ns),
            steal_ns: ticks(self.machine.steal, earlier.machine.steal),
            rss_kib: self.rss_kib,
        }
    }
}

/// Adds the threads of a process that may already have ended.
fn add(counters: &mut Counters, pid: u32) {
    if let Ok(tasks) = procfs::tasks(pid) {
        counters.extend(tasks.into_iter().map(|(id, task)| ((pid, id), task)));
    }
}

/// Growth by thread: a thread that ended in between must not make the sum shrink.
fn grown(now: &Counters, before: &Counters) -> Task {
    let mut sum = Task::default();
    for (key, task) in now {
        let base = before.get(key).copied().unwrap_or_default();
        sum.cpu_ns += task.cpu_ns.saturating_sub(base.cpu_ns);
        sum.user_ticks += task.user_ticks.saturating_sub(base.user_ticks);
        sum.system_ticks += task.system_ticks.saturating_sub(base.system_ticks);
        sum.switches += task.switches.saturating_sub(base.switches);
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::*;

    fn task(cpu_ns: u64, switches: u64) -> Task {
        Task {
            cpu_ns,
            switches,
            ..Task::default()
        }
    }

    #[test]
    fn a_thread_that_ended_does_not_hide_what_the_others_used() {
        let before = Counters::from([((1, 1), task(100, 1)), ((1, 2), task(9_000, 9))]);
        let now = Counters::from([((1, 1), task(150, 4))]);
        assert_eq!(grown(&now, &before), task(50, 3));
    }

    #[test]
    fn a_thread_that_began_counts_from_zero() {
        let before = Counters::from([((1, 1), task(100, 1))]);
        let now = Counters::from([((1, 1), task(100, 1)), ((1, 7), task(30, 2))]);
        assert_eq!(grown(&now, &before), task(30, 2));
    }

    #[test]
    fn own_work_is_seen() {
        let watched = Watched {
            pooler: vec![std::process::id()],
            ..Watched::default()
        };
        let before = watched.snapshot().expect("self");
        let mut x = 1u64;
        while before.at.elapsed() < Duration::from_millis(30) {
            x = x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        }
        let used = watched.snapshot().expect("self").since(&before);
        assert_ne!(x, 0);
        assert!(used.pooler.cpu_ns > 5_000_000, "{used:?}");
        assert!(used.rss_kib.is_some());
    }

    #[test]
    fn a_pooler_of_which_a_process_is_gone_is_an_error() {
        let watched = Watched {
            pooler: vec![std::process::id(), u32::MAX],
            ..Watched::default()
        };
        assert!(watched.snapshot().is_err());
    }
}
