//! The deframer: finds where messages begin and end without needing their bodies in memory.
//!
//! Spec: protocol-overview, messaging overview.
//!
//! ```text
//!   | tag | length (counts itself) | body .......... | tag | ...
//!     1B    4B                       length - 4
//! ```
//!
//! It looks at whatever bytes are at hand and says what stands at their start. A header may come
//! in any number of pieces; up to four of its bytes are kept here, bodies never are.

use std::fmt;

use crate::tag::{BackendTag, FrontendTag};

/// Whose messages are being read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// A client's.
    Frontend,
    /// A server's.
    Backend,
}

/// Hops over the messages of one direction of one connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Deframer {
    /// Body bytes of the current message that have not been seen yet.
    body_remaining: u32,
    /// The first `partial_len` bytes of a header whose end has not come; once the borders are lost,
    /// the length word that lost them.
    partial: [u8; 4],
    /// 0..=4, and 0 while `body_remaining` is not 0; or [`LOST`].
    partial_len: u8,
    /// The letter that lost the borders.
    lost_tag: u8,
    side: Side,
}

impl Deframer {
    /// Starts at the border between two messages.
    pub const fn new(side: Side) -> Self {
        Self {
            body_remaining: 0,
            partial: [0; 4],
            partial_len: 0,
            lost_tag: 0,
            side,
        }
    }

    /// Looks at the start of `input`, and consumes at most one header or one piece of a body.
    ///
    /// An error is final: the stream has lost its borders and must be closed. Every later call
    /// gives the same error, and [`at_boundary`](Self::at_boundary) is never true again.
    #[inline]
    pub fn step(&mut self, input: &[u8]) -> Result<Step, FrameError> {
        if self.body_remaining != 0 {
            return Ok(self.step_body(input.len()));
        }
        match input.first_chunk::<HEADER_LEN>() {
            Some(header) if self.partial_len == 0 => self.open(*header, HEADER_LEN, 0),
            _ => self.step_partial(input),
        }
    }

    /// A message that stands whole at the start of `input`, without moving past it. `None` also where
    /// there is something wrong, or the rest of an earlier message: [`step`](Self::step) tells.
    #[inline]
    pub fn whole(&self, input: &[u8]) -> Option<Head> {
        if !self.at_boundary() {
            return None;
        }
        let &[tag, ref length @ ..] = input.first_chunk::<HEADER_LEN>()?;
        let length = u32::from_be_bytes(*length);
        if length < LENGTH_MIN || length > length_max(self.side, tag) {
            return None;
        }
        // The letter is not counted.
        (input.len() > widen(length)).then_some(Head {
            tag,
            body_len: length.saturating_sub(LENGTH_MIN),
            consumed: HEADER_LEN,
            carried: 0,
        })
    }

    #[inline]
    fn step_body(&mut self, available: usize) -> Step {
        let available = u32::try_from(available).unwrap_or(u32::MAX);
        let len = available.min(self.body_remaining);
        if len == 0 {
            return Step::Starved { consumed: 0 };
        }
        self.body_remaining = self.body_remaining.saturating_sub(len);
        Step::Body {
            len: widen(len),
            last: self.body_remaining == 0,
        }
    }

    /// A header that comes in pieces.
    #[cold]
    fn step_partial(&mut self, input: &[u8]) -> Result<Step, FrameError> {
        let carried = self.partial_len;
        if carried == LOST {
            let length = u32::from_be_bytes(self.partial);
            return Err(refuse(self.side, self.lost_tag, length));
        }
        let mut header = [0; HEADER_LEN];
        let mut filled = 0_usize;
        let kept = self.partial.iter().take(usize::from(carried));
        for (slot, byte) in header.iter_mut().zip(kept.chain(input)) {
            *slot = *byte;
            filled = filled.saturating_add(1);
        }
        let consumed = filled.saturating_sub(usize::from(carried));
        if filled == HEADER_LEN {
            self.partial_len = 0;
            return self.open(header, consumed, carried);
        }
        let [a, b, c, d, _] = header;
        // Like PostgreSQL, which does not wait for the length of a message that it does not know.
        if filled != 0 && length_max(self.side, a) == 0 {
            return Err(self.lose(a, 0));
        }
        self.partial = [a, b, c, d];
        self.partial_len = u8::try_from(filled).unwrap_or_default();
        Ok(Step::Starved { consumed })
    }

    #[inline]
    fn open(
        &mut self,
        header: [u8; HEADER_LEN],
        consumed: usize,
        carried: u8,
    ) -> Result<Step, FrameError> {
        let [tag, length @ ..] = header;
        let length = u32::from_be_bytes(length);
        if length < LENGTH_MIN || length > length_max(self.side, tag) {
            return Err(self.lose(tag, length));
        }
        self.body_remaining = length.saturating_sub(LENGTH_MIN);
        Ok(Step::Head(Head {
            tag,
            body_len: self.body_remaining,
            consumed,
            carried,
        }))
    }

    #[cold]
    fn lose(&mut self, tag: u8, length: u32) -> FrameError {
        self.lost_tag = tag;
        self.partial = length.to_be_bytes();
        self.partial_len = LOST;
        refuse(self.side, tag, length)
    }

    /// No partial header is kept and no body is outstanding.
    #[inline]
    pub const fn at_boundary(&self) -> bool {
        self.body_remaining == 0 && self.partial_len == 0
    }

    /// Body bytes of the current message that have not been seen yet.
    #[inline]
    pub const fn body_remaining(&self) -> u32 {
        self.body_remaining
    }

    /// Whose messages are being read.
    #[inline]
    pub const fn side(&self) -> Side {
        self.side
    }

    /// The bytes of a header whose end has not come: at most four.
    pub fn partial_header(&self) -> &[u8] {
        self.partial
            .get(..usize::from(self.partial_len))
            .unwrap_or_default()
    }
}

/// What stood at the start of the input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// The input ended inside a header, or was empty. The deframer keeps the consumed bytes.
    Starved {
        /// How much of the input was taken: 0..=4.
        consumed: usize,
    },
    /// A header was completed.
    Head(Head),
    /// The next bytes belong to the body of the current message. Empty bodies give no such step.
    Body {
        /// How many, from the start of the input.
        len: usize,
        /// Whether the message ends with them.
        last: bool,
    },
}

/// A message header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head {
    /// The message's letter; one that its direction knows.
    pub tag: u8,
    /// Length of the body that follows.
    pub body_len: u32,
    /// Bytes of this input that were part of the header.
    pub consumed: usize,
    /// Bytes of the header that came with earlier input: 0..=4.
    pub carried: u8,
}

impl Head {
    /// Bytes of the whole message, if its header came in one piece.
    #[inline]
    pub fn total(&self) -> usize {
        self.consumed.saturating_add(widen(self.body_len))
    }

    /// The header as it is on the wire.
    #[inline]
    pub fn bytes(&self) -> [u8; 5] {
        let [a, b, c, d] = self.body_len.saturating_add(LENGTH_MIN).to_be_bytes();
        [self.tag, a, b, c, d]
    }
}

/// Why the stream cannot be framed any further.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FrameError {
    /// The length is below 4 or above what the tag allows.
    Length {
        /// The message's letter.
        tag: u8,
        /// The length as it was on the wire.
        len: u32,
    },
    /// A letter that opens no message at all.
    UnknownTag(u8),
    /// A letter that only the other direction knows.
    WrongDirection(u8),
}

impl fmt::Display for FrameError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Length { tag, len } => {
                write!(f, "invalid message length {len} for type {tag:#04x}")
            }
            Self::UnknownTag(tag) => write!(f, "invalid message type {tag:#04x}"),
            Self::WrongDirection(tag) => {
                write!(f, "message type {tag:#04x} from the wrong side")
            }
        }
    }
}

impl std::error::Error for FrameError {}

fn refuse(side: Side, tag: u8, len: u32) -> FrameError {
    let (here, there) = match side {
        Side::Frontend => (
            FrontendTag::from_byte(tag).is_some(),
            BackendTag::from_byte(tag).is_some(),
        ),
        Side::Backend => (
            BackendTag::from_byte(tag).is_some(),
            FrontendTag::from_byte(tag).is_some(),
        ),
    };
    match (here, there) {
        (true, _) => FrameError::Length { tag, len },
        (false, true) => FrameError::WrongDirection(tag),
        (false, false) => FrameError::UnknownTag(tag),
    }
}

/// The largest length word that `tag` may carry in this direction; 0 for an unknown tag.
#[inline]
pub fn length_max(side: Side, tag: u8) -> u32 {
    let table = match side {
        Side::Frontend => &FRONTEND_LENGTH_MAX,
        Side::Backend => &BACKEND_LENGTH_MAX,
    };
    table.get(usize::from(tag)).copied().unwrap_or_default()
}

#[inline]
fn widen(len: u32) -> usize {
    usize::try_from(len).unwrap_or(usize::MAX)
}

static FRONTEND_LENGTH_MAX: [u32; 256] = frontend_lengths();
static BACKEND_LENGTH_MAX: [u32; 256] = backend_lengths();

#[allow(clippy::indexing_slicing, clippy::arithmetic_side_effects)] // evaluated by the compiler
const fn frontend_lengths() -> [u32; 256] {
    let mut table = [0; 256];
    let mut i = 0;
    while i < FrontendTag::ALL.len() {
        let tag = FrontendTag::ALL[i];
        table[tag.as_byte() as usize] = match tag {
            FrontendTag::Bind
            | FrontendTag::CopyData
            | FrontendTag::FunctionCall
            | FrontendTag::Parse
            | FrontendTag::Query => LARGE_LENGTH_MAX,
            FrontendTag::Password => PASSWORD_LENGTH_MAX,
            FrontendTag::Close
            | FrontendTag::CopyDone
            | FrontendTag::CopyFail
            | FrontendTag::Describe
            | FrontendTag::Execute
            | FrontendTag::Flush
            | FrontendTag::Sync
            | FrontendTag::Terminate => SMALL_LENGTH_MAX,
        };
        i += 1;
    }
    table
}

#[allow(clippy::indexing_slicing, clippy::arithmetic_side_effects)] // evaluated by the compiler
const fn backend_lengths() -> [u32; 256] {
    let mut table = [0; 256];
    let mut i = 0;
    while i < BackendTag::ALL.len() {
        table[BackendTag::ALL[i].as_byte() as usize] = BACKEND_LENGTH_LIMIT;
        i += 1;
    }
    table
}

/// Stands where the length of a partial header would: the borders are lost.
const LOST: u8 = u8::MAX;

/// Tag and length word.
pub const HEADER_LEN: usize = 5;

/// A length word counts itself.
pub const LENGTH_MIN: u32 = 4;

/// PostgreSQL's PQ_SMALL_MESSAGE_LIMIT, for messages that only control.
pub const SMALL_LENGTH_MAX: u32 = 10_000;

/// PostgreSQL's PQ_LARGE_MESSAGE_LIMIT (MaxAllocSize - 1), for messages that carry data.
pub const LARGE_LENGTH_MAX: u32 = 0x3FFF_FFFE;

/// PostgreSQL's PG_MAX_AUTH_TOKEN_LENGTH: what it reads at most while a client logs in.
pub const PASSWORD_LENGTH_MAX: u32 = 65_535;

/// PostgreSQL limits the body of what it sends to MaxAllocSize - 1; the length word adds itself.
pub const BACKEND_LENGTH_LIMIT: u32 = LARGE_LENGTH_MAX + LENGTH_MIN;

#[cfg(test)]
mod tests {
    use super::*;

    fn step_once(side: Side, header: &[u8]) -> Result<Step, FrameError> {
        Deframer::new(side).step(header)
    }

    fn header(tag: u8, length: u32) -> Vec<u8> {
        [&[tag][..], &length.to_be_bytes()].concat()
    }

    #[test]
    fn hops_over_headers_and_bodies() {
        let mut deframer = Deframer::new(Side::Backend);
        let input = b"C\0\0\0\x0dSELECT 1\0Z\0\0\0\x05I1\0\0\0\x04";
        let head = |tag, body_len| {
            Step::Head(Head {
                tag,
                body_len,
                consumed: 5,
                carried: 0,
            })
        };
        assert_eq!(deframer.step(input), Ok(head(b'C', 9)));
        assert_eq!(
            deframer.step(&input[5..]),
            Ok(Step::Body { len: 9, last: true })
        );
        assert_eq!(deframer.step(&input[14..]), Ok(head(b'Z', 1)));
        assert_eq!(
            deframer.step(&input[19..]),
            Ok(Step::Body { len: 1, last: true })
        );
        assert_eq!(deframer.step(&input[20..]), Ok(head(b'1', 0)));
        assert!(deframer.at_boundary());
        assert_eq!(deframer.step(b""), Ok(Step::Starved { consumed: 0 }));
        assert!(deframer.at_boundary());
    }

    #[test]
    fn a_body_may_come_in_pieces() {
        let mut deframer = Deframer::new(Side::Frontend);
        deframer.step(b"Q\0\0\0\x0a").unwrap();
        assert_eq!(deframer.body_remaining(), 6);
        assert_eq!(
            deframer.step(b"SEL"),
            Ok(Step::Body {
                len: 3,
                last: false
            })
        );
        assert_eq!(deframer.step(b""), Ok(Step::Starved { consumed: 0 }));
        assert_eq!(deframer.body_remaining(), 3);
        assert!(!deframer.at_boundary());
        assert_eq!(
            deframer.step(b"EC\0more"),
            Ok(Step::Body { len: 3, last: true })
        );
        assert!(deframer.at_boundary());
    }

    #[test]
    fn a_header_in_two_pieces_is_the_same_header_at_every_split() {
        let whole = header(b'D', 0x0001_0203);
        for split in 1..HEADER_LEN {
            let mut deframer = Deframer::new(Side::Backend);
            let (first, second) = whole.split_at(split);
            assert_eq!(deframer.step(first), Ok(Step::Starved { consumed: split }));
            assert_eq!(deframer.partial_header(), first);
            assert!(!deframer.at_boundary());
            assert_eq!(deframer.step(b""), Ok(Step::Starved { consumed: 0 }));
            let Ok(Step::Head(head)) = deframer.step(&[second, b"body"].concat()) else {
                panic!("no header at {split}");
            };
            assert_eq!(
                (head.consumed, usize::from(head.carried)),
                (5 - split, split)
            );
            assert_eq!((head.tag, head.body_len), (b'D', 0x0001_01FF));
            assert_eq!(head.bytes().to_vec(), whole);
            assert!(deframer.partial_header().is_empty());
        }
    }

    #[test]
    fn lengths_that_do_not_count_themselves_are_refused() {
        for length in 0..4 {
            for (side, tag) in [(Side::Frontend, b'Q'), (Side::Backend, b'Z')] {
                let refused = Err(FrameError::Length { tag, len: length });
                assert_eq!(step_once(side, &header(tag, length)), refused);
            }
        }
        assert!(step_once(Side::Frontend, &header(b'Q', 4)).is_ok());
    }

    #[test]
    fn lengths_with_the_sign_bit_are_large_and_not_negative() {
        for len in [0x8000_0004, 0xFFFF_FFFF] {
            let refused = Err(FrameError::Length { tag: b'B', len });
            assert_eq!(step_once(Side::Frontend, &header(b'B', len)), refused);
        }
    }

    #[test]
    fn each_tag_goes_up_to_its_cap_and_no_further() {
        let expected = |tag| match tag {
            FrontendTag::Bind
            | FrontendTag::CopyData
            | FrontendTag::FunctionCall
            | FrontendTag::Parse
            | FrontendTag::Query => 1_073_741_822,
            FrontendTag::Password => 65_535,
            _ => 10_000,
        };
        let table = FrontendTag::ALL
            .iter()
            .map(|&tag| (Side::Frontend, tag.as_byte(), expected(tag)))
            .chain(
                BackendTag::ALL
                    .iter()
                    .map(|tag| (Side::Backend, tag.as_byte(), 1_073_741_826)),
            );
        for (side, tag, cap) in table {
            let Ok(Step::Head(head)) = step_once(side, &header(tag, cap)) else {
                panic!("{tag} refused at its cap");
            };
            assert_eq!(head.body_len, cap - 4);
            assert_eq!(head.bytes().to_vec(), header(tag, cap));
            let past = step_once(side, &header(tag, cap + 1));
            assert_eq!(past, Err(FrameError::Length { tag, len: cap + 1 }));
        }
    }

    #[test]
    fn letters_of_the_other_direction_and_of_none_are_told_apart() {
        for byte in 0..=u8::MAX {
            let front = FrontendTag::from_byte(byte).is_some();
            let back = BackendTag::from_byte(byte).is_some();
            for (side, here, there) in [(Side::Frontend, front, back), (Side::Backend, back, front)]
            {
                match step_once(side, &header(byte, 4)) {
                    Ok(_) => assert!(here),
                    Err(error) if there => assert_eq!(error, FrameError::WrongDirection(byte)),
                    Err(error) => assert_eq!(error, FrameError::UnknownTag(byte)),
                }
                assert_eq!(step_once(side, &header(byte, 4)).is_ok(), here);
            }
        }
        let error = step_once(Side::Frontend, &header(b'T', 4)).unwrap_err();
        assert_eq!(error.to_string(), "message type 0x54 from the wrong side");
    }

    #[test]
    fn an_unknown_letter_is_refused_before_its_length_has_come() {
        let refused = Err(FrameError::WrongDirection(b'T'));
        assert_eq!(step_once(Side::Frontend, b"T"), refused);
        let refused = Err(FrameError::UnknownTag(0));
        assert_eq!(step_once(Side::Backend, b"\0\0\0"), refused);
    }

    #[test]
    fn an_error_is_final() {
        let mut deframer = Deframer::new(Side::Backend);
        deframer.step(b"Z\0\0").unwrap();
        let refused = Err(FrameError::Length { tag: b'Z', len: 3 });
        assert_eq!(deframer.step(b"\0\x03Z\0\0\0\x05I"), refused);
        for input in [&b""[..], b"Z", b"Z\0\0\0\x05I"] {
            assert_eq!(deframer.step(input), refused);
            assert!(!deframer.at_boundary());
            assert!(deframer.partial_header().is_empty());
        }
        let mut deframer = Deframer::new(Side::Frontend);
        let refused = Err(FrameError::UnknownTag(b'?'));
        assert_eq!(deframer.step(b"?"), refused);
        assert_eq!(deframer.step(b"S\0\0\0\x04"), refused);
    }

    #[test]
    fn the_state_is_small() {
        assert_eq!(size_of::<Deframer>(), 12);
    }
}
