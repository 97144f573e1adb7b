//! The limits of this process: locked memory and file descriptors.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use super::Finding;
use crate::config::{Config, ListenAddr};

/// glommio panics below this.
const MEMLOCK_MIN: u64 = 512 * 1024;

/// Rings, event descriptors, timers and epoll of one executor and its driver, rounded up (measured: 7 with a listener).
const FILES_PER_SHARD: u64 = 16;

/// Standard streams, log, the admin shard, files that are open for a moment.
const FILES_BASE: u64 = 64;

/// With room for fewer clients than this, an operator should know.
const CLIENTS_FEW: u64 = 1_000;

pub(super) fn check(config: &Config, shards: usize) -> Vec<Finding> {
    let memlock = memlock(raised(Resource::Memlock, MEMLOCK_MIN));
    let files = files(
        raised(Resource::Nofile, u64::MAX),
        needed_files(config, shards),
    );
    memlock.into_iter().chain(files).collect()
}

/// The soft limit, after it was raised to the hard one if it was below `enough`.
fn raised(resource: Resource, enough: u64) -> u64 {
    let Rlimit { current, maximum } = getrlimit(resource);
    let soft = current.unwrap_or(u64::MAX);
    if soft >= enough {
        return soft;
    }
    let more = Rlimit {
        current: maximum,
        maximum,
    };
    match setrlimit(resource, more) {
        Ok(()) => maximum.unwrap_or(u64::MAX),
        Err(_) => soft,
    }
}

fn memlock(limit: u64) -> Option<Finding> {
    (limit < MEMLOCK_MIN).then(|| {
        Finding::refuse(format!(
            "the limit of locked memory is {} KiB and pgmux needs {} KiB: run `ulimit -l 8192`, or set LimitMEMLOCK=8M in the systemd unit",
            limit / 1024,
            MEMLOCK_MIN / 1024
        ))
    })
}

/// What pgmux opens by itself: everything but clients.
fn needed_files(config: &Config, shards: usize) -> u64 {
    let shards = shards as u64;
    let servers: u64 = config
        .groups
        .iter()
        .map(|group| u64::from(group.pool.max_connections))
        .sum();
    let listeners = config.proxy.listen.iter().map(|addr| match addr {
        ListenAddr::Tcp(_) => shards,
        ListenAddr::Unix(_) => 1,
    });
    FILES_BASE + FILES_PER_SHARD * shards + servers + listeners.sum::<u64>()
}

fn files(limit: u64, needed: u64) -> Option<Finding> {
    let mend = |least: u64| {
        format!(
            "run `ulimit -n {least}` as a user that may, or set LimitNOFILE={least} in the systemd unit"
        )
    };
    match limit.saturating_sub(needed) {
        0 => Some(Finding::refuse(format!(
            "the limit of {limit} file descriptors is too low for the {needed} that this configuration needs besides clients: {}",
            mend((needed + 10 * CLIENTS_FEW).next_power_of_two())
        ))),
        clients if clients < CLIENTS_FEW => Some(Finding::warn(format!(
            "the limit of {limit} file descriptors leaves room for {clients} clients: {}",
            mend((needed + 10 * CLIENTS_FEW).next_power_of_two())
        ))),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::preflight::Severity;

    #[test]
    fn locked_memory_must_suffice_for_glommio() {
        assert_eq!(memlock(MEMLOCK_MIN), None);
        let finding = memlock(MEMLOCK_MIN - 1).unwrap();
        assert_eq!(finding.severity, Severity::Refuse);
        assert!(
            finding.text.contains("is 511 KiB") && finding.text.contains("ulimit -l"),
            "{}",
            finding.text
        );
    }

    #[test]
    fn descriptors_must_suffice_for_servers_and_should_for_clients() {
        assert_eq!(files(1_100, 100), None);
        assert_eq!(
            files(1_099, 100).map(|finding| finding.severity),
            Some(Severity::Warn)
        );
        assert_eq!(
            files(100, 100).map(|finding| finding.severity),
            Some(Severity::Refuse)
        );
        assert_eq!(files(u64::MAX, 100), None);
        assert!(files(100, 100).unwrap().text.contains("LimitNOFILE=16384"));
    }

    #[test]
    fn every_server_and_listener_counts() {
        let text = |max: u32| {
            format!(
                "proxy: {{listen: ['127.0.0.1:1', '[::1]:1', /tmp]}}\npool: {{max_connections: {max}}}\n\
                 databases: {{a: {{writer: /tmp}}, b: {{writer: /tmp}}}}\nauth: {{enabled: false, method: trust}}\n"
            )
        };
        let needed = |max, shards| {
            let config = Config::parse(&text(max), "x").unwrap_or_else(|errors| panic!("{errors}"));
            needed_files(&config, shards)
        };
        assert_eq!(needed(20, 1), FILES_BASE + FILES_PER_SHARD + 40 + 3);
        assert_eq!(needed(20, 4), FILES_BASE + 4 * FILES_PER_SHARD + 40 + 9);
        assert_eq!(needed(21, 1) - needed(20, 1), 2);
    }

    #[test]
    fn a_low_soft_limit_is_raised_to_the_hard_one() {
        let before = getrlimit(Resource::Nofile);
        let hard = before.maximum.unwrap_or(u64::MAX);
        assert_eq!(raised(Resource::Nofile, u64::MAX), hard);
        assert_eq!(raised(Resource::Nofile, 1), hard);
    }
}
