//! What breaks. Each is whole again when it returns.

use std::time::Duration;

use rustix::process::Signal;
use tests::dice::Dice;
use tests::process::signal_pid;

use super::{Chaos, SERVERS_MAX};

/// One thing that happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fate {
    /// `pg_terminate_backend` of some servers.
    Terminated,
    /// Servers stand still for a while, as on a machine that swaps.
    Stopped,
    /// A server is killed: PostgreSQL ends all others and recovers.
    Killed,
    /// PostgreSQL is down for a while.
    Crashed,
    /// Nothing arrives for a while.
    Cut,
    /// Everything is late for a while.
    Slow,
    /// Another budget and other timeouts.
    Reloaded,
}

impl Fate {
    /// All; what is worse is rarer.
    pub const ALL: [Self; 12] = [
        Self::Terminated,
        Self::Terminated,
        Self::Stopped,
        Self::Stopped,
        Self::Killed,
        Self::Crashed,
        Self::Cut,
        Self::Cut,
        Self::Slow,
        Self::Slow,
        Self::Reloaded,
        Self::Reloaded,
    ];

    /// Lets it happen.
    pub fn happen(self, chaos: &mut Chaos, dice: &mut Dice) {
        let mut wait = |from: u64, below: usize| {
            let more = u64::try_from(dice.below(below)).expect("64-bit");
            std::thread::sleep(Duration::from_millis(from + more));
        };
        match self {
            Self::Terminated => {
                let servers = chaos.direct().servers();
                for pid in servers.iter().take(1 + dice.below(4)) {
                    chaos
                        .direct()
                        .run(&format!("select pg_terminate_backend({pid})"));
                }
            }
            Self::Stopped => {
                let servers = chaos.direct().servers();
                for pid in &servers {
                    signal(*pid, Signal::STOP);
                }
                wait(100, 1500);
                for pid in &servers {
                    signal(*pid, Signal::CONT);
                }
            }
            Self::Killed => {
                let servers = chaos.direct().servers();
                if let Some(pid) = servers.first().and_then(|pid| u32::try_from(*pid).ok()) {
                    chaos.cluster.kill_child(pid);
                }
            }
            Self::Crashed => {
                chaos.cluster.crash();
                wait(0, 2000);
                chaos.cluster.resume();
            }
            Self::Cut => {
                chaos.network.cut();
                wait(100, 1500);
                chaos.network.mend();
            }
            Self::Slow => {
                let lag = u64::try_from(5 + dice.below(60)).expect("64-bit");
                chaos.network.lag(Duration::from_millis(lag));
                std::thread::sleep(Duration::from_millis(1000));
                chaos.network.lag(Duration::ZERO);
            }
            Self::Reloaded => {
                let servers = SERVERS_MAX - dice.below(6);
                let timeout = format!("{}s", 50 + dice.below(20));
                let config = chaos.config.clone().servers(servers);
                let config = config.set("pool.connection_timeout", timeout);
                assert!(chaos.pgmux.reload(&config), "{}", chaos.pgmux.log());
            }
        }
    }
}

/// To a server that may have gone meanwhile.
fn signal(pid: i32, signal: Signal) {
    if let Ok(pid) = u32::try_from(pid) {
        signal_pid(pid, signal);
    }
}
