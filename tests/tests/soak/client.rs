//! A client that works, leaves in whatever way, and comes back as somebody else.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex, PoisonError};

use tests::wire::{Endpoint, Login, Slicing, frontend};

use crate::session;
use crate::twins::{self, Key, Leaving, Twins};
use crate::work::{Author, Request};
use tests::dice::Dice;

/// What all clients of a round share.
#[derive(Debug)]
pub struct Scene {
    /// pgmux's and PostgreSQL's.
    pub endpoints: [Endpoint; 2],
    /// The same two, with no parameters yet.
    pub logins: [Login; 2],
    /// The seed of the run.
    pub seed: u64,
    /// The number of the round.
    pub round: u64,
    /// Set when the time is up, or when one has failed.
    pub over: AtomicBool,
    /// Servers that may be kept at once.
    pub passes: Passes,
}

/// Lives until the round is over. The error tells what was not as PostgreSQL has it.
pub fn run(scene: &Scene, number: u64) -> Result<u64, String> {
    let mut ghost = None;
    for life in 0.. {
        if scene.over.load(Ordering::Relaxed) {
            return Ok(life);
        }
        ghost = live(scene, number, life, ghost)?;
    }
    Ok(0)
}

/// From login to leaving. Gives the cancel key, which nobody answers to any more.
fn live(scene: &Scene, number: u64, life: u64, ghost: Option<Key>) -> Result<Option<Key>, String> {
    let mut dice = Dice::new(&[scene.seed, scene.round, number, life]);
    let mut author = Author {
        tag: format!("~{}.{number}.{life}~", scene.round),
        number: (scene.round * 1000 + number) * 100_000 + life,
        holding: false,
        has_startup_settings: false,
    };
    let mut logins = scene.logins.clone();
    let parameters = parameters(&author, &mut dice);
    author.has_startup_settings = !parameters.is_empty();
    for (name, value) in parameters {
        logins = logins.map(|login| login.param(&name, &value));
    }
    let mut twins = Twins::open(&scene.endpoints, &logins, &author.tag)?;
    let key = Some(twins.key());
    let mut pass = None;
    for _ in 0..2 + dice.below(80) {
        if scene.over.load(Ordering::Relaxed) {
            break;
        }
        let idle = twins.status == b'I';
        match dice.below(200) {
            // The passes outlast no client: whoever has one goes on.
            0..6 if idle && pass.is_none() => {
                pass = Some(scene.passes.take());
                author.holding = true;
            }
            6..36 if idle && pass.is_some() => {
                let_go(&mut twins, &mut dice)?;
                author.holding = false;
                pass = None;
            }
            36..38 => cancelled(&mut twins, &author)?,
            38..40 if idle => {
                twins.race(&format!("select pg_sleep(0.004), '{}'", author.tag))?;
                // Destroys the unnamed statement, which one outcome leaves.
                twins.ask("select 'after the race'")?;
            }
            40 => {
                if let Some(ghost) = &ghost {
                    twins::cancel(&scene.endpoints[0], ghost)?;
                }
            }
            41 => {
                // Only its own role may.
                twins.ask("rollback; reset role")?;
                twins.die()?;
                return Ok(key);
            }
            _ => {
                let request = author.request(&mut dice, twins.status);
                let slicing = slicing(&mut dice, &request);
                twins.exchange(&request, slicing)?;
            }
        }
    }
    leave(twins, &author, &mut dice)?;
    drop(pass);
    Ok(key)
}

/// The startup packet's parameters.
fn parameters(author: &Author, dice: &mut Dice) -> Vec<(String, String)> {
    let mut parameters = Vec::new();
    let mut add = |name: &str, value: &str| parameters.push((name.to_string(), value.to_string()));
    if dice.chance(50) {
        add("application_name", &format!("in{}", author.tag));
    }
    if dice.chance(25) {
        add("TimeZone", dice.pick(&["America/New_York", "Asia/Tokyo"]));
    }
    if dice.chance(25) {
        add("DateStyle", dice.pick(&["German", "SQL, DMY"]));
    }
    if dice.chance(25) {
        add("search_path", dice.pick(&["one, public", "two, public"]));
    }
    if dice.chance(25) {
        add(
            "options",
            dice.pick(&[
                "-c work_mem=2MB",
                "-c extra_float_digits=2 -c lock_timeout=5000s",
            ]),
        );
    }
    parameters
}

fn slicing(dice: &mut Dice, request: &Request) -> Slicing {
    match dice.below(100) {
        0..30 => Slicing::Split(dice.below(request.bytes.len().max(1))),
        30..34 if request.bytes.len() < 300 => Slicing::Bytes,
        _ => Slicing::Whole,
    }
}

/// Undoes all that keeps the server.
fn let_go(twins: &mut Twins, dice: &mut Dice) -> Result<(), String> {
    for request in session::undo(dice) {
        twins.exchange(&request, Slicing::Whole)?;
    }
    if dice.chance(50) || !twins.ask(session::HELD)?.is_empty() {
        twins.exchange(&Request::query("discard all"), Slicing::Whole)?;
    }
    Ok(())
}

/// Sleeps and is woken by a cancel request. In a transaction, so that it has a server and does not wait for one.
fn cancelled(twins: &mut Twins, author: &Author) -> Result<(), String> {
    if twins.status == b'I' {
        twins.exchange(&Request::query("begin"), Slicing::Whole)?;
    }
    if twins.status == b'T' {
        twins.cancel(&format!("select pg_sleep(300), '{}'", author.tag))?;
    }
    Ok(())
}

/// Leaves: with a word, or in the middle of one.
fn leave(twins: Twins, author: &Author, dice: &mut Dice) -> Result<(), String> {
    let how = dice.pick(&[Leaving::Fin, Leaving::Rst, Leaving::HalfClose]);
    let tag = &author.tag;
    let mut bytes = match dice.below(10) {
        0 => frontend::query(&format!("select '{tag}', pg_sleep(300)")),
        1 => frontend::query(&format!(
            "begin; insert into soak values ('{tag}', 100, ''); select pg_sleep(300)"
        )),
        2 => frontend::query(&format!(
            "select repeat('{tag}', 1000) from generate_series(1, 3000)"
        )),
        3 => frontend::query("copy soak from stdin"),
        4 => frontend::terminate(),
        5 => Vec::new(),
        _ => author.request(dice, twins.status).whole(),
    };
    let sleeps = bytes.windows(8).any(|window| window == b"pg_sleep");
    if dice.chance(60) {
        bytes.truncate(dice.below(bytes.len() + 1));
    } else if !sleeps && dice.chance(30) {
        // Behind a long sleep it would be carried out to its end, as it should.
        bytes.extend(frontend::terminate());
    }
    // PostgreSQL does not look at a half-closed socket while it sleeps, and pgmux waits a while for the reply that it
    // owes: eight servers would soon do nothing else.
    let how = if sleeps { Leaving::Rst } else { how };
    twins.leave(&bytes, how, dice.chance(40))
}

/// A counted right to keep servers, so that others are never without one.
#[derive(Debug)]
pub struct Passes {
    free: Mutex<usize>,
    returned: Condvar,
}

/// One of them; it goes back when dropped.
#[derive(Debug)]
pub struct Pass<'a>(&'a Passes);

impl Passes {
    /// So many.
    pub fn new(count: usize) -> Self {
        Self {
            free: Mutex::new(count),
            returned: Condvar::new(),
        }
    }

    fn take(&self) -> Pass<'_> {
        let free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        let mut free = self
            .returned
            .wait_while(free, |free| *free == 0)
            .unwrap_or_else(PoisonError::into_inner);
        *free -= 1;
        Pass(self)
    }
}

impl Drop for Pass<'_> {
    fn drop(&mut self) {
        *self.0.free.lock().unwrap_or_else(PoisonError::into_inner) += 1;
        self.0.returned.notify_one();
    }
}
