//! Running a script against one target and comparing the replies.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use super::golden::Whose;
use super::swap::{Swapper, server_of_last_reply};
use super::{Action, Script, Step, Until};
use crate::canary;
use crate::clean::{Inspector, Suspicions};
use crate::cluster::{Cluster, PASSWORD};
use crate::direct::Direct;
use crate::version::Version;
use crate::wire::{
    Conn, Endpoint, Login, Message, Session, Slicing, WireError, describe, frontend,
};

/// How long a script waits for a reply. Shorter than elsewhere: a missing reply is a common way to fail.
const REPLY_PATIENCE: Duration = Duration::from_secs(8);
/// How long nothing must come for `wait quiet`.
const QUIET: Duration = Duration::from_millis(120);

/// In which way a script is run.
#[derive(Clone, Copy, Debug)]
pub struct Mode {
    /// How each write is cut.
    pub slicing: Slicing,
    /// Whether the server is changed under each client between its transactions.
    pub swap: bool,
}

impl Mode {
    /// As it stands in the file.
    pub const PLAIN: Self = Self {
        slicing: Slicing::Whole,
        swap: false,
    };
}

type Replies<'s> = Vec<(&'s Step, Vec<String>)>;

/// A database in which scripts play, and the way to it.
#[derive(Debug)]
pub struct Stage {
    version: Version,
    endpoint: Endpoint,
    login: Login,
    /// Of what pgmux leaves; none without pgmux.
    inspector: Option<Inspector>,
    admin: Direct,
    direct: Direct,
}

impl Stage {
    /// A stage whose clients connect to PostgreSQL itself.
    pub fn direct(cluster: &Cluster, database: &str) -> Self {
        Self::new(cluster, database, Endpoint::local(cluster.port()), None)
    }

    /// A stage whose clients connect to pgmux at `front`, which may use so many servers.
    pub fn pgmux(cluster: &Cluster, database: &str, front: Endpoint, budget: usize) -> Self {
        Self::new(cluster, database, front, Some(budget))
    }

    fn new(cluster: &Cluster, database: &str, endpoint: Endpoint, budget: Option<usize>) -> Self {
        let login = Login::new("app", PASSWORD, database);
        let mut direct = Direct::open(cluster, database);
        direct.run(&format!("set role {}", login.user));
        let inspector = budget.map(|budget| Inspector::new(cluster, &endpoint, &login, budget));
        Self {
            version: cluster.version(),
            endpoint,
            login,
            inspector,
            admin: Direct::open(cluster, database),
            direct,
        }
    }

    /// Plays a script and compares the replies with the golden ones; then all servers must be idle and clean and a
    /// fresh client must get its own row. The error is a difference to read.
    pub fn play(&mut self, script: &Script, mode: Mode) -> Result<(), String> {
        let replies = self.perform(script, mode)?;
        for (step, got) in &replies {
            let Some(golden) = step.golden() else {
                continue;
            };
            let whose = match self.inspector {
                Some(_) => Whose::Pgmux,
                None => Whose::Server,
            };
            let expected = golden.expected(whose, self.version);
            if script.differs(&expected, got) {
                return Err(difference(script, step, mode, &expected, got));
            }
        }
        Ok(())
    }

    /// Plays a script and writes the replies into its file as the golden ones of the stage's version.
    pub fn bless(&mut self, script: &Script, path: &Path) -> Result<(), String> {
        // Stages of other versions write into the same file at the same time.
        static WRITING: Mutex<()> = Mutex::new(());
        let replies = self.perform(script, Mode::PLAIN)?;
        let replies: Vec<_> = replies.into_iter().map(|(_, lines)| lines).collect();
        let _writing = WRITING.lock().unwrap_or_else(PoisonError::into_inner);
        let blessed = Script::load(path).blessed(self.version, &replies);
        std::fs::write(path, blessed).map_err(|error| error.to_string())
    }

    /// As [`Self::enact`], with a check that failed told as a difference of this script.
    fn perform<'s>(&mut self, script: &'s Script, mode: Mode) -> Result<Replies<'s>, String> {
        let enacted = catch_unwind(AssertUnwindSafe(|| self.enact(script, mode)));
        enacted.unwrap_or_else(|panic| {
            let text = panic
                .downcast_ref::<String>()
                .map_or("a panic", String::as_str);
            Err(format!("{}.script: {mode:?}: {text}", script.name))
        })
    }

    fn enact<'s>(&mut self, script: &'s Script, mode: Mode) -> Result<Replies<'s>, String> {
        self.admin.expect_idle();
        self.admin.run(
            "set client_min_messages = error; drop schema public cascade; create schema public; \
             grant all on schema public to public",
        );
        let mut cast = Cast {
            clients: BTreeMap::new(),
            pids: Vec::new(),
            swapper: mode.swap.then(|| Swapper::new(&self.endpoint, &self.login)),
        };
        let mut replies = Vec::new();
        for step in &script.steps {
            let lines = cast.act(self, &step.action, mode).map_err(|error| {
                format!(
                    "{}.script:{}: {mode:?}: {error}",
                    script.name,
                    step.line + 1
                )
            })?;
            if step.golden().is_some() {
                replies.push((step, lines));
            }
        }
        let mut suspicions = Suspicions {
            clients: std::mem::take(&mut cast.pids),
            settings: script.dotted_names(),
        };
        suspicions.clients.reverse();
        drop(cast);
        if let Some(inspector) = &self.inspector {
            inspector.expect_clean(&mut self.admin, &suspicions);
            canary::check(&self.endpoint, &self.login);
        } else {
            self.admin.expect_servers(0);
        }
        Ok(replies)
    }
}

/// The clients of one performance.
struct Cast {
    clients: BTreeMap<char, Player>,
    /// The process ids that clients were told, in the order in which they spoke.
    pids: Vec<i32>,
    swapper: Option<Swapper>,
}

struct Player {
    conn: Conn,
    key: Option<(i32, Vec<u8>)>,
    /// No transaction is open and no reply is owed.
    between_transactions: bool,
    server: Option<i32>,
}

impl Cast {
    fn act(
        &mut self,
        stage: &mut Stage,
        action: &Action,
        mode: Mode,
    ) -> Result<Vec<String>, String> {
        match action {
            Action::Direct(sql) => stage.direct.run(sql),
            Action::Send { client, bytes } => {
                self.swap_server(*client);
                let player = self.player(stage, *client)?;
                player.between_transactions = false;
                let pid = player.key.as_ref().map(|(pid, _)| *pid);
                // The peer may rightly have closed already: then the next wait shows it.
                let _ = player.conn.send_sliced(bytes, mode.slicing);
                self.pids.extend(pid);
            }
            Action::Wait { client, until, .. } => return self.wait(stage, *client, until),
            Action::Open { client } => {
                let conn = Conn::open(&stage.endpoint).map_err(|error| error.to_string())?;
                self.clients.insert(*client, Player::new(conn));
            }
            Action::Login { client, params, .. } => return Ok(self.log_in(stage, *client, params)),
            Action::Close { client } => {
                if let Some(mut player) = self.clients.remove(client) {
                    let _ = player.conn.send(&frontend::terminate());
                }
            }
            Action::Reset { client } => {
                if let Some(player) = self.clients.remove(client) {
                    player.conn.reset();
                }
            }
            Action::Cancel { client } => self.cancel(stage, *client)?,
        }
        Ok(Vec::new())
    }

    fn wait(
        &mut self,
        stage: &mut Stage,
        client: char,
        until: &Until,
    ) -> Result<Vec<String>, String> {
        let swaps = self.swapper.is_some();
        let player = self.player(stage, client)?;
        let lines = player.hear(until);
        if swaps && lines.last().is_some_and(|line| line == "ReadyForQuery I") {
            player.between_transactions = true;
            player.server = server_of_last_reply(&mut stage.admin);
        }
        Ok(lines)
    }

    fn swap_server(&mut self, client: char) {
        let Some(player) = self
            .clients
            .get(&client)
            .filter(|player| player.between_transactions)
        else {
            return;
        };
        if let Some(swapper) = &mut self.swapper {
            swapper.hold(player.server);
        }
    }

    fn log_in(&mut self, stage: &Stage, client: char, params: &[(String, String)]) -> Vec<String> {
        let mut login = stage.login.clone();
        for (key, value) in params {
            match key.as_str() {
                "user" => login.user.clone_from(value),
                "database" => login.database.clone_from(value),
                "password" => login.password.clone_from(value),
                _ => login = login.param(key, value),
            }
        }
        match Session::try_open(&stage.endpoint, &login) {
            Ok(session) => {
                self.clients.insert(client, Player::from(session));
                vec!["LoggedIn".into()]
            }
            Err(refusal) => vec![refusal],
        }
    }

    fn cancel(&mut self, stage: &Stage, client: char) -> Result<(), String> {
        let key = self
            .clients
            .get(&client)
            .and_then(|player| player.key.clone());
        let (pid, secret) = key.ok_or("a client without a key")?;
        let mut conn = Conn::open(&stage.endpoint).map_err(|error| error.to_string())?;
        conn.send(&frontend::cancel_request(pid, &secret))
            .map_err(|error| error.to_string())?;
        match conn.recv_to_end() {
            Ok(bytes) if bytes.is_empty() => Ok(()),
            Ok(bytes) => Err(format!("a reply to CancelRequest: {bytes:?}")),
            Err(error) => Err(error.to_string()),
        }
    }

    fn player(&mut self, stage: &Stage, client: char) -> Result<&mut Player, String> {
        match self.clients.entry(client) {
            Entry::Occupied(player) => Ok(player.into_mut()),
            Entry::Vacant(seat) => {
                let session = Session::try_open(&stage.endpoint, &stage.login)?;
                Ok(seat.insert(Player::from(session)))
            }
        }
    }
}

impl Player {
    fn new(mut conn: Conn) -> Self {
        conn.patience = REPLY_PATIENCE;
        Self {
            conn,
            key: None,
            between_transactions: false,
            server: None,
        }
    }

    fn from(session: Session) -> Self {
        let mut player = Self::new(session.conn);
        player.key = session.key;
        player
    }

    fn hear(&mut self, until: &Until) -> Vec<String> {
        let mut lines = Vec::new();
        match until {
            Until::Quiet if self.conn.is_quiet(QUIET) => {}
            Until::Quiet => lines.push("<noise>".into()),
            Until::Byte => match self.conn.recv_byte() {
                Ok(byte) => lines.push(format!("Byte {:?}", char::from(byte))),
                Err(error) => lines.push(ending(&error)),
            },
            Until::Ready(count) => self.collect(&mut lines, &b"Z".repeat(*count)),
            Until::Tags(tags) => self.collect(&mut lines, tags),
            Until::Eof => self.collect(&mut lines, &[]),
        }
        lines
    }

    /// Reads until messages with `tags` have come in this order; with no tags, until the end.
    fn collect(&mut self, lines: &mut Vec<String>, tags: &[u8]) {
        let mut missing = tags;
        loop {
            match self.conn.recv() {
                Ok(message) => {
                    lines.push(describe(&message));
                    missing = after(missing, &message);
                    if missing.is_empty() && !tags.is_empty() {
                        return;
                    }
                }
                Err(error) => {
                    lines.push(ending(&error));
                    return;
                }
            }
        }
    }
}

/// From two lines before the first that differs.
fn difference(
    script: &Script,
    step: &Step,
    mode: Mode,
    expected: &[String],
    got: &[String],
) -> String {
    let same = expected
        .iter()
        .zip(got)
        .take_while(|(left, right)| left == right)
        .count();
    let from = |lines: &[String]| lines[same.saturating_sub(2).min(lines.len())..].join("\n    ");
    format!(
        "{}.script:{}: {mode:?}, {same} replies equal\n  expected\n    {}\n  got\n    {}",
        script.name,
        step.line + 1,
        from(expected),
        from(got)
    )
}

fn after<'t>(missing: &'t [u8], message: &Message) -> &'t [u8] {
    match missing.split_first() {
        Some((tag, rest)) if *tag == message.tag => rest,
        _ => missing,
    }
}

fn ending(error: &WireError) -> String {
    match error {
        WireError::Closed => "<closed>".into(),
        other => format!("<{other}>"),
    }
}
