//! The login as a whole: startup packets, authentication, and what a client
//! is told before its first query.

use super::authenticate::authenticate;
use super::cancel;
use super::packets::Packets;
use super::places::Place;
use super::{Refused, made_fatal, options, replicate, rules, secure};
use crate::auth::Source;
use crate::limits::NAME_BYTES;
use crate::link::Link;
use crate::replication::Replication;
use crate::server::{Server, Slot};
use crate::settings::{self, Label};
use crate::shard::{About, CancelSecret, Control, Doing, Key, Shard, ShardPool, Wishes, bump};
use crate::snapshot::Database;
use protocol::backend::{
    Authentication, BackendKeyData, NegotiateProtocolVersion, ReadyForQuery, TransactionStatus,
};
use protocol::encode::EncodeError;
use protocol::error::{ErrorFields, SqlState};
use protocol::list::List;
use protocol::startup::{ProtocolVersion, Startup, StartupPacket};
use std::rc::Rc;
use std::sync::Arc;

/// A client that is logged in.
pub(super) enum Greeted {
    /// For a session.
    Session {
        pool: Rc<ShardPool>,
        label: Rc<Label>,
        entered: Entered,
    },
    /// For a server of its own.
    Replication(Box<Replication>),
}

/// A client's place among the shard's clients; given up when dropped.
pub(crate) struct Entered {
    pub(super) shard: Rc<Shard>,
    pub(super) slot: u32,
    /// Its place among all clients. It has gone along when the client has moved.
    pub(super) place: Option<Place>,
    /// Its handle for others.
    pub control: Rc<Control>,
}

impl Entered {
    /// Its place among the clients of its shard.
    pub(crate) fn slot(&self) -> u32 {
        self.slot
    }

    /// Users have been taken out of the configuration: is this one of them?
    pub(crate) fn check_user(&self) {
        self.control.unwant(Wishes::CHECK);
        let lists = |user| self.shard.config().auth.lists(user);
        if self.user().is_some_and(|user| !lists(user)) {
            self.control.want(Wishes::REMOVED);
        }
    }

    /// Whom it has proved to be.
    pub(crate) fn user(&self) -> Option<&[u8]> {
        self.place.as_ref().map(Place::user)
    }

    /// Enters a client that is about to be told how to cancel its queries:
    /// the `BackendKeyData` for it goes to `out`.
    pub(super) fn new(
        shard: &Rc<Shard>,
        version: ProtocolVersion,
        place: Place,
        pool: &ShardPool,
        source: Source,
        out: &mut Vec<u8>,
    ) -> Result<Self, Refused> {
        let secret = if version >= ProtocolVersion::V3_2 {
            CancelSecret::long()
        } else {
            CancelSecret::short()
        };
        let shown = secret.clone();
        let about = About::new(&place, source);
        let now = shard.ring.micros();
        let clients = &shard.clients;
        let (slot, control) = clients.enter(Key::Own(secret), pool.index(), about, now);
        let entered = Self {
            shard: Rc::clone(shard),
            slot,
            place: Some(place),
            control,
        };
        if pool.is_removed() {
            entered.control.want(Wishes::REMOVED);
        }
        let key = BackendKeyData {
            pid: shard.process_ids.of(shard.id, slot),
            key: shown.expose(),
        };
        key.encode(out).map_err(unwritable)?;
        Ok(entered)
    }
}

/// What a startup packet asks for.
enum Asked {
    Encryption { tls: bool },
    Cancel(cancel::Asked),
    Session(Result<Wish, Refused>),
}

pub(super) struct Wish {
    version: ProtocolVersion,
    user: Vec<u8>,
    database: Option<Vec<u8>>,
    pub(super) settings: settings::Entries,
    replication: replicate::Kind,
    /// To be sent before anything else, if not empty.
    negotiation: Vec<u8>,
}

/// What a connection is for.
pub(super) enum Heard {
    /// To cancel a query.
    Cancel(cancel::Asked),
    /// A session; what has been read behind the startup packet.
    Wish(Box<Wish>, Vec<u8>),
}

/// From the startup packet to `ReadyForQuery`.
pub(super) async fn log_in(
    shard: &Rc<Shard>,
    socket: &Link,
    source: Source,
    wish: Wish,
    unread: Vec<u8>,
) -> Result<Greeted, Refused> {
    let local = source == Source::Local;
    secure::demand(shard, socket, local, &wish.user)?;
    let mut packets = Packets::new(socket, unread);
    socket.write(&wish.negotiation);
    // Which database there is nobody is told before it has proved who it is.
    let group = group_of(shard, &wish).ok();
    let config = shard.config();
    let default = || config.groups[config.default_group].name.as_bytes();
    let database = wish.database.as_deref().unwrap_or_else(default);
    let physical = wish.replication == replicate::Kind::Physical;
    let method = rules::method(shard, socket, source, &wish.user, database, physical)?;
    let user = &wish.user[..];
    let number = group.as_ref().map(|group| group.id);
    let proving = authenticate(shard, socket, &mut packets, method, number, user);
    let proved = Box::pin(proving).await?;
    packets.finish();
    // The configuration may have changed meanwhile.
    let config = shard.config();
    if let (Some(group), false) = (group, config.auth.enabled) {
        rules::only_as(&group.user, user)?;
    }
    write(socket, |out| Authentication::Ok.encode(out))?;

    let group = group_of(shard, &wish)?;
    shard.maintenance.permit(shard, group.id)?;
    let place = shard.places.take(&config, user, &group);
    let place = place.inspect_err(|_| bump(&shard.counters.limit_refusals))?;
    let pool = match group.passthrough {
        true => shard.role_pool(&group, user, proved.keys)?,
        false => shard.pool(group.id).ok_or_else(|| unknown(&group.name))?,
    };
    if let Some(value) = wish.replication.value() {
        let replication = Box::pin(replicate::begin(&pool, value, &wish.settings)).await?;
        let mut out = replication.greeting().map_err(unwritable)?;
        let entered = Entered::new(shard, wish.version, place, &pool, source, &mut out)?;
        let now = shard.ring.micros();
        shard
            .clients
            .note(&entered.control, Doing::REPLICATING, now);
        be_ready(&mut out)?;
        socket.write(&out);
        return Ok(Greeted::Replication(Box::new(replication.of(entered))));
    }
    let label = pool.labels.intern(wish.settings);
    let report = match label.report() {
        Some(report) => report,
        None => match shard.reports.find(pool.id(), &label) {
            Some(report) => {
                let report: Rc<[u8]> = report.into();
                label.set_report(Rc::clone(&report));
                report
            }
            None => Box::pin(learn_report(shard, &pool, &label)).await?,
        },
    };
    socket.write(&report);
    let mut out = Vec::new();
    let entered = Entered::new(shard, wish.version, place, &pool, source, &mut out)?;
    be_ready(&mut out)?;
    socket.write(&out);
    Ok(Greeted::Session {
        pool,
        label,
        entered,
    })
}

fn group_of(shard: &Shard, wish: &Wish) -> Result<Arc<Database>, Refused> {
    let config = shard.config();
    let default = || config.default_database().cloned();
    let Some(name) = &wish.database else {
        return default().ok_or_else(|| unknown(""));
    };
    let named = std::str::from_utf8(name).ok();
    match named.and_then(|name| config.database_named(name)) {
        Some(group) => Ok(Arc::clone(group)),
        // What libpq calls the database of a client that replicates a whole
        // cluster.
        None if wish.replication == replicate::Kind::Physical && name == b"replication" => {
            default().ok_or_else(|| unknown(""))
        }
        None => Err(unknown(&String::from_utf8_lossy(name))),
    }
}

fn unknown(name: &str) -> Refused {
    let text = format!("database \"{name}\" does not exist");
    Refused::fatal(SqlState::INVALID_CATALOG_NAME, &text)
}

fn be_ready(out: &mut Vec<u8>) -> Result<(), Refused> {
    let status = TransactionStatus::Idle;
    ReadyForQuery { status }.encode(out).map_err(unwritable)
}

/// Reads packets until one says what is wanted. Encryption is begun or refused,
/// each kind once.
pub(super) async fn hear(
    shard: &Shard,
    socket: &mut Link,
    source: Source,
) -> Result<Heard, Refused> {
    // A connection that never leaves the machine needs no TLS.
    let local = source == Source::Local;
    let acceptor = secure::acceptor(shard, local);
    let mut unread = Vec::new();
    let mut asked_before = [false; 2];
    if let Some(acceptor) = &acceptor {
        let mut packets = Packets::new(socket, unread);
        let direct = packets.first_byte().await? == secure::DIRECT;
        unread = packets.into_bytes();
        if direct {
            let first = std::mem::take(&mut unread);
            Box::pin(secure::directly(shard, socket, acceptor, first)).await?;
            asked_before[1] = true;
        }
    }
    loop {
        let mut packets = Packets::new(socket, unread);
        let asked = packets.startup(read).await?;
        unread = packets.into_bytes();
        match asked {
            Asked::Session(wish) => {
                let wish = wish?;
                if shard.drain.is_given() {
                    // As PostgreSQL, which goes on to take cancel requests too.
                    return Err(Refused::fatal(
                        SqlState::CANNOT_CONNECT_NOW,
                        "the database system is shutting down",
                    ));
                }
                if shard.memory.is_tight() {
                    bump(&shard.counters.memory_refusals);
                    return Err(Refused::fatal(
                        SqlState::OUT_OF_MEMORY,
                        "pgmux is short of memory and takes no new clients for now",
                    ));
                }
                shard.maintenance.permit_any(shard)?;
                replicate::permit(shard, wish.replication)?;
                return Ok(Heard::Wish(Box::new(wish), unread));
            }
            Asked::Cancel(asked) => return Ok(Heard::Cancel(asked)),
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
                        Box::pin(secure::on_request(shard, socket, acceptor, &unread)).await?;
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
        StartupPacket::Cancel(request) => Asked::Cancel(cancel::Asked {
            pid: request.pid,
            key: request.key.into(),
        }),
        StartupPacket::Startup(startup) => Asked::Session(wish(&startup)),
    }
}

fn wish(startup: &Startup<'_>) -> Result<Wish, Refused> {
    let replication = replicate::Kind::read(startup.replication())?;
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
        version: startup.version.min(ProtocolVersion::V3_2),
        replication,
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

/// pgmux speaks 3.2 by itself, whatever its servers do: what is new in it are
/// the cancel keys, which are pgmux's own. 3.1 is no version; PostgreSQL 18
/// takes it for 3.0, and so does pgmux.
fn negotiation(startup: &Startup<'_>) -> Result<Vec<u8>, Refused> {
    let mut out = Vec::new();
    if startup.needs_negotiation(ProtocolVersion::V3_2) {
        let options: Vec<&[u8]> = startup.protocol_options().collect();
        let message = NegotiateProtocolVersion {
            // As `SendNegotiateProtocolVersion` of PostgreSQL 18: what will be spoken.
            newest: startup.version.min(ProtocolVersion::V3_2),
            options: List::new(&options),
        };
        message.encode(&mut out).map_err(unwritable)?;
    }
    Ok(out)
}

/// What a server with this label reports. It takes a server once; later
/// clients with the same label are told the same.
async fn learn_report(
    shard: &Shard,
    pool: &Rc<ShardPool>,
    label: &Rc<Label>,
) -> Result<Rc<[u8]>, Refused> {
    let server = pool
        .lease()
        .await
        .map_err(|refusal| Refused::fatal(refusal.code, &refusal.message))?;
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
    shard.reports.remember(pool.id(), label, &out);
    let report: Rc<[u8]> = out.into();
    label.set_report(Rc::clone(&report));
    Ok(report)
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
