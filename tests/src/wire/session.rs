//! A logged-in raw client.

use std::collections::BTreeMap;

use super::{Conn, Endpoint, Message, ScramClient, WireError, describe, frontend, md5_password};

/// Who logs in where.
#[derive(Clone, Debug)]
pub struct Login {
    /// `user` of the startup packet.
    pub user: String,
    /// The password, sent in whatever form the server asks.
    pub password: String,
    /// `database` of the startup packet.
    pub database: String,
    /// Further startup parameters.
    pub params: Vec<(String, String)>,
    /// The minor of the protocol version asked for.
    pub minor: u16,
}

impl Login {
    /// A login with no further parameters.
    pub fn new(user: &str, password: &str, database: &str) -> Self {
        Self {
            user: user.into(),
            password: password.into(),
            database: database.into(),
            params: Vec::new(),
            minor: 0,
        }
    }

    /// The same with one more startup parameter.
    pub fn param(mut self, key: &str, value: &str) -> Self {
        self.params.push((key.into(), value.into()));
        self
    }

    /// The same in protocol 3.`minor`.
    pub fn minor(mut self, minor: u16) -> Self {
        self.minor = minor;
        self
    }

    /// Its startup packet.
    pub fn startup(&self) -> Vec<u8> {
        let mut params = vec![
            ("user", self.user.as_str()),
            ("database", self.database.as_str()),
        ];
        params.extend(
            self.params
                .iter()
                .map(|(key, value)| (key.as_str(), value.as_str())),
        );
        frontend::startup(3, self.minor, &params)
    }
}

/// A raw client that has seen its first ReadyForQuery.
#[derive(Debug)]
pub struct Session {
    /// The connection, for all that this type has no word for.
    pub conn: Conn,
    /// ParameterStatus values of the login.
    pub parameters: BTreeMap<String, String>,
    /// Process id and secret of BackendKeyData.
    pub key: Option<(i32, Vec<u8>)>,
    /// The messages of the login, for comparisons.
    pub greeting: Vec<Message>,
}

impl Session {
    /// Connects and logs in, and panics when that fails.
    pub fn open(endpoint: &Endpoint, login: &Login) -> Self {
        match Self::try_open(endpoint, login) {
            Ok(session) => session,
            Err(refusal) => panic!(
                "login of {} to {} failed: {refusal}",
                login.user, login.database
            ),
        }
    }

    /// Connects and logs in; the error is the ErrorResponse as a line, or what went wrong before one came.
    pub fn try_open(endpoint: &Endpoint, login: &Login) -> Result<Self, String> {
        let conn = Conn::open(endpoint).map_err(|error| error.to_string())?;
        Self::log_in(conn, login)
    }

    /// Logs in on an open connection.
    pub fn log_in(mut conn: Conn, login: &Login) -> Result<Self, String> {
        conn.send(&login.startup())
            .map_err(|error| error.to_string())?;
        let mut greeting = Vec::new();
        let mut scram = ScramClient::new(&login.password);
        loop {
            let message = conn.recv().map_err(|error| error.to_string())?;
            match message.tag {
                b'R' => {
                    if let Some(answer) = answer(&message.body, login, &mut scram)? {
                        conn.send(&answer).map_err(|error| error.to_string())?;
                    }
                }
                b'E' => return Err(describe(&message)),
                _ => {}
            }
            let last = message.tag == b'Z';
            greeting.push(message);
            if last {
                return Ok(Self::after(conn, greeting));
            }
        }
    }

    fn after(conn: Conn, greeting: Vec<Message>) -> Self {
        let mut parameters = BTreeMap::new();
        let mut key = None;
        for message in &greeting {
            match message.tag {
                b'S' => {
                    let mut parts = message.body.split(|byte| *byte == 0);
                    let mut text =
                        || String::from_utf8_lossy(parts.next().unwrap_or_default()).into_owned();
                    parameters.insert(text(), text());
                }
                b'K' if message.body.len() >= 4 => {
                    let (pid, secret) = message.body.split_at(4);
                    let pid = i32::from_be_bytes([pid[0], pid[1], pid[2], pid[3]]);
                    key = Some((pid, secret.to_vec()));
                }
                _ => {}
            }
        }
        Self {
            conn,
            parameters,
            key,
            greeting,
        }
    }

    /// Sends bytes.
    pub fn send(&mut self, bytes: &[u8]) {
        self.conn.send(bytes).expect("send");
    }

    /// Reads up to and with the next ReadyForQuery.
    pub fn replies(&mut self) -> Vec<Message> {
        match self.conn.recv_until(b'Z') {
            Ok(messages) => messages,
            Err(error) => panic!("no ReadyForQuery: {error}"),
        }
    }

    /// Sends a simple query and gives its replies.
    pub fn query(&mut self, sql: &str) -> Vec<Message> {
        self.send(&frontend::query(sql));
        self.replies()
    }

    /// Sends a simple query and gives its replies as lines.
    pub fn trace(&mut self, sql: &str) -> Vec<String> {
        self.query(sql).iter().map(describe).collect()
    }

    /// Sends a simple query that must not fail and gives its rows.
    pub fn rows(&mut self, sql: &str) -> Vec<Vec<Option<String>>> {
        rows_of(sql, &self.query(sql))
    }

    /// Sends a simple query and gives the one value that it must return.
    pub fn value(&mut self, sql: &str) -> String {
        let rows = self.rows(sql);
        match rows.as_slice() {
            [row] if row.len() == 1 => row[0].clone().unwrap_or_else(|| "NULL".into()),
            _ => panic!("{sql}: one value expected, got {rows:?}"),
        }
    }

    /// Sends a simple query that must fail and gives the SQLSTATE.
    pub fn sqlstate(&mut self, sql: &str) -> String {
        let replies = self.query(sql);
        let error = replies.iter().find(|message| message.tag == b'E');
        error
            .unwrap_or_else(|| panic!("{sql}: an error expected"))
            .sqlstate()
    }

    /// Sends unnamed Parse, Bind, Describe, Execute and Sync with text parameters and gives the rows.
    pub fn rows_extended(&mut self, sql: &str, values: &[&str]) -> Vec<Vec<Option<String>>> {
        let mut bytes = frontend::parse("", sql, &[]);
        bytes.extend(frontend::bind_text("", "", values));
        bytes.extend(frontend::describe(b'P', ""));
        bytes.extend(frontend::execute("", 0));
        bytes.extend(frontend::sync());
        self.send(&bytes);
        rows_of(sql, &self.replies())
    }

    /// Whether the peer has ended the session; the error fields of its last words, if any.
    pub fn farewell(&mut self) -> Result<Option<Message>, WireError> {
        let mut last = None;
        loop {
            match self.conn.recv() {
                Ok(message) if message.tag == b'E' => last = Some(message),
                Ok(_) => {}
                Err(WireError::Closed) => return Ok(last),
                Err(error) => return Err(error),
            }
        }
    }
}

fn rows_of(sql: &str, replies: &[Message]) -> Vec<Vec<Option<String>>> {
    if let Some(error) = replies.iter().find(|message| message.tag == b'E') {
        panic!("{sql}: {}", describe(error));
    }
    replies
        .iter()
        .filter(|message| message.tag == b'D')
        .map(Message::row)
        .collect()
}

fn answer(body: &[u8], login: &Login, scram: &mut ScramClient) -> Result<Option<Vec<u8>>, String> {
    let (code, rest) = body
        .split_first_chunk::<4>()
        .ok_or_else(|| "an authentication request of under 4 bytes".to_string())?;
    match u32::from_be_bytes(*code) {
        0 => Ok(None),
        3 => Ok(Some(frontend::password(&login.password))),
        5 => Ok(Some(frontend::password(&md5_password(
            &login.user,
            &login.password,
            rest,
        )))),
        10 => Ok(Some(frontend::sasl_initial(
            "SCRAM-SHA-256",
            &scram.first(),
        ))),
        11 => match scram.last(rest) {
            Some(last) => Ok(Some(frontend::sasl_response(&last))),
            None => Err("a server-first-message that makes no sense".into()),
        },
        12 if scram.accepts(rest) => Ok(None),
        12 => Err("a wrong server signature".into()),
        code => Err(format!("unknown authentication request {code}")),
    }
}
