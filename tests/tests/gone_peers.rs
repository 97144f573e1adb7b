//! Peers that are gone without a word: their machine has lost its power, or the cable is cut. Nothing tells but TCP, which
//! asks (keepalive) or waits for an acknowledgement (user timeout).

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::time::Duration;

use tests::canary;
use tests::cluster::Cluster;
use tests::direct::Direct;
use tests::netns::{Cable, NEAR};
use tests::pgmux::{Config, Pgmux};
use tests::wire::{Conn, Endpoint, Session, frontend};

struct Stand {
    pgmux: Pgmux,
    direct: Direct,
    cable: Cable,
    socket: Endpoint,
    _dir: tests::process::TempDir,
}

/// pgmux on a machine of its own, with PostgreSQL at its unix socket; `None` where nobody may make machines.
fn stand(shards: usize, configure: impl FnOnce(Config, &Cable) -> Config) -> Option<Stand> {
    let cable = match Cable::new() {
        Ok(cable) => cable,
        Err(reason) => {
            eprintln!("not tried, for there are no network namespaces here: {reason}");
            return None;
        }
    };
    let cluster = Cluster::shared();
    let database = cluster.fresh_database();
    let dir = tests::process::TempDir::new("gone").expect("a directory");
    let socket = dir.path().join("s");
    let config = Config::new(cluster, &database)
        .shards(shards)
        .servers(2)
        .set(
            &format!("databases.{database}.writer.host"),
            cluster.socket_dir().display(),
        )
        .set(
            "proxy.listen",
            format!("['{NEAR}:{PORT}', 'unix:{}']", socket.display()),
        )
        .within(cable.words());
    Some(Stand {
        pgmux: Pgmux::start(&configure(config, &cable)),
        direct: Direct::open(cluster, &database),
        cable,
        socket: Endpoint::Unix(socket),
        _dir: dir,
    })
}

impl Stand {
    /// A client on the peer's machine.
    fn far_client(&self) -> Session {
        let stream = self.cable.connect(PORT).expect("a connection");
        let conn = Conn::over(stream).expect("an option");
        Session::log_in(conn, &self.pgmux.login()).expect("a login")
    }
}

const PORT: u16 = 5432;

tests::on_shards!(
    client_that_is_gone_in_a_transaction_frees_its_server,
    client_that_is_gone_with_unread_rows_frees_its_server,
    client_that_is_gone_is_found_by_the_idle_transaction_timeout_too,
    server_that_is_gone_is_an_error_and_frees_its_place,
    idle_server_that_is_gone_is_replaced,
);

fn client_that_is_gone_in_a_transaction_frees_its_server(shards: usize) {
    let keepalive = |config: Config, _: &Cable| {
        config
            .set("proxy.tcp_keepalives_idle", "1s")
            .set("proxy.tcp_keepalives_interval", "1s")
            .set("proxy.tcp_keepalives_count", 2)
            // What was sent last may not be acknowledged yet: then TCP sends it again, and asks nothing.
            .set("proxy.tcp_user_timeout", "2s")
    };
    let Some(mut stand) = stand(shards, keepalive) else {
        return;
    };
    stand
        .direct
        .run("create table kept(a int); grant all on kept to app");
    let mut clients = [(); 2].map(|()| stand.far_client());
    for client in &mut clients {
        client.query("begin");
        client.query("insert into kept values (1)");
    }
    stand.cable.pull();
    stand.direct.expect_idle();
    stand.pgmux.wait_for("clients", 0);
    assert_eq!(stand.direct.number("select count(*) from kept"), 0);
    canary::check(&stand.socket, &stand.pgmux.login());
    stand.pgmux.stop();
}

fn client_that_is_gone_with_unread_rows_frees_its_server(shards: usize) {
    let timeout = |config: Config, _: &Cable| config.set("proxy.tcp_user_timeout", "2s");
    let Some(mut stand) = stand(shards, timeout) else {
        return;
    };
    let mut clients = [(); 2].map(|()| stand.far_client());
    for client in &mut clients {
        client.send(&frontend::query(
            "select repeat('x', 100000) from generate_series(1, 10000)",
        ));
        client.conn.recv().expect("a row description");
    }
    stand.cable.pull();
    stand.direct.expect_idle();
    stand.pgmux.wait_for("clients", 0);
    canary::check(&stand.socket, &stand.pgmux.login());
    stand.pgmux.stop();
}

fn client_that_is_gone_is_found_by_the_idle_transaction_timeout_too(shards: usize) {
    let timeout = |config: Config, _: &Cable| config.set("pool.idle_transaction_timeout", "1s");
    let Some(mut stand) = stand(shards, timeout) else {
        return;
    };
    stand
        .direct
        .run("create table kept(a int); grant all on kept to app");
    let mut client = stand.far_client();
    client.query("begin");
    client.query("insert into kept values (1)");
    stand.cable.pull();
    stand.direct.expect_idle();
    stand.pgmux.wait_for("idle_transaction_timeouts", 1);
    assert_eq!(stand.direct.number("select count(*) from kept"), 0);
    // Its last words reach nobody, and it is not waited for.
    stand.pgmux.wait_for("clients", 0);
    stand.pgmux.stop();
}

/// PostgreSQL on the peer's machine: what comes there goes on to the cluster.
fn far_server(cable: &Cable, port: u16) -> std::net::SocketAddr {
    let (listener, address) = cable.listen();
    std::thread::spawn(move || serve(&listener, port));
    address
}

fn serve(listener: &TcpListener, port: u16) {
    for near in listener.incoming() {
        let Ok(near) = near else { return };
        let Ok(server) = TcpStream::connect(("127.0.0.1", port)) else {
            return;
        };
        for (mut from, mut to) in [
            (
                near.try_clone().expect("a copy"),
                server.try_clone().expect("a copy"),
            ),
            (server, near),
        ] {
            std::thread::spawn(move || {
                let mut buffer = vec![0; 1 << 16];
                while let Ok(length @ 1..) = from.read(&mut buffer) {
                    if to.write_all(&buffer[..length]).is_err() {
                        break;
                    }
                }
                let _ = to.shutdown(Shutdown::Both);
            });
        }
    }
}

/// A second database whose server is on the peer's machine, noticed to be gone within seconds.
fn with_far_server(config: Config, cable: &Cable) -> Config {
    let cluster = Cluster::shared();
    let address = far_server(cable, cluster.port());
    let database = config.main_database().to_owned();
    config
        .set("databases.far.writer.host", address.ip())
        .set("databases.far.writer.port", address.port())
        .set("databases.far.pool", "{max_connections: 1, connection_timeout: 20s}")
        .set(
            "databases.far.backend",
            format!(
                "{{database: {database}, tcp_keepalives_idle: 1s, tcp_keepalives_interval: 1s, tcp_keepalives_count: 2, \
                 tcp_user_timeout: 2s}}"
            ),
        )
}

fn far_database(stand: &Stand) -> Session {
    let mut login = stand.pgmux.login();
    login.database = "far".into();
    Session::open(&stand.socket, &login)
}

fn server_that_is_gone_is_an_error_and_frees_its_place(shards: usize) {
    let Some(stand) = stand(shards, with_far_server) else {
        return;
    };
    let mut client = far_database(&stand);
    client.query("begin");
    client.send(&frontend::query("select pg_sleep(600)"));
    let mut sender = far_database(&stand);
    assert!(client.conn.is_quiet(Duration::from_millis(200)));
    stand.cable.pull();
    let last = client.farewell().expect("the end").expect("an error");
    assert_eq!(last.sqlstate(), "08006");
    // Whoever waits for a server now hears why there is none, in time.
    let refusal = sender.query("select 1");
    assert!(
        ["08006", "53300"].contains(&refusal[0].sqlstate().as_str()),
        "{refusal:?}"
    );
    stand.pgmux.wait_for("servers", 0);
    canary::check(&stand.socket, &stand.pgmux.login());
    stand.pgmux.stop();
}

fn idle_server_that_is_gone_is_replaced(shards: usize) {
    let Some(stand) = stand(shards, with_far_server) else {
        return;
    };
    let mut client = far_database(&stand);
    assert_eq!(client.value("select 1"), "1");
    stand.pgmux.wait_for("servers_idle", 1);
    stand.cable.pull();
    stand.pgmux.wait_for("servers", 0);
    canary::check(&stand.socket, &stand.pgmux.login());
    stand.pgmux.stop();
}
