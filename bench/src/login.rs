//! A PostgreSQL login, and nothing after it: the client that only sits there.

use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use bytes::BytesMut;
use postgres_protocol::IsNull;
use postgres_protocol::authentication::md5_hash;
use postgres_protocol::authentication::sasl::{ChannelBinding, SCRAM_SHA_256, ScramSha256};
use postgres_protocol::message::backend::{AuthenticationSaslBody, Message};
use postgres_protocol::message::frontend;
use socket2::{Domain, SockAddr, Socket, Type};

use crate::certificate::Line;
use crate::dsn::Dsn;
use crate::target::Mode;

/// A client that has logged in. It owns its socket and hardly more, so that thousands fit: one that came by TLS
/// has forgotten its keys and can only sit there.
#[derive(Debug)]
pub struct Session {
    socket: Socket,
    pid: u32,
    tls: bool,
}

impl Session {
    /// Logs in, from a source address of its own if one is given.
    pub fn open(dsn: &Dsn, source: Option<Ipv4Addr>) -> Result<Self> {
        let socket = connect(dsn, source)?;
        socket.set_read_timeout(Some(LOGIN_LIMIT))?;
        let line = match &dsn.ca {
            Some(ca) => Line::secured(socket, ca)?,
            None => Line::Clear(socket),
        };
        let mut login = Login {
            line,
            dsn,
            unread: BytesMut::new(),
            pid: 0,
        };
        login.run()?;
        Ok(Self {
            tls: dsn.ca.is_some(),
            socket: login.line.into_socket(),
            pid: login.pid,
        })
    }

    /// The shard of pgmux that it is on, from 0; pgmux says it in the process id.
    pub fn shard(&self) -> u32 {
        (self.pid >> SLOT_BITS).saturating_sub(1)
    }

    /// Whether the other side still holds it open and has said nothing more.
    pub fn is_quiet(&self) -> bool {
        if self.socket.set_nonblocking(true).is_err() {
            return false;
        }
        // A byte is either a FATAL or the end, both of which an idle client should never see.
        let mut byte = [0u8];
        matches!((&self.socket).read(&mut byte), Err(e) if e.kind() == ErrorKind::WouldBlock)
    }

    /// Asks something small and waits for the answer.
    pub fn ask(&self) -> Result<()> {
        self.ask_by(Mode::Simple)
    }

    /// The same in one of pgbench's modes; for `prepared`, [`Session::prepare`] goes before the first time.
    pub fn ask_by(&self, mode: Mode) -> Result<()> {
        self.exchange(&question(mode)?)
    }

    /// Has the server do nothing for so long, and waits for the answer.
    pub fn ask_to_sleep(&self, time: Duration) -> Result<()> {
        let mut out = BytesMut::new();
        frontend::query(
            &format!("select pg_sleep({})", time.as_secs_f64()),
            &mut out,
        )?;
        self.exchange(&out)
    }

    /// Prepares the question, anew if it is there.
    pub fn prepare(&self) -> Result<()> {
        let mut out = BytesMut::new();
        frontend::close(b'S', STATEMENT, &mut out)?;
        frontend::parse(STATEMENT, QUESTION, [], &mut out)?;
        frontend::sync(&mut out);
        self.exchange(&out)
    }

    /// Sends a request and waits until the other side is ready for the next.
    fn exchange(&self, request: &[u8]) -> Result<()> {
        if self.tls {
            bail!("a session by TLS is only for sitting there");
        }
        (&self.socket).write_all(request)?;
        let mut unread = BytesMut::new();
        let mut chunk = [0u8; 1024];
        loop {
            while let Some(message) = Message::parse(&mut unread)? {
                match message {
                    Message::ReadyForQuery(_) => return Ok(()),
                    Message::ErrorResponse(body) => bail!("refused: {}", error_text(&body)?),
                    _ => {}
                }
            }
            let read = (&self.socket)
                .read(&mut chunk)
                .context("waiting for an answer")?;
            if read == 0 {
                bail!("the target closed the connection");
            }
            unread.extend_from_slice(&chunk[..read]);
        }
    }

    /// Says goodbye; the socket closes on drop.
    pub fn close(self) {
        if self.tls {
            return;
        }
        let mut out = BytesMut::new();
        frontend::terminate(&mut out);
        let _ = (&self.socket).write_all(&out);
    }
}

fn question(mode: Mode) -> Result<BytesMut> {
    let mut out = BytesMut::new();
    let statement = match mode {
        Mode::Simple => {
            frontend::query(QUESTION, &mut out)?;
            return Ok(out);
        }
        Mode::Extended => {
            frontend::parse("", QUESTION, [], &mut out)?;
            ""
        }
        Mode::Prepared => STATEMENT,
    };
    let no_value = |(), _: &mut BytesMut| Ok(IsNull::Yes);
    let bound = frontend::bind("", statement, [], [], no_value, [], &mut out);
    if bound.is_err() {
        bail!("a Bind without values cannot be written");
    }
    frontend::execute("", 0, &mut out)?;
    frontend::sync(&mut out);
    Ok(out)
}

struct Login<'a> {
    line: Line,
    dsn: &'a Dsn,
    unread: BytesMut,
    pid: u32,
}

impl Login<'_> {
    fn run(&mut self) -> Result<()> {
        let mut out = BytesMut::new();
        let parameters = [
            ("user", self.dsn.user.as_str()),
            ("database", self.dsn.database.as_str()),
            ("application_name", "pgmux-idle"),
        ];
        frontend::startup_message(parameters, &mut out)?;
        self.line.write_all(&out)?;
        loop {
            match self.message()? {
                Message::AuthenticationCleartextPassword => {
                    let password = self.secret()?.to_owned();
                    self.password(&password)?;
                }
                Message::AuthenticationMd5Password(body) => {
                    let user = self.dsn.user.as_bytes();
                    let hash = md5_hash(user, self.secret()?.as_bytes(), body.salt());
                    self.password(&hash)?;
                }
                Message::AuthenticationSasl(body) => self.scram(&body)?,
                Message::ReadyForQuery(_) => return Ok(()),
                Message::ErrorResponse(body) => bail!("refused: {}", error_text(&body)?),
                Message::BackendKeyData(body) => self.pid = body.process_id() as u32,
                // AuthenticationOk, ParameterStatus, NoticeResponse.
                _ => {}
            }
        }
    }

    fn secret(&self) -> Result<&str> {
        let password = self.dsn.password.as_deref();
        password.context("the target asks for a password and none was given")
    }

    fn password(&mut self, password: &str) -> Result<()> {
        let mut out = BytesMut::new();
        frontend::password_message(password.as_bytes(), &mut out)?;
        self.line.write_all(&out)?;
        Ok(())
    }

    fn scram(&mut self, body: &AuthenticationSaslBody) -> Result<()> {
        use postgres_protocol::message::backend::Message as M;
        let mut offered = false;
        let mut mechanisms = body.mechanisms();
        while let Some(name) = fallible_next(&mut mechanisms)? {
            offered |= name == SCRAM_SHA_256;
        }
        if !offered {
            bail!("the target offers no {SCRAM_SHA_256}");
        }
        let mut scram = ScramSha256::new(self.secret()?.as_bytes(), ChannelBinding::unsupported());
        let mut out = BytesMut::new();
        frontend::sasl_initial_response(SCRAM_SHA_256, scram.message(), &mut out)?;
        self.line.write_all(&out)?;
        let M::AuthenticationSaslContinue(body) = self.reply()? else {
            bail!("the target left the SASL exchange");
        };
        scram.update(body.data())?;
        out.clear();
        frontend::sasl_response(scram.message(), &mut out)?;
        self.line.write_all(&out)?;
        let M::AuthenticationSaslFinal(body) = self.reply()? else {
            bail!("the target left the SASL exchange");
        };
        scram.finish(body.data())?;
        Ok(())
    }

    /// The next message, with an ErrorResponse made an error.
    fn reply(&mut self) -> Result<Message> {
        match self.message()? {
            Message::ErrorResponse(body) => bail!("refused: {}", error_text(&body)?),
            message => Ok(message),
        }
    }

    fn message(&mut self) -> Result<Message> {
        let mut chunk = [0u8; 1024];
        loop {
            if let Some(message) = Message::parse(&mut self.unread)? {
                return Ok(message);
            }
            let read = self.line.read(&mut chunk).context("waiting for a login")?;
            if read == 0 {
                bail!("the target closed the connection during login");
            }
            self.unread.extend_from_slice(&chunk[..read]);
        }
    }
}

pub(crate) fn connect(dsn: &Dsn, source: Option<Ipv4Addr>) -> Result<Socket> {
    let (domain, address) = if dsn.host.starts_with('/') {
        let path = Path::new(&dsn.host).join(format!(".s.PGSQL.{}", dsn.port));
        (Domain::UNIX, SockAddr::unix(path)?)
    } else {
        let ip = match dsn.host.as_str() {
            "localhost" => IpAddr::V4(Ipv4Addr::LOCALHOST),
            host => host.parse().context("the host must be an address")?,
        };
        let address = SocketAddr::new(ip, dsn.port);
        (Domain::for_address(address), address.into())
    };
    let socket = Socket::new(domain, Type::STREAM, None).context("open a socket")?;
    if let Some(source) = source.filter(|_| domain == Domain::IPV4) {
        socket.bind(&SocketAddr::from((source, 0)).into())?;
    }
    socket
        .connect(&address)
        .with_context(|| format!("connect to {dsn:?}"))?;
    Ok(socket)
}

fn error_text(body: &postgres_protocol::message::backend::ErrorResponseBody) -> Result<String> {
    let mut fields = body.fields();
    let mut text = String::new();
    while let Some(field) = fallible_next(&mut fields)? {
        if matches!(field.type_(), b'C' | b'M') {
            text.push_str(&String::from_utf8_lossy(field.value_bytes()));
            text.push(' ');
        }
    }
    Ok(text.trim_end().to_owned())
}

/// postgres-protocol's iterators may fail; this names the trait's method once.
fn fallible_next<I>(iterator: &mut I) -> Result<Option<I::Item>>
where
    I: fallible_iterator::FallibleIterator<Error = std::io::Error>,
{
    Ok(iterator.next()?)
}

/// The bits of pgmux's process ids that are not the shard's.
const SLOT_BITS: u32 = 20;
const QUESTION: &str = "select 1";
/// The name under which it is prepared.
const STATEMENT: &str = "question";
/// A login takes milliseconds; a target that queues logins behind each other may take longer.
const LOGIN_LIMIT: Duration = Duration::from_secs(20);
