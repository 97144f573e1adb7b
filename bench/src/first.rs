//! The first queries after a start: by pgmux with its servers open already, by one that opens them when they are asked for, and
//! by either once it has been at it for a while.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::counters;
use crate::interrupt::Interrupt;
use crate::login::Session;
use crate::peers::{Auth, Peer, Pgmux, Site, Start};
use crate::stats::{Spread, percentile};

/// The 99th percentiles of some queries, in microseconds, one for each start.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Figures {
    /// The first ones of a pgmux that has its minimum of servers open, as many as there are clients.
    pub warm: Vec<f64>,
    /// The first ones of a pgmux whose minimum is zero.
    pub cold: Vec<f64>,
    /// As many of the warm one, later.
    pub steady: Vec<f64>,
}

impl Figures {
    /// The ratio of the medians of the warm starts' and of the steady p99.
    pub fn warm_to_steady(&self) -> Option<f64> {
        let median = |figures: &[f64]| Spread::of(figures.iter().copied()).map(|s| s.median);
        Some(median(&self.warm)? / median(&self.steady)?)
    }
}

/// Starts pgmux so many times warm and cold, in turn.
pub fn measure(pgmux: &Pgmux, site: &Site<'_>, starts: u32) -> Result<Figures> {
    let mut figures = Figures::default();
    for _ in 0..starts {
        site.interrupt.check()?;
        let warm = start(pgmux, site, CLIENTS)?;
        let clients = clients(&warm)?;
        figures.warm.push(p99(&clients)?);
        for _ in 0..BETWEEN {
            p99(&clients)?;
        }
        figures.steady.push(p99(&clients)?);
        drop((clients, warm));
        let cold = start(pgmux, site, 0)?;
        figures.cold.push(p99(&self::clients(&cold)?)?);
    }
    Ok(figures)
}

/// Starts it and waits until its minimum is open.
fn start(pgmux: &Pgmux, site: &Site<'_>, min: u32) -> Result<Peer> {
    let pgmux = Pgmux {
        min_servers: Some(min),
        ..pgmux.clone()
    };
    let peer = pgmux.start(site, Auth::Trust)?;
    await_servers(&peer, min, site.interrupt)?;
    Ok(peer)
}

fn await_servers(peer: &Peer, min: u32, interrupt: &Interrupt) -> Result<()> {
    let mut open = 0.0;
    interrupt.wait_until(PATIENCE, || {
        let told = counters::read(&peer.target, interrupt)?;
        open = told
            .and_then(|told| told.get("servers_idle").copied())
            .unwrap_or(0.0);
        Ok(open >= f64::from(min))
    })?;
    if open < f64::from(min) {
        bail!("{} has {open} of {min} servers", peer.target.name);
    }
    Ok(())
}

fn clients(peer: &Peer) -> Result<Vec<Session>> {
    let open = |_| Session::open(&peer.target.dsn, None);
    (0..CLIENTS).map(open).collect()
}

/// All clients ask at once, again and again.
fn p99(clients: &[Session]) -> Result<f64> {
    let taken: Vec<Result<Vec<u32>>> = std::thread::scope(|scope| {
        let asking = clients.iter().map(|client| scope.spawn(|| ask(client)));
        let asking: Vec<_> = asking.collect();
        let ended = asking.into_iter().map(|thread| thread.join());
        ended
            .map(|taken| taken.unwrap_or_else(|_| bail!("a client's thread has died")))
            .collect()
    });
    let mut all = Vec::new();
    for taken in taken {
        all.extend(taken?);
    }
    all.sort_unstable();
    percentile(&all, 0.99).context("no query was asked")
}

fn ask(client: &Session) -> Result<Vec<u32>> {
    let mut taken = Vec::with_capacity(QUERIES);
    for _ in 0..QUERIES {
        let begin = Instant::now();
        client.ask()?;
        taken.push(u32::try_from(begin.elapsed().as_micros()).unwrap_or(u32::MAX));
    }
    Ok(taken)
}

/// Clients, and servers of the warm one.
pub const CLIENTS: u32 = 8;
/// What each asks before its p99 is taken.
pub const QUERIES: usize = 50;
/// As much again so many times before it is taken once more.
const BETWEEN: u32 = 20;
const PATIENCE: Duration = Duration::from_secs(20);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ratio_is_that_of_the_medians() {
        let figures = Figures {
            warm: vec![110.0, 900.0, 100.0],
            steady: vec![100.0, 90.0, 400.0],
            cold: Vec::new(),
        };
        assert_eq!(figures.warm_to_steady(), Some(1.1));
        assert_eq!(Figures::default().warm_to_steady(), None);
    }
}
