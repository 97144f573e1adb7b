//! What the fuzz targets call. The tests below call the same, so that it cannot rot.
//!
//! Each function takes any bytes and panics when a promise of this crate is broken: no input
//! panics, every chunking gives the same result, no byte is lost, what decodes encodes back to the
//! same bytes, and an exchange that was tampered with fails.

use crate::auth::scram::{ScramClient, ScramServer, Verifier};
use crate::auth::{md5, saslprep};
use crate::backend;
use crate::cursor::{Cursor, ParseError};
use crate::encode::EncodeError;
use crate::frame::{Deframer, FrameError, Side, Step};
use crate::frontend::{
    self, Bind, BindHead, GSSResponse, Parse, ParseHead, PasswordMessage, SASLInitialResponse,
    SASLResponse,
};
use crate::startup::{self, Refusal, StartupPacket};
use crate::tag::{BackendTag, FrontendTag, frontend_tag};

/// A client's stream: the first byte says how it is cut, or that the rest describes messages.
pub fn frontend(data: &[u8]) {
    stream_or_messages(Side::Frontend, data);
}

/// A server's stream, likewise.
pub fn backend(data: &[u8]) {
    stream_or_messages(Side::Backend, data);
}

/// The packet that opens a connection: the first byte says whether its length is made right.
pub fn startup(data: &[u8]) {
    let Some((mode, rest)) = data.split_first() else {
        return;
    };
    if mode % 2 == 0 {
        startup_packet(rest);
        return;
    }
    let length = u32::try_from(rest.len().saturating_add(4)).unwrap_or(u32::MAX);
    startup_packet(&[&length.to_be_bytes(), rest].concat());
}

/// The messages of a login: the first byte says whether the rest is them, or what to do to them.
pub fn sasl(data: &[u8]) {
    let Some((mode, rest)) = data.split_first() else {
        return;
    };
    if mode % 2 == 0 {
        sasl_messages(rest);
    } else {
        tampered_exchange(rest);
    }
}

fn stream_or_messages(side: Side, data: &[u8]) {
    let Some((&mode, rest)) = data.split_first() else {
        return;
    };
    if mode % 2 == 0 {
        stream(side, rest, mode);
    } else {
        messages(side, rest);
    }
}

/// Any bytes as a stream, whole and in pieces.
fn stream(side: Side, input: &[u8], seed: u8) {
    let whole = deframe(side, input, |len| len);
    let mut state = u32::from(seed);
    let pieces = deframe(side, input, |len| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        len.min(usize::try_from(state >> 29).unwrap_or_default())
    });
    let single = deframe(side, input, |len| len.min(1));
    assert_eq!(whole, pieces, "chunking changed the messages");
    assert_eq!(whole, single, "single bytes changed the messages");
    for message in &whole.messages {
        decode_and_encode(side, message.tag, &message.body);
    }
}

/// Messages with right headers and any bodies, so that decoders see more than broken frames.
fn messages(side: Side, description: &[u8]) {
    let mut cursor = Cursor::new(description);
    while let (Ok(tag), Ok(len)) = (cursor.u8(), cursor.u8()) {
        let len = usize::from(len).min(cursor.remaining());
        let body = cursor.take(len).unwrap_or_default();
        let tag = match side {
            Side::Frontend => pick(FrontendTag::ALL, tag).map(FrontendTag::as_byte),
            Side::Backend => pick(BackendTag::ALL, tag).map(BackendTag::as_byte),
        };
        decode_and_encode(side, tag.unwrap_or_default(), body);
    }
}

fn pick<T: Copy>(all: &[T], index: u8) -> Option<T> {
    all.iter().cycle().nth(usize::from(index)).copied()
}

/// What a deframer made of an input.
#[derive(Debug, PartialEq)]
struct Deframed {
    messages: Vec<Whole>,
    /// Header and body of a message that was not complete at the end.
    unfinished: Vec<u8>,
    error: Option<FrameError>,
}

#[derive(Debug, PartialEq)]
struct Whole {
    tag: u8,
    body: Vec<u8>,
}

/// Runs a deframer over pieces whose lengths `cut` chooses from what is left.
fn deframe(side: Side, input: &[u8], mut cut: impl FnMut(usize) -> usize) -> Deframed {
    let mut deframer = Deframer::new(side);
    let mut done = Deframed {
        messages: Vec::new(),
        unfinished: Vec::new(),
        error: None,
    };
    let mut seen = 0_usize;
    let mut window = 0_usize;
    while seen < input.len() {
        if window == 0 {
            window = cut(input.len().saturating_sub(seen)).max(1);
        }
        let piece = input.get(seen..).unwrap_or_default();
        let piece = piece.get(..window).unwrap_or(piece);
        let used = match deframer.step(piece) {
            Ok(step) => record(&mut done, &deframer, step, piece),
            Err(error) => {
                done.error = Some(error);
                done.unfinished.clear();
                return done;
            }
        };
        assert!(used > 0 && used <= piece.len(), "no progress, or too much");
        seen = seen.saturating_add(used);
        window = piece.len().saturating_sub(used);
    }
    let bytes = done
        .messages
        .iter()
        .map(|whole| whole.body.len().saturating_add(5));
    let kept = bytes.sum::<usize>().saturating_add(done.unfinished.len());
    assert_eq!(kept, input.len(), "bytes were lost or made up");
    assert_eq!(deframer.at_boundary(), done.unfinished.is_empty());
    done
}

/// Keeps what a step found, and says how many bytes it used.
fn record(done: &mut Deframed, deframer: &Deframer, step: Step, piece: &[u8]) -> usize {
    match step {
        Step::Starved { consumed } => {
            done.unfinished = deframer.partial_header().to_vec();
            consumed
        }
        Step::Head(head) => {
            assert_eq!(done.unfinished.len(), usize::from(head.carried));
            done.unfinished = head.bytes().to_vec();
            finish(done, head.body_len == 0);
            head.consumed
        }
        Step::Body { len, last } => {
            assert_eq!(last, deframer.body_remaining() == 0);
            let body = piece.get(..len).unwrap_or_default();
            done.unfinished.extend_from_slice(body);
            finish(done, last);
            len
        }
    }
}

fn finish(done: &mut Deframed, complete: bool) {
    if let (true, [tag, _, _, _, _, body @ ..]) = (complete, done.unfinished.as_slice()) {
        let whole = Whole {
            tag: *tag,
            body: body.to_vec(),
        };
        done.messages.push(whole);
        done.unfinished.clear();
    }
}

/// What can be read is written back as it was, and read again as the same.
fn decode_and_encode(side: Side, tag: u8, body: &[u8]) {
    match side {
        Side::Frontend => {
            round_trip(
                tag,
                body,
                |body| frontend::Message::decode(tag, body),
                frontend::Message::encode,
            );
            split_and_encode(tag, body);
        }
        Side::Backend => round_trip(
            tag,
            body,
            |body| backend::Message::decode(tag, body),
            backend::Message::encode,
        ),
    }
}

/// The other ways to read a client's message: names only, or one of the four that share a tag.
fn split_and_encode(tag: u8, body: &[u8]) {
    match tag {
        frontend_tag::BIND => round_trip(tag, body, Bind::split, BindHead::encode),
        frontend_tag::PARSE => round_trip(tag, body, Parse::split, ParseHead::encode),
        frontend_tag::PASSWORD => {
            round_trip(tag, body, PasswordMessage::decode, PasswordMessage::encode);
            round_trip(
                tag,
                body,
                SASLInitialResponse::decode,
                SASLInitialResponse::encode,
            );
            round_trip(tag, body, SASLResponse::decode, SASLResponse::encode);
            round_trip(tag, body, GSSResponse::decode, GSSResponse::encode);
        }
        _ => {}
    }
}

fn round_trip<'a, T: PartialEq + std::fmt::Debug>(
    tag: u8,
    body: &'a [u8],
    decode: impl Fn(&'a [u8]) -> Result<T, ParseError>,
    encode: impl Fn(&T, &mut Vec<u8>) -> Result<(), EncodeError>,
) {
    let Ok(message) = decode(body) else {
        return;
    };
    let mut out = Vec::new();
    match encode(&message, &mut out) {
        Ok(()) => {
            assert_eq!(out.first(), Some(&tag));
            assert_eq!(out.get(5..), Some(body), "{message:?}");
        }
        Err(error) => assert_eq!(error, EncodeError::TooLong, "{message:?}"),
    }
    // Formatting walks every list.
    assert!(!format!("{message:?}").is_empty());
}

fn startup_packet(input: &[u8]) {
    let whole = startup::first_packet(input);
    for end in (0..input.len())
        .rev()
        .take(PREFIXES)
        .chain(0..input.len().min(PREFIXES))
    {
        let prefix = startup::first_packet(input.get(..end).unwrap_or_default());
        assert!(
            prefix == Ok(None) || prefix == whole,
            "a prefix changed the packet"
        );
        if matches!(whole, Ok(Some((_, consumed))) if consumed <= end) {
            assert_eq!(prefix, whole, "more input changed the packet");
        }
    }
    match whole {
        Ok(None) => {}
        Ok(Some((packet, consumed))) => {
            let encoded = encode_packet(&packet);
            assert_eq!(Some(encoded.as_slice()), input.get(..consumed));
        }
        Err(error) => {
            let mut out = Vec::new();
            assert_eq!(error.encode(&mut out), Ok(()));
            assert_eq!(out.is_empty(), error.refusal() == Refusal::Silent);
        }
    }
}

fn encode_packet(packet: &StartupPacket<'_>) -> Vec<u8> {
    let mut out = Vec::new();
    let encoded = match packet {
        StartupPacket::Startup(startup) => {
            assert!(!startup.user().is_empty() && !startup.database().is_empty());
            startup.encode(&mut out)
        }
        StartupPacket::Ssl => startup::SslRequest.encode(&mut out),
        StartupPacket::GssEnc => startup::GssEncRequest.encode(&mut out),
        StartupPacket::Cancel(cancel) => cancel.encode(&mut out),
    };
    assert_eq!(encoded, Ok(()));
    out
}

/// Any two messages, each taken for every message that a state can wait for.
fn sasl_messages(data: &[u8]) {
    let mut parts = data.splitn(2, |byte| *byte == b'\n');
    let (first, second) = (
        parts.next().unwrap_or_default(),
        parts.next().unwrap_or_default(),
    );
    let verifier = Verifier::mock(first, second);
    if let Ok((_, next)) = ScramServer::new(&verifier, SERVER_NONCE).client_first(first) {
        assert!(next.client_final(second).is_err(), "a mock user got in");
    }
    if let Ok(next) = ScramClient::new(CLIENT_NONCE).server_first(first, ITERATIONS_MAX) {
        assert!(next.iterations() <= ITERATIONS_MAX && !next.salt().is_empty());
        let (_, next) = next.salted_password(SALTED);
        assert!(
            next.server_final(second).is_err(),
            "a server guessed the signature"
        );
    }
    if let Ok(text) = std::str::from_utf8(first) {
        if let Ok(verifier) = Verifier::parse(text) {
            assert_eq!(verifier.to_string(), text);
        }
        assert!(md5::response(text, *b"salt").is_none() || md5::is_hash(text));
    }
    let prepared = saslprep(data);
    assert!(data.is_ascii() || prepared.len() <= data.len().saturating_mul(MAX_EXPANSION));
}

/// An honest exchange in which one message has some bytes replaced by others: it fails, unless
/// that changed nothing, or only added what the grammar allows behind the server's signature.
fn tampered_exchange(data: &[u8]) {
    let mut cursor = Cursor::new(data);
    let (Ok(which), Ok(at), Ok(removed)) = (cursor.u8(), cursor.u16(), cursor.u8()) else {
        return;
    };
    let edit = Edit {
        which: which % 4,
        at: usize::from(at),
        removed: usize::from(removed % 8),
        added: cursor.peek(),
    };
    let mut harmless = true;
    let mut pass = |index: u8, message: Vec<u8>| {
        if index != edit.which {
            return message;
        }
        let edited = edit.apply(&message);
        harmless = edited == message || (index == 3 && edited.starts_with(&message));
        edited
    };
    let succeeded = exchange(&mut pass).is_some();
    assert!(harmless || !succeeded, "a tampered exchange succeeded");
}

struct Edit<'a> {
    which: u8,
    at: usize,
    removed: usize,
    added: &'a [u8],
}

impl Edit<'_> {
    fn apply(&self, message: &[u8]) -> Vec<u8> {
        let at = self.at.min(message.len());
        let (head, tail) = message.split_at_checked(at).unwrap_or_default();
        [
            head,
            self.added,
            tail.get(self.removed..).unwrap_or_default(),
        ]
        .concat()
    }
}

/// Both ends, with every message going through `pass` on its way; `None` when either gives up.
fn exchange(pass: &mut impl FnMut(u8, Vec<u8>) -> Vec<u8>) -> Option<()> {
    let verifier = Verifier::from_password(b"pencil", b"salt", 1);
    let client = ScramClient::new(CLIENT_NONCE);
    let client_first = pass(0, client.client_first());
    let server = ScramServer::new(&verifier, SERVER_NONCE);
    let (server_first, server) = server.client_first(&client_first).ok()?;
    let server_first = pass(1, server_first);
    let client = client.server_first(&server_first, ITERATIONS_MAX).ok()?;
    let salted = crate::auth::scram::salted_password(b"pencil", client.salt(), client.iterations());
    let (client_final, client) = client.salted_password(salted);
    let client_final = pass(2, client_final);
    let (server_final, _proof) = server.client_final(&client_final).ok()?;
    client.server_final(&pass(3, server_final)).ok()
}

const CLIENT_NONCE: &str = "fyko+d2lbbFgONRv9qkxdawL";
const SERVER_NONCE: &str = "3rfcNHYJY1ZVvWVs7j";
const SALTED: [u8; 32] = [7; 32];
const ITERATIONS_MAX: u32 = 16;

/// Every prefix would make the check quadratic; the first and the last ones are where it changes.
const PREFIXES: usize = 64;

/// Compatibility decomposition makes at most 18 characters of one, of up to 4 bytes each.
const MAX_EXPANSION: usize = 18 * 4;

#[cfg(test)]
mod tests {
    use super::*;

    /// Bytes that mean nothing, the same in every run.
    fn noise(seed: u64) -> Vec<u8> {
        let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
        let mut next = || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state
        };
        let len = next() % 64;
        (0..len)
            .map(|_| {
                if next() % 3 == 0 {
                    0
                } else {
                    (next() >> 32) as u8
                }
            })
            .collect()
    }

    #[test]
    fn noise_breaks_no_promise() {
        for seed in 1..=5_000 {
            let data = noise(seed);
            frontend(&data);
            backend(&data);
            startup(&data);
            sasl(&data);
        }
    }

    #[test]
    fn an_honest_exchange_succeeds() {
        assert_eq!(exchange(&mut |_, message| message), Some(()));
    }

    #[test]
    fn every_single_byte_changed_makes_the_exchange_fail() {
        for which in 0..4 {
            for at in 0..150 {
                tampered_exchange(&[which, 0, at, 1, b'A']);
                tampered_exchange(&[which, 0, at, 1]);
                tampered_exchange(&[which, 0, at, 0, b',']);
            }
        }
    }

    #[test]
    fn a_stream_of_every_message_survives_every_cut() {
        let frontend_stream = b"Q\0\0\0\x0dSELECT 1\0P\0\0\0\x08\0\0\0\0B\0\0\0\x0c\0\0\0\0\0\0\0\0\
            D\0\0\0\x06S\0E\0\0\0\x09\0\0\0\0\0H\0\0\0\x04S\0\0\0\x04d\0\0\0\x05xc\0\0\0\x04f\0\0\0\x05\0\
            p\0\0\0\x05\0X\0\0\0\x04";
        let backend_stream = b"R\0\0\0\x08\0\0\0\0K\0\0\0\x0c\0\0\0\x01wxyzS\0\0\0\x08a\0b\0Z\0\0\0\x05I\
            1\0\0\0\x04t\0\0\0\x06\0\0T\0\0\0\x06\0\0D\0\0\0\x0a\0\x01\xff\xff\xff\xffC\0\0\0\x05\0E\0\0\0\x05\0Z\0\0\0\x05T";
        for (side, input) in [
            (Side::Frontend, &frontend_stream[..]),
            (Side::Backend, backend_stream),
        ] {
            let whole = deframe(side, input, |len| len);
            assert_eq!(whole.error, None);
            assert!(whole.messages.len() > 10 && whole.unfinished.is_empty());
            for first in 1..input.len() {
                let mut cut = Some(first);
                assert_eq!(deframe(side, input, |len| cut.take().unwrap_or(len)), whole);
                for second in 1..input.len() - first {
                    let mut cuts = [second, first].to_vec();
                    assert_eq!(deframe(side, input, |len| cuts.pop().unwrap_or(len)), whole);
                }
            }
            for seed in 0..=u8::MAX {
                stream(side, input, seed);
            }
        }
    }
}
