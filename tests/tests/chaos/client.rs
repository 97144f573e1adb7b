//! Clients that write rows and keep book of what they were told.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tests::dice::Dice;
use tests::wire::{Conn, Endpoint, Login, Message, Session, WireError, frontend};

/// What all clients share.
pub struct Scene {
    pub endpoint: Endpoint,
    pub login: Login,
    pub seed: u64,
    pub over: AtomicBool,
}

/// What was told of which row.
#[derive(Debug, Default)]
pub struct Tally {
    /// It is there.
    pub done: Vec<i64>,
    /// It is not there.
    pub refused: Vec<i64>,
    /// Nobody can know: the connection or the server was lost.
    pub unknown: u64,
    lives: u64,
    turned_away: u64,
}

impl Tally {
    /// Adds another's.
    pub fn add(&mut self, other: Self) {
        self.done.extend(other.done);
        self.refused.extend(other.refused);
        self.unknown += other.unknown;
        self.lives += other.lives;
        self.turned_away += other.turned_away;
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            out,
            "{} rows done, {} refused, {} unknown, {} lives, {} turned away",
            self.done.len(),
            self.refused.len(),
            self.unknown,
            self.lives,
            self.turned_away
        )
    }
}

/// One answer to one request.
enum Outcome {
    /// The messages up to ReadyForQuery, without an error among them.
    Done(Vec<Message>),
    /// An error after which the connection goes on.
    Error(String),
    /// The end of the connection.
    Lost,
}

/// Lives until it is over. `Err`: a request had no outcome, or a wrong one.
pub fn run(scene: &Scene, number: u64) -> Result<Tally, String> {
    let mut tally = Tally::default();
    let mut life = 0;
    while !scene.over.load(Ordering::Relaxed) {
        life += 1;
        let mut dice = Dice::new(&[scene.seed, number, life]);
        let Some(mut session) = enter(scene)? else {
            tally.turned_away += 1;
            std::thread::sleep(Duration::from_millis(50));
            continue;
        };
        tally.lives += 1;
        for nth in 0..1 + dice.below(100) as i64 {
            if scene.over.load(Ordering::Relaxed) {
                break;
            }
            let id = (number as i64 * 100_000 + life as i64) * 1_000 + nth;
            if !work(&mut session, id, &mut dice, &mut tally)
                .map_err(|error| format!("client {number}, life {life}, row {id}: {error}"))?
            {
                break;
            }
        }
        if dice.chance(50) {
            let _ = session.conn.send(&frontend::terminate());
        }
    }
    Ok(tally)
}

/// None: it was refused or its connection was lost, as when the process is told of too much at once.
fn enter(scene: &Scene) -> Result<Option<Session>, String> {
    let Ok(mut conn) = Conn::open(&scene.endpoint) else {
        return Ok(None);
    };
    conn.patience = NO_OUTCOME;
    match Session::log_in(conn, &scene.login) {
        Ok(session) => Ok(Some(session)),
        Err(reason) if reason.contains("timeout") => {
            Err(format!("a login without outcome: {reason}"))
        }
        Err(_) => Ok(None),
    }
}

/// One piece of work; false: the connection is lost.
fn work(
    session: &mut Session,
    id: i64,
    dice: &mut Dice,
    tally: &mut Tally,
) -> Result<bool, String> {
    let insert = format!("insert into outcome values ({id}) returning id");
    match dice.below(10) {
        0..3 => {
            let outcome = ask(session, &frontend::query(&insert))?;
            Ok(note(tally, id, outcome, true)?)
        }
        3..6 => {
            let text = "insert into outcome values ($1) returning id";
            let request = [
                frontend::parse("", text, &[]),
                frontend::bind_text("", "", &[&id.to_string()]),
                frontend::execute("", 0),
                frontend::sync(),
            ]
            .concat();
            let outcome = ask(session, &request)?;
            Ok(note(tally, id, outcome, true)?)
        }
        6..8 => transaction(session, id, &insert, dice, tally),
        _ => match ask(session, &frontend::query(&format!("select {id}")))? {
            Outcome::Done(messages) => {
                own_row(&messages, id)?;
                Ok(true)
            }
            Outcome::Error(_) => Ok(true),
            Outcome::Lost => Ok(false),
        },
    }
}

fn transaction(
    session: &mut Session,
    id: i64,
    insert: &str,
    dice: &mut Dice,
    tally: &mut Tally,
) -> Result<bool, String> {
    match ask(session, &frontend::query("begin"))? {
        Outcome::Done(_) => {}
        Outcome::Error(_) => return Ok(true),
        Outcome::Lost => return Ok(false),
    }
    match ask(session, &frontend::query(insert))? {
        Outcome::Done(messages) => own_row(&messages, id)?,
        Outcome::Error(_) => {
            tally.refused.push(id);
            return Ok(matches!(
                ask(session, &frontend::query("rollback"))?,
                Outcome::Done(_) | Outcome::Error(_)
            ));
        }
        Outcome::Lost => {
            tally.refused.push(id);
            return Ok(false);
        }
    }
    if dice.chance(10) {
        // It vanishes in the middle: nothing of it may stay.
        tally.refused.push(id);
        return Ok(false);
    }
    let outcome = ask(session, &frontend::query("commit"))?;
    if let Outcome::Done(messages) = &outcome {
        let tag = messages.iter().find(|message| message.tag == b'C');
        if tag.is_some_and(|tag| tag.body.starts_with(b"ROLLBACK")) {
            tally.refused.push(id);
            return Ok(true);
        }
    }
    note(tally, id, outcome, false)
}

/// Books what was told of a row; false: the connection is lost.
fn note(tally: &mut Tally, id: i64, outcome: Outcome, with_row: bool) -> Result<bool, String> {
    match outcome {
        Outcome::Done(messages) => {
            if with_row {
                own_row(&messages, id)?;
            }
            tally.done.push(id);
            Ok(true)
        }
        Outcome::Error(code) => {
            // Connection and operator errors say nothing of what the server has done (PostgreSQL, appendix A).
            match code.starts_with("08") || code.starts_with("57P") {
                true => tally.unknown += 1,
                false => tally.refused.push(id),
            }
            Ok(true)
        }
        Outcome::Lost => {
            tally.unknown += 1;
            Ok(false)
        }
    }
}

/// The row that came is that of this request.
fn own_row(messages: &[Message], id: i64) -> Result<(), String> {
    let rows: Vec<_> = messages
        .iter()
        .filter(|message| message.tag == b'D')
        .collect();
    let own = id.to_string();
    match rows[..] {
        [row] if row.body.ends_with(own.as_bytes()) => Ok(()),
        _ => Err(format!("not the own row: {messages:?}")),
    }
}

fn ask(session: &mut Session, request: &[u8]) -> Result<Outcome, String> {
    if session.conn.send(request).is_err() {
        return Ok(Outcome::Lost);
    }
    let mut messages = Vec::new();
    let mut error = None;
    loop {
        match session.conn.recv() {
            Ok(message) if message.tag == b'Z' => {
                return Ok(match error {
                    Some(code) => Outcome::Error(code),
                    None => Outcome::Done(messages),
                });
            }
            Ok(message) if message.tag == b'E' => {
                if error.is_some() {
                    return Err(format!("a second error: {message:?}"));
                }
                error = Some(code(&message));
            }
            Ok(message) => messages.push(message),
            Err(WireError::Timeout(_)) => return Err("no outcome".into()),
            Err(_) => return Ok(Outcome::Lost),
        }
    }
}

/// The field C of an ErrorResponse.
fn code(message: &Message) -> String {
    let fields = message.body.split(|byte| *byte == 0);
    let code = fields.filter_map(|field| field.strip_prefix(b"C")).next();
    String::from_utf8_lossy(code.unwrap_or_default()).into_owned()
}

/// Longer than everything that pgmux and PostgreSQL may wait for here.
const NO_OUTCOME: Duration = Duration::from_secs(120);
