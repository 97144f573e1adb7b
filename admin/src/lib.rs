//! What operators see and can do: the figures of all shards, and the HTTP API.
//!
//! Nothing here knows a shard. The API asks a [`handle::Handle`], which the
//! engine implements over the shards' mailboxes; a fault of this crate is a
//! fault of its own thread and of nobody else's.
//!
//! | module | what it does |
//! |---|---|
//! | `histogram`, `stats` | figures in a shard's plain cells, merged |
//! | `handle` | what the API asks the engine, as types |
//! | `thread` | the admin thread: its executor, its restarts, its end |
//! | `server` | connections: their number, deadlines, limits |
//! | `stream` | what hyper leaves out: deadlines of writes, bodies of its errors |
//! | `access` | who may ask: addresses, keys, roles |
//! | `routes` | which path does what, for whom |
//! | `answer` | statuses and JSON |
//! | `exposition`, `metrics` | the page that Prometheus reads |
//! | `client` | one request to such an API, for the subcommands |
//! | `moment` | points in time as RFC 3339 |

pub mod access;
mod answer;
pub mod client;
mod exposition;
pub mod handle;
pub mod histogram;
mod metrics;
pub mod moment;
mod routes;
mod server;
pub mod stats;
mod stream;
pub mod thread;
