//! What all of these tests do.

use tests::canary;
use tests::cluster::Cluster;
use tests::direct::Direct;
use tests::http::Http;
use tests::pgmux::{Config, Pgmux};
use tests::process::{PATIENCE, eventually, free_port};
use tests::wire::{Message, Session};

/// pgmux in front of a fresh database, its API, and a look past it.
pub struct Stand {
    pub pgmux: Pgmux,
    pub api: Http,
    pub direct: Direct,
    pub database: String,
}

pub fn stand(shards: usize, configure: impl FnOnce(Config) -> Config) -> Stand {
    let cluster = Cluster::shared();
    let database = cluster.fresh_database();
    let port = free_port();
    let config = with_api(Config::new(cluster, &database).shards(shards), port);
    Stand {
        pgmux: Pgmux::start(&configure(config)),
        api: Http { port },
        direct: Direct::open(cluster, &database),
        database,
    }
}

/// Both pages at one address.
pub fn with_api(config: Config, port: u16) -> Config {
    let address = format!("'127.0.0.1:{port}'");
    config
        .set("admin.enabled", true)
        .set("admin.listen", &address)
        .set("metrics.enabled", true)
        .set("metrics.listen", &address)
}

impl Stand {
    /// Nothing is left of what was done, and fresh clients are served.
    pub fn end(mut self) {
        canary::check(&self.pgmux.endpoint(), &self.pgmux.login());
        self.direct.expect_idle();
        self.pgmux.wait_for("cancels_under_way", 0);
        let figures = self.pgmux.figures();
        for name in ["panics", "violations"] {
            assert_eq!(figures[name], 0, "{name}");
        }
        self.pgmux.stop();
    }

    /// The value of a series of the page.
    pub fn series(&self, name: &str) -> f64 {
        let page = self.api.get("/metrics").body;
        let prefix = format!("{name} ");
        let line = page.lines().find_map(|line| line.strip_prefix(&prefix));
        let line = line.unwrap_or_else(|| panic!("no {name} in\n{page}"));
        line.parse().expect("a number")
    }

    /// Waits until a series has this value.
    pub fn wait_for(&self, name: &str, value: f64) {
        let same = || (self.series(name) == value).then_some(());
        let came = eventually(PATIENCE, same);
        assert!(
            came.is_some(),
            "{name} is {}, not {value}",
            self.series(name)
        );
    }
}

/// The words with which a client is sent away, and the end.
pub fn expect_farewell(client: &mut Session, code: &str, text: &str) {
    let words = client.farewell().expect("an end in order");
    let words = words.map(|message| tests::wire::describe(&message));
    let words = words.expect("words");
    assert!(
        words.contains("FATAL") && words.contains(code) && words.contains(text),
        "{words}"
    );
}

/// How many `ReadyForQuery` there are.
pub fn readies(messages: &[Message]) -> usize {
    messages
        .iter()
        .filter(|message| message.tag == b'Z')
        .count()
}
