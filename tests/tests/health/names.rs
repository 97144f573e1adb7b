//! Hosts by name: all addresses are tried, and a name that moves takes its servers along.

use std::fs;

use tests::hostile::FakeServer;
use tests::on_shards;
use tests::pgmux::{Config, Pgmux};
use tests::process::{PATIENCE, TempDir, eventually, free_port};

on_shards!(
    all_addresses_of_a_name_are_tried_in_their_order,
    servers_leave_an_address_that_the_name_has_lost_and_no_client_does,
);

fn at(address: &str, port: u16, value: &'static str) -> FakeServer {
    FakeServer::start_at(address, port, move |peer, _| {
        peer.log_in()?;
        peer.serve(value)
    })
}

fn named(port: u16, hosts: &TempDir) -> Config {
    let file = hosts.path().join("hosts");
    Config::fake(port)
        .set("databases.fake.writer.host", "db.test")
        .set("engine.hosts_file", file.display())
        .set("engine.dns_interval", "200ms")
}

fn write(hosts: &TempDir, text: &str) {
    let (file, new) = (hosts.path().join("hosts"), hosts.path().join("new"));
    fs::write(&new, text).expect("the new file");
    fs::rename(&new, &file).expect("the file in its place");
}

fn all_addresses_of_a_name_are_tried_in_their_order(shards: usize) {
    let hosts = TempDir::new("hosts").expect("a directory");
    write(
        &hosts,
        "::1 db.test\n127.0.0.2 db.test\n127.0.0.3 db.test\n127.0.0.4 db.test\n",
    );
    let port = free_port();
    let third = at("127.0.0.3", port, "third");
    let fourth = at("127.0.0.4", port, "fourth");
    let pgmux = Pgmux::start(&named(port, &hosts).shards(shards));
    assert_eq!(pgmux.client().value("select x"), "third");
    assert!(third.accepted() > 0 && fourth.accepted() == 0);
    assert_eq!(pgmux.figure("targets_unwell"), 0);
    pgmux.stop();
}

fn servers_leave_an_address_that_the_name_has_lost_and_no_client_does(shards: usize) {
    let hosts = TempDir::new("hosts").expect("a directory");
    write(&hosts, "127.0.0.2 db.test\n");
    let port = free_port();
    let old = at("127.0.0.2", port, "old");
    let new = at("127.0.0.3", port, "new");
    let config = named(port, &hosts)
        .shards(shards)
        .set("pool.min_connections", 2);
    let pgmux = Pgmux::start(&config);
    let mut client = pgmux.client();
    assert_eq!(client.value("select x"), "old");
    super::at_least(&pgmux, "servers_idle", 2);
    write(&hosts, "127.0.0.3 db.test\n");
    let moved = eventually(PATIENCE, || {
        (client.value("select x") == "new").then_some(())
    });
    assert!(moved.is_some());
    old.expect_abandoned();
    assert!(new.accepted() > 0);
    assert!(super::at_least(&pgmux, "servers_moved_away", 2) >= 2);
    pgmux.stop();
}
