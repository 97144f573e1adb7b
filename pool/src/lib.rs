//! The deciding half of connection pooling: servers, waiters, budgets; decisions as data.
//!
//! Nothing here opens a socket or reads a clock. `now` comes in, a decision goes out, the engine carries it out and
//! reports back. One [`Pool`] belongs to one shard; the pools of one (group, target) share a [`Budget`].
//!
//! # The order of calls
//!
//! 1. A client needs a server: [`Pool::acquire`] leases one at once or queues the client.
//! 2. Its transaction is over and the server is proven clean: [`Pool::release`] says what becomes of it.
//! 3. After any call that can change what is needed (a client waits, a server or a login was lost, a wake arrived):
//!    [`Pool::logins_wanted`]; start that many logins and report each by [`Pool::connected`] or [`Pool::login_failed`].
//! 4. Whatever closes, for whatever reason, is reported by [`Pool::discard`] after its socket was closed. A server holds
//!    its permit until then. One that is to be given away is reported by [`Pool::hand_over`] when it has left the
//!    shard's ring; what that answers is its permit and goes with it, to [`Pool::arrived`] of the other shard. So the sum
//!    over shards is exact even while servers move.
//! 5. At the end of a turn: send a wake to each shard from [`Pool::next_wake`] and to each pool from
//!    [`Pool::next_other_wake`]; if [`Pool::take_ask`] says so, [`Total::ask`] all shards of the database; set a timer for [`Pool::next_deadline`],
//!    and when it fires call [`Pool::expire`], then [`Pool::logins_wanted`].
//!    Then look at each server that [`Pool::check_due`] names, and report it by [`Pool::checked`] or [`Pool::discard`].
//! 6. A shard that receives a wake hands over what [`Pool::give_up_idle`] gives, then calls [`Pool::logins_wanted`].
//! 7. If [`Pool::take_news`] says so, all shards are told that their pools of this [`Target`] are to look: each fails the
//!    clients of [`Pool::hopeless`], then calls [`Pool::logins_wanted`].

//!
//! A shard that is asked answers by [`Total::offer`]; whoever gives the last answer tells the shard that it names, which
//! closes what [`Pool::spare_idle`] hands out of its richest pool.

mod backoff;
mod breaker;
mod budget;
pub mod config;
mod hunger;
mod pool;
mod servers;
mod settings;
mod target;
mod total;
mod waiters;

pub use breaker::{BreakerSettings, BreakerState};
pub use budget::Budget;
pub use pool::{Acquire, CloseReason, Expired, MARGIN, Moving, PATIENCE, Placed, Pool, SETTLING};
pub use servers::ServerKey;
pub use settings::{LOGINS_MAX, Settings};
pub use target::{Condition, Fault, Target};
pub use total::{Total, Wake};
pub use waiters::Ticket;
