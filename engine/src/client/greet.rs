//! The login as a whole: startup packets, authentication, and what a client
//! is told before its first query.

use super::authenticate::authenticate;
use super::packets::Packets;
use super::{Refused, made_fatal, options, secure};
use crate::limits::{CANCEL, NAME_BYTES};
use crate::link::Link;
use crate::random;
use crate::server::{Server, Slot};
use crate::session::Session;
use crate::settings::{self, Label};
use crate::shard::{Control, Mail, Shard, ShardPool};
use protocol::backend::{
    Authentication, BackendKeyData, NegotiateProtocolVersion, ReadyForQuery, TransactionStatus,
};
use protocol::encode::EncodeError;
use protocol::error::{ErrorFields, SqlState};
use protocol::list::List;
use protocol::startup::{ProtocolVersion, Startup, StartupPacket};
use std::rc::Rc;
use std::task::Poll;
use std::time::Instant;

/// A client that is logged in.
pub(super) struct Greeted {
    pool: Rc<ShardPool>,
    label: Rc<Label>,
    entered: Entered,
}

/// A client's place among the shard's clients; given up when dropped.
pub(crate) struct Entered {
    shard: Rc<Shard>,
    slot: u32,
    /// Its handle for others.
    pub control: Rc<Control>,
}

impl Drop for Entered {
    fn drop(&mut self) {
        self.shard.clients.leave(self.slot);
    }
}

impl Greeted {
    pub(super) fn into_session(self, shard: Rc<Shard>, socket: Link) -> Box<Session> {
        Session::new(shard, socket, self.pool, self.label, self.entered)
    }
}

/// What a startup packet asks for.
enum Asked {
    Encryption { tls: bool },
    Cancel { pid: u32, secret: Option<u32> },
    Session(Result<Wish, Refused>),
}

struct Wish {
    user: Vec<u8>,
    database: Option<Vec<u8>>,
    settings: settings::Entries,
    /// To be sent before anything else, if not empty.
    negotiation: Vec<u8>,
}

/// From the first byte to `ReadyForQuery`.
pub(super) async fn log_in(
    shard: &Rc<Shard>,
    socket: &mut Link,
    local: bool,
) -> Result<Greeted, Refused> {
    let (wish, unread) = hear(shard, socket, local).await?;
    let socket = &*socket;
    secure::demand(shard, socket, local, &wish.user)?;
    let mut packets = Packets::new(socket, unread);
    socket.write(&wish.negotiation);
    let _proved = authenticate(shard, socket, &mut packets, &wish.user).await?;
    packets.finish();
    write(socket, |out| Authentication::Ok.encode(out))?;

    let group = match &wish.database {
        None => Some(shard.config.default_group),
        Some(name) => std::str::from_utf8(name)
            .ok()
            .and_then(|name| shard.config.group(name)),
    };
    let Some(group) = group else {
        let name = wish.database.unwrap_or_default();
        let text = format!(
            "database \"{}\" does not exist",
            String::from_utf8_lossy(&name)
        );
        return Err(Refused::fatal(SqlState::INVALID_CATALOG_NAME, &text));
    };
    let pool = Rc::clone(shard.pool(group));
    let label = pool.labels.intern(wish.settings);
    let report = match label.report() {
        Some(report) => report,
        None => match shard.reports.find(group, &label) {
            Some(report) => {
                let report: Rc<[u8]> = report.into();
                label.set_report(Rc::clone(&report));
                report
            }
            None => learn_report(shard, group, &label).await?,
        },
    };
    let secret = u32::from_ne_bytes(random::array());
    let (slot, control) = shard.clients.enter(secret);
    let entered = Entered {
        shard: Rc::clone(shard),
        slot,
        control,
    };
    socket.write(&report);
    let key = &secret.to_be_bytes()[..];
    write(socket, |out| {
        BackendKeyData {
            pid: pid_of(shard.id, slot),
            key,
        }
        .encode(out)
    })?;
    write(socket, |out| {
        ReadyForQuery {
            status: TransactionStatus::Idle,
        }
        .encode(out)
    })?;
    Ok(Greeted {
        pool,
        label,
        entered,
    })
}

/// Reads packets until one asks for a session, and says what has been read
/// behind that. Encryption is begun or refused, each kind once; a request to
/// cancel is passed on.
async fn hear(shard: &Shard, socket: &mut Link, local: bool) -> Result<(Wish, Vec<u8>), Refused> {
    let acceptor = secure::acceptor(shard, local);
    let mut unread = Vec::new();
    let mut asked_before = [false; 2];
    if let Some(acceptor) = &acceptor {
        let mut packets = Packets::new(socket, unread);
        let direct = packets.first_byte().await? == secure::DIRECT;
        unread = packets.into_bytes();
        if direct {
            secure::directly(shard, socket, acceptor, std::mem::take(&mut unread)).await?;
            asked_before[1] = true;
        }
    }
    loop {
        let mut packets = Packets::new(socket, unread);
        let asked = packets.startup(read).await?;
        unread = packets.into_bytes();
        match asked {
            Asked::Session(wish) => return wish.map(|wish| (wish, unread)),
            Asked::Cancel { pid, secret } => {
                pass_on(shard, pid, secret).await;
                return Err(Refused::Silently);
            }
            Asked::Encryption { tls } => {
                if std::mem::replace(&mut asked_before[usize::from(tls)], true) {
                    // PostgreSQL takes a second request for a protocol version.
                    return Err(Refused::fatal(
                        SqlState::FEATURE_NOT_SUPPORTED,
                        "unsupported frontend protocol 1234",
                    ));
                }
                match &acceptor {
                    Some(acceptor) if tls => {
                        secure::on_request(shard, socket, acceptor, &unread).await?;
                    }
                    _ => socket.write(b"N"),
                }
            }
        }
    }
}

fn read(packet: StartupPacket<'_>) -> Asked {
    match packet {
        StartupPacket::Ssl => Asked::Encryption { tls: true },
        StartupPacket::GssEnc => Asked::Encryption { tls: false },
        StartupPacket::Cancel(request) => {
            let secret = request.key.try_into().ok().map(u32::from_be_bytes);
            Asked::Cancel {
                pid: request.pid,
                secret,
            }
        }
        StartupPacket::Startup(startup) => Asked::Session(wish(&startup)),
    }
}

fn wish(startup: &Startup<'_>) -> Result<Wish, Refused> {
    if startup
        .replication()
        .is_some_and(|value| !matches!(value, b"false" | b"off" | b"no" | b"0"))
    {
        return Err(Refused::fatal(
            SqlState::FEATURE_NOT_SUPPORTED,
            "replication connections do not go through pgmux",
        ));
    }
    let mut settings = Vec::new();
    if let Some(switches) = startup.options() {
        settings = options::parse(switches).map_err(|fault| wrong_switch(&fault))?;
    }
    let ours = |name: &[u8]| {
        matches!(name, b"user" | b"database" | b"options" | b"replication")
            || name.starts_with(b"_pq_.")
    };
    let parameters = startup.parameters().filter(|(name, _)| !ours(name));
    settings.extend(parameters.map(|(name, value)| (options::fold(name, false), value.into())));
    Ok(Wish {
        user: cut(startup.user()),
        database: startup
            .get(b"database")
            .filter(|name| !name.is_empty())
            .map(cut),
        settings,
        negotiation: negotiation(startup)?,
    })
}

fn wrong_switch(fault: &options::Fault) -> Refused {
    let mut fields = ErrorFields::fatal(SqlState::SYNTAX_ERROR, &fault.message);
    fields.hint = fault.hint;
    let mut out = Vec::new();
    // A startup packet is short, and `encode` cuts at a NUL.
    let _ = fields.encode(&mut out);
    Refused::Saying(out)
}

/// Names are cut to `NAMEDATALEN` - 1, as PostgreSQL does.
fn cut(name: &[u8]) -> Vec<u8> {
    name[..name.len().min(NAME_BYTES)].to_vec()
}

fn negotiation(startup: &Startup<'_>) -> Result<Vec<u8>, Refused> {
    let mut out = Vec::new();
    if startup.needs_negotiation(ProtocolVersion::V3_0) {
        let options: Vec<&[u8]> = startup.protocol_options().collect();
        let message = NegotiateProtocolVersion {
            newest: ProtocolVersion::V3_0,
            options: List::new(&options),
        };
        message.encode(&mut out).map_err(unwritable)?;
    }
    Ok(out)
}

/// What a server with this label reports. It takes a server once; later
/// clients with the same label are told the same.
async fn learn_report(shard: &Shard, group: usize, label: &Rc<Label>) -> Result<Rc<[u8]>, Refused> {
    let pool = shard.pool(group);
    let server = lease(pool).await?;
    let mut held = Held {
        pool,
        server: Some(server),
    };
    let lost = || {
        Refused::fatal(
            SqlState::CONNECTION_FAILURE,
            "the connection to the server was lost",
        )
    };
    let server = held.server.as_mut().ok_or_else(lost)?;
    let answer = if Rc::ptr_eq(&server.label, label) {
        Default::default()
    } else {
        let mut out = Vec::new();
        settings::change(&server.label, label, &mut out, &mut server.ledger).map_err(unwritable)?;
        server.unnamed = Slot::Unknown;
        server.socket.write(&out);
        server.settle().await.map_err(|_| lost())?
    };
    if let Some(error) = answer.error {
        // Nothing of it was applied: all was one transaction.
        return Err(Refused::Saying(made_fatal(&error)));
    }
    server.label = Rc::clone(label);
    let mut out = Vec::new();
    server.parameters.encode(&mut out).map_err(unwritable)?;
    shard.reports.remember(group, label, &out);
    let report: Rc<[u8]> = out.into();
    label.set_report(Rc::clone(&report));
    Ok(report)
}

async fn lease(pool: &Rc<ShardPool>) -> Result<Box<Server>, Refused> {
    let mut seat = None;
    let leased = std::future::poll_fn(|cx| {
        let Some(seat) = &mut seat else {
            return match pool.acquire(&mut seat, cx.waker()) {
                Some(server) => Poll::Ready(Ok(server)),
                None => Poll::Pending,
            };
        };
        seat.take().map_or(Poll::Pending, Poll::Ready)
    });
    leased
        .await
        .map_err(|refusal| Refused::fatal(refusal.code, &refusal.message))
}

/// Gives the server back, however the login ends.
struct Held<'a> {
    pool: &'a Rc<ShardPool>,
    server: Option<Box<Server>>,
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        match self.server.take() {
            Some(server) if server.is_at_rest() => self.pool.release(server),
            Some(server) => self.pool.discard(server),
            None => {}
        }
    }
}

fn write(
    socket: &Link,
    encode: impl FnOnce(&mut Vec<u8>) -> Result<(), EncodeError>,
) -> Result<(), Refused> {
    let mut out = Vec::new();
    encode(&mut out).map_err(unwritable)?;
    socket.write(&out);
    Ok(())
}

fn unwritable(error: EncodeError) -> Refused {
    Refused::fatal(SqlState::INVALID_PARAMETER_VALUE, error.text())
}

/// The process id that a client is told: its shard and its place in it, so
/// that a request to cancel finds it without a search. Never 0, and positive
/// as a signed number, which some drivers take it for.
fn pid_of(shard: usize, slot: u32) -> u32 {
    let shard = u32::try_from(shard).unwrap_or(0) + 1;
    (shard << SLOT_BITS | slot & SLOT_MASK) & 0x7FFF_FFFF
}

/// Passes a cancel request on to the shard that the process id names, and
/// waits until it can hit nothing any more: a client that waits for the end
/// of the connection, as libpq does, may then safely ask its next question.
/// Whether the request was right nobody is told.
async fn pass_on(shard: &Shard, pid: u32, secret: Option<u32>) {
    crate::shard::bump(&shard.counters.cancels);
    let (Some(secret), Some(target)) = (secret, (pid >> SLOT_BITS).checked_sub(1)) else {
        return;
    };
    let delivered = shard.until_dropped(|guard| {
        let mail = Mail::Cancel {
            slot: pid & SLOT_MASK,
            secret,
            guard,
        };
        shard.post(target as usize, mail);
    });
    // A server that does not take the request must not hold this up.
    let deadline = Some(Instant::now() + CANCEL);
    let _ = shard.ring.until(deadline, delivered).await;
}

/// A million clients a shard, and 2,047 shards.
const SLOT_BITS: u32 = 20;
const SLOT_MASK: u32 = (1 << SLOT_BITS) - 1;
