//! A server that leaves its shard for another one.
//!
//! What it is to its shard is made of interned things (definitions, labels)
//! and of counters that the shard's tasks share. It is packed by what those
//! mean, and unpacked into what the other shard knows them by. The numbers of
//! its copies stay: no shard ever gives them again.

use super::{CancelKey, Definition, Meaning, Parameters, Prepared, Server, Slot};
use crate::link::{DetachedLink, Link};
use crate::ring::Ring;
use crate::settings::Entries;
use crate::shard::ShardPool;
use protocol::backend::TransactionStatus;
use protocol::frame::Deframer;
use protocol::ledger::Ledger;
use router::effects::Effects;
use std::rc::Rc;

/// A server between two shards. Dropping it closes the connection.
pub struct Packed {
    link: DetachedLink,
    frames: Deframer,
    settings: Entries,
    parameters: Parameters,
    statements: Vec<PackedCopy>,
    /// Whether there is, or may be, an unnamed statement.
    has_unnamed: bool,
    cancel_key: Option<CancelKey>,
}

/// A prepared statement of the server, least recently used first.
struct PackedCopy {
    meaning: Meaning,
    effects: Effects,
    number: u64,
}

impl PackedCopy {
    fn new((definition, number): (&Rc<Definition>, u64)) -> Self {
        Self {
            meaning: definition.meaning.clone(),
            effects: definition.effects,
            number,
        }
    }
}

impl Server {
    /// Whether it could serve a client of another shard as it is: it holds
    /// nothing of a client's, and no request to cancel is on its way to it.
    pub fn may_move(&self) -> bool {
        self.ledger.is_idle()
            && self.status == TransactionStatus::Idle
            && self.frames.at_boundary()
            && !self.is_suspect()
            && !self.said_goodbye
            && self.cancels.under_way() == 0
            && !self.cancels.are_lost()
    }

    /// Takes a server that may move off its ring. It comes back when it is
    /// gone, or going. Dropping the future closes the connection.
    pub async fn pack(self: Box<Self>) -> Result<Packed, Box<Self>> {
        debug_assert!(self.may_move());
        let mut server = *self;
        let link = match server.socket.detach().await {
            Ok(link) => link,
            Err(link) => {
                server.socket = link;
                return Err(Box::new(server));
            }
        };
        // What a client changed is no news from outside.
        server.parameters.take_changed();
        let Server {
            socket: _,
            frames,
            ledger: _,
            status: _,
            label,
            last_words: _,
            parameters,
            prepared,
            native: _,
            unnamed,
            suspect: _,
            pinned: _,
            tainted: _,
            said_goodbye: _,
            cancel_key,
            cancels: _,
            slot: _,
            leased: _,
            asked: _,
        } = server;
        let copies = prepared.in_order().into_iter();
        Ok(Packed {
            link,
            frames,
            settings: label.entries().clone(),
            parameters,
            statements: copies.map(PackedCopy::new).collect(),
            has_unnamed: unnamed != Slot::Empty,
            cancel_key: cancel_key.map(|key| (*key).clone()),
        })
    }
}

impl Packed {
    /// The connection alone, for a shard that has no use for the server.
    pub fn into_link(self, ring: &Ring) -> Link {
        Link::attach(ring, self.link)
    }

    /// A server of this pool, without a place in it; at rest but for what may
    /// have come meanwhile.
    pub fn unpack(self, pool: &ShardPool) -> Server {
        let mut prepared = Prepared::default();
        for copy in self.statements {
            let definition = pool.shard.adopt_definition(&copy.meaning, copy.effects);
            prepared.add(definition, copy.number);
        }
        Server {
            socket: Link::attach(&pool.shard.ring, self.link),
            frames: self.frames,
            ledger: Ledger::default(),
            status: TransactionStatus::Idle,
            label: pool.labels.intern(self.settings),
            last_words: None,
            parameters: self.parameters,
            prepared,
            native: None,
            unnamed: match self.has_unnamed {
                true => Slot::Unknown,
                false => Slot::Empty,
            },
            suspect: Effects::default(),
            pinned: false,
            tainted: false,
            said_goodbye: false,
            cancel_key: self.cancel_key.map(Rc::new),
            cancels: Rc::default(),
            slot: 0,
            leased: 0,
            asked: None,
        }
    }
}
