//! What a client asks for: requests put together at random, each bearing the client's tag.
//!
//! Nothing here says what the answer must be; the twin that talks to PostgreSQL itself is asked the same.

use tests::wire::frontend;

use crate::{extended, session, simple};
use tests::dice::Dice;

/// Bytes for the server, and how many ReadyForQuery must answer them.
#[derive(Clone, Debug, Default)]
pub struct Request {
    /// Sent first and answered, up to a description or an error, before the rest is sent. Ends in Describe and Flush.
    pub flushed: Vec<u8>,
    /// The rest.
    pub bytes: Vec<u8>,
    /// ReadyForQuery messages.
    pub ends: usize,
}

impl Request {
    /// A simple query.
    pub fn query(sql: &str) -> Self {
        Self::of(frontend::query(sql), 1)
    }

    /// Messages that end in so many ReadyForQuery.
    pub fn of(bytes: Vec<u8>, ends: usize) -> Self {
        Self {
            flushed: Vec::new(),
            bytes,
            ends,
        }
    }

    /// All of it in the order in which it is sent.
    pub fn whole(&self) -> Vec<u8> {
        [&self.flushed[..], &self.bytes].concat()
    }

    /// The messages in short, for a person.
    pub fn outline(&self) -> String {
        let whole = self.whole();
        let mut rest = whole.as_slice();
        let mut text = String::new();
        while rest.len() >= 5 {
            let length = u32::from_be_bytes([rest[1], rest[2], rest[3], rest[4]]);
            let end = rest.len().min(1 + usize::try_from(length).expect("64-bit"));
            let body = &rest[5..end];
            let shown = body.iter().take(160).map(|byte| match byte {
                b' '..=b'~' => char::from(*byte),
                _ => '·',
            });
            text.push(char::from(rest[0]));
            text.push('[');
            text.extend(shown);
            text.push_str("] ");
            rest = &rest[end..];
        }
        text
    }
}

/// One client's state of mind. It only steers the choices: that something fails is as welcome as that it works.
#[derive(Debug)]
pub struct Author {
    /// `~round.client.life~`, which no other client has.
    pub tag: String,
    /// A number that no other life has, for advisory locks.
    pub number: u64,
    /// Whether it may do what keeps a server.
    pub holding: bool,
    /// Whether its startup packet made settings, to which RESET returns.
    pub has_startup_settings: bool,
}

impl Author {
    /// A request for a client in this transaction status.
    pub fn request(&self, dice: &mut Dice, status: u8) -> Request {
        match (status, dice.below(100)) {
            (b'E', 0..60) => simple::end(dice),
            (b'T', 0..22) => simple::end(dice),
            (b'T', 22..34) => simple::savepoint(dice),
            (b'T', 34..46) => extended::portal(self, dice),
            (b'I', 0..14) => simple::begin(dice),
            (_, 92..) => self.pipeline(dice),
            _ => self.single(dice, status == b'I'),
        }
    }

    /// One thing, whatever the status. `alone`: no transaction is open and nothing follows in the same write.
    fn single(&self, dice: &mut Dice, alone: bool) -> Request {
        if self.holding && dice.chance(30) {
            return session::keep(self, dice);
        }
        match dice.below(100) {
            0..18 => simple::statement(self, dice),
            18..24 => simple::several(self, dice),
            24..38 => session::setting(self, dice, alone),
            38..48 => session::look(self, dice),
            48..58 => extended::unnamed(self, dice),
            58..80 => extended::named(self, dice),
            80..88 => simple::copy(self, dice),
            88..92 => extended::copy(self, dice),
            92..95 => simple::large(self, dice),
            95..97 => simple::notify(self, dice),
            _ => extended::function(dice),
        }
    }

    /// Several things in one write, transactions among them.
    fn pipeline(&self, dice: &mut Dice) -> Request {
        let mut all = Request::default();
        for _ in 0..2 + dice.below(6) {
            let next = match dice.below(10) {
                0 => simple::begin(dice),
                1..3 => simple::end(dice),
                3 => simple::savepoint(dice),
                _ => self.single(dice, false),
            };
            all.bytes.extend(next.whole());
            all.ends += next.ends;
        }
        all
    }

    /// A row's key: few, so that they clash.
    pub fn key(dice: &mut Dice) -> usize {
        dice.below(12)
    }
}
