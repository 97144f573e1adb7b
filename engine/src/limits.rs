//! Every number that bounds what a peer may cost, with its origin.

use std::time::Duration;

/// Bytes of a message that are collected before it is sent on: enough to
/// read any name and to classify any text (design, section 9). What is longer
/// is streamed.
pub const INSPECT_BYTES: usize = 64 * 1024;

/// Bytes of one `Parse` that are kept so that the statement can follow its
/// client; also what all named statements of a client may take together
/// (design, section 9).
pub const STATEMENT_BYTES: usize = 4 * 1024 * 1024;

/// Replies that a server may owe for one client. Past it the client is not
/// read until some have come (design, section 9).
pub const LEDGER_ENTRIES: usize = 10_000;

/// Bytes that one client or server may be served in one go before others
/// have their turn: 32 full receive buffers.
pub const SLICE_BYTES: usize = 256 * 1024;

/// SCRAM iterations accepted from a server (design, section 9).
pub const SCRAM_ITERATIONS: u32 = 100_000;

/// A message of a login, in either direction: PostgreSQL allows 65,535 for
/// authentication messages; the largest ParameterStatus is far below.
pub const LOGIN_MESSAGE_BYTES: usize = 64 * 1024;

/// Password messages of a client: PostgreSQL allows 65,535, no password in
/// use comes near (reliability.md, section 13).
pub const PASSWORD_BYTES: usize = 4096;

/// Until a server is connected and logged in. PostgreSQL's own
/// `authentication_timeout` is 60 s; ours is shorter, for a client waits.
pub const SERVER_LOGIN: Duration = Duration::from_secs(15);

/// Until a host has taken a connection: the kernel sends its SYN again after 1 and 3 s.
pub const CONNECT: Duration = Duration::from_secs(5);

/// The same where there are other addresses to try, for a client waits.
pub const CONNECT_OF_SEVERAL: Duration = Duration::from_secs(2);

/// The same while a target does not let us in. It ends before the kernel's
/// pauses grow: what is back shall be found within 2 s (issue 5).
pub const CONNECT_UNWELL: Duration = Duration::from_millis(1500);

/// Until a name must have been looked up where it is known what it meant
/// before.
pub const LOOK_UP: Duration = Duration::from_secs(2);

/// Until a server that a client left behind must have ended its work, once
/// it was asked to cancel it.
pub const CLEAN: Duration = Duration::from_secs(5);

/// How long the work of a client that said goodbye may go on.
pub const FAREWELL: Duration = Duration::from_secs(60);

/// How long a server may be silent while a client that has closed its side is
/// owed a reply. A client that was killed looks the same.
pub const OWED_SILENCE: Duration = Duration::from_secs(10);

/// Until a cancel request must have been delivered.
pub const CANCEL: Duration = Duration::from_secs(5);

/// How long a server may take to stop a request whose time is up, before the
/// connection is closed: as long as a cancel request may take.
pub const OBEDIENCE: Duration = CANCEL;

/// Cancel requests under way to servers at once in one shard: each is a
/// process of PostgreSQL for a moment (reliability.md, X-5).
pub const CANCELS: usize = 256;

/// The same for one server (reliability.md, section 13).
pub const CANCELS_OF_SERVER: u32 = 4;

/// Connections of one shard that bring a cancel request and wait for its end.
pub const CANCELS_HEARD: usize = 1024;

/// Cancel requests of one shard under way to one peer: one that is down or
/// slow holds each for `CANCEL`.
pub const CANCELS_TO_PEER: usize = 128;

/// From how many instances a cancel request may come and still be passed on,
/// the first included: A's peers may say that B has a key, and B's that A has.
pub const CANCEL_HOPS: u8 = 3;

/// How long a connection that a stopping process has accepted may take to say
/// that it brings a cancel request.
pub const CANCEL_HEARING: Duration = Duration::from_secs(1);

/// How long a server that is said goodbye to may take to close its end.
pub const SERVER_CLOSING: Duration = Duration::from_secs(1);

/// Until the last words to a client must have left.
pub const LAST_WORDS: Duration = Duration::from_secs(5);

/// Names of databases and users, longer ones are cut as PostgreSQL does
/// (`NAMEDATALEN` - 1).
pub const NAME_BYTES: usize = 63;

/// Rows of our own queries that are read.
pub const OWN_ROWS: usize = 10_000;

/// Until TLS with a client must be there; part of the login
/// (reliability.md, section 13).
pub const TLS_HANDSHAKE: Duration = Duration::from_secs(10);

/// Bytes of one TLS handshake. rustls takes messages of up to 64 KiB, of
/// which a chain of certificates is the longest.
pub const HANDSHAKE_BYTES: usize = 256 * 1024;

/// How long a shard may work on handshakes before it looks at everything
/// else: a login of a few round trips is held up by them less than 20 ms
/// (issue 3).
pub const HANDSHAKES_PER_TURN: Duration = Duration::from_millis(2);
