//! All clients on one shard: whether the servers of the others get there, and what that costs.
//!
//! A client's process id tells its shard, for pgmux answers cancel requests by it. So clients that are to be on one shard
//! connect until they are.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::dsn::Dsn;
use crate::login::Session;

/// What to run.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// Clients at a time.
    pub clients: u32,
    /// The shard that all of them are on, from 0.
    pub shard: u32,
    /// Over how many shards they wander together, after each [`Plan::stay`]; with 1 they come back to the same.
    pub shards: u32,
    /// How long they are on a shard. What coming and going costs them is in the rate, so a rate is to be held against
    /// one of the same stay.
    pub stay: Duration,
    /// What a question has its server wait for. With a millisecond or more it is servers that are scarce, not CPUs: the rate
    /// then tells how many servers are where the clients are, on a busy machine too.
    pub sleep: Duration,
    /// How long in all, without the time that connecting takes.
    pub time: Duration,
}

/// What came of it.
#[derive(Clone, Copy, Debug, Default)]
pub struct Outcome {
    /// Queries answered.
    pub queries: u64,
    /// While the clients asked.
    pub time: Duration,
    /// The longest that a client waited for an answer.
    pub longest: Duration,
}

impl Outcome {
    /// Queries a second.
    pub fn rate(&self) -> f64 {
        self.queries as f64 / self.time.as_secs_f64()
    }

    fn add(&mut self, other: &Self) {
        self.queries += other.queries;
        self.time += other.time;
        self.longest = self.longest.max(other.longest);
    }
}

/// Runs the plan on pgmux.
pub fn run(dsn: &Dsn, plan: &Plan) -> Result<Outcome> {
    let mut sum = Outcome::default();
    let mut shard = plan.shard;
    while sum.time < plan.time {
        let clients = settle(dsn, plan.clients, shard)?;
        let stay = plan.stay.min(plan.time - sum.time);
        sum.add(&ask(clients, stay, plan.sleep)?);
        shard = (shard + 1) % plan.shards.max(1);
    }
    Ok(sum)
}

/// So many clients on the shard.
fn settle(dsn: &Dsn, clients: u32, shard: u32) -> Result<Vec<Session>> {
    // pgmux gives a new client to the emptiest shard: those that are elsewhere stay until all are where they are to be.
    let mut strangers = Vec::new();
    let mut settled = Vec::new();
    for _ in 0..TRIES_PER_CLIENT * clients {
        let session = Session::open(dsn, None)?;
        if session.shard() == shard {
            settled.push(session);
        } else {
            strangers.push(session);
        }
        if settled.len() == clients as usize {
            strangers.into_iter().for_each(Session::close);
            return Ok(settled);
        }
    }
    bail!("hardly any client gets to shard {shard}")
}

/// Every client asks, one question after the other.
fn ask(clients: Vec<Session>, time: Duration, sleep: Duration) -> Result<Outcome> {
    let start = Instant::now();
    let threads: Vec<_> = clients
        .into_iter()
        .map(|client| {
            std::thread::spawn(move || -> Result<Outcome> {
                let mut outcome = Outcome::default();
                let mut asked = Instant::now();
                while start.elapsed() < time {
                    match sleep.is_zero() {
                        true => client.ask()?,
                        false => client.ask_to_sleep(sleep)?,
                    }
                    let answered = Instant::now();
                    outcome.longest = outcome.longest.max(answered - asked);
                    outcome.queries += 1;
                    asked = answered;
                }
                client.close();
                Ok(outcome)
            })
        })
        .collect();
    let mut sum = Outcome::default();
    for thread in threads {
        let outcome = thread.join().ok().context("a client panicked")??;
        sum.add(&outcome);
    }
    sum.time = start.elapsed();
    Ok(sum)
}

/// More than there are shards.
const TRIES_PER_CLIENT: u32 = 100;
