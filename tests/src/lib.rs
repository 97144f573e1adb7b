//! The support library of the end-to-end tests: real PostgreSQL clusters, pgmux processes, scripted clients and
//! scripted servers.
//!
//! The library shares no code with pgmux. It is the referee, so it builds and reads every message by itself.
//!
//! | module | what it gives |
//! |---|---|
//! | [`cluster`] | PostgreSQL clusters on free ports, databases and roles in them |
//! | [`version`] | which PostgreSQL |
//! | [`pgmux`] | a configuration, the running program, its log and its resources |
//! | [`control`] | orders by the control socket |
//! | [`wire`] | a raw client: bytes in any chunking, replies as comparable lines |
//! | [`script`] | message scripts with golden replies, run direct and through pgmux |
//! | [`hostile`] | servers that speak as much PostgreSQL as a test wants, and then something else |
//! | [`http`] | clients of the admin API |
//! | [`canary`] | the question asked after each attack: does a fresh client still get its own row? |
//! | [`cgroup`] | a process that may have only so much memory |
//! | [`netns`] | two machines and the cable between them, which can be pulled |
//! | [`clean`] | whether servers are as good as fresh |
//! | [`tls`] | certificates, and TLS for raw clients |
//! | [`driver`] | other people's drivers, compared direct and through pgmux |
//! | [`dice`] | choices that a seed repeats |
//! | [`direct`] | the second look at the server, past pgmux |

pub mod canary;
pub mod cgroup;
pub mod clean;
pub mod cluster;
pub mod control;
pub mod dice;
pub mod direct;
pub mod driver;
pub mod hostile;
pub mod http;
pub mod netns;
pub mod pgmux;
pub mod process;
pub mod script;
pub mod tls;
pub mod version;
pub mod wire;

/// Does the same with every item, four at a time: most of a hostile test is waiting. A panic in one ends the test.
pub fn side_by_side<T: Send, I>(items: I, work: impl Fn(T) + Sync)
where
    I: IntoIterator<Item = T>,
    I::IntoIter: Send,
{
    let items = std::sync::Mutex::new(items.into_iter());
    let next = || {
        items
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
            .next()
    };
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                while let Some(item) = next() {
                    work(item);
                }
            });
        }
    });
}

/// Makes two tests of each function that takes a number of shards: on 1 and on 4.
#[macro_export]
macro_rules! on_shards {
    ($($name:ident),* $(,)?) => {
        mod on_1_shard {
            $(#[test] fn $name() { super::$name(1); })*
        }
        mod on_4_shards {
            $(#[test] fn $name() { super::$name(4); })*
        }
    };
}

/// The same on 2 and on 4 shards, for what takes more than one.
#[macro_export]
macro_rules! on_many_shards {
    ($($name:ident),* $(,)?) => {
        mod on_2_shards {
            $(#[test] fn $name() { super::$name(2); })*
        }
        mod on_4_shards {
            $(#[test] fn $name() { super::$name(4); })*
        }
    };
}

/// The same on 1, 2 and 4 shards, where how many there are is what matters.
#[macro_export]
macro_rules! on_1_2_and_4_shards {
    ($($name:ident),* $(,)?) => {
        $crate::on_shards!($($name),*);
        mod on_2_shards {
            $(#[test] fn $name() { super::$name(2); })*
        }
    };
}

/// Makes a test of each function that takes a version of PostgreSQL, on each version.
#[macro_export]
macro_rules! on_versions {
    ($($name:ident),* $(,)?) => {
        mod on_the_distributions_version {
            $(#[test] fn $name() { super::$name($crate::version::Version::Distribution); })*
        }
        mod on_postgres_18 {
            $(#[test] fn $name() { super::$name($crate::version::Version::Pg18); })*
        }
    };
}
