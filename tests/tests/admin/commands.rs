//! The subcommands: tables for people, JSON for programs, exit codes for scripts.

use std::process::{Command, Output};

use tests::on_shards;
use tests::pgmux::binary;
use tests::process::{TempDir, free_port};
use tests::wire::frontend;

use crate::support::{Stand, expect_farewell, stand};

on_shards!(
    tables_json_and_exit_codes_tell_what_the_api_tells,
    maintenance_cancel_and_reload_are_carried_out,
);

const KEYS: &str = "[{key: viewer-0123456789, role: viewer}, {key: admin-0123456789, role: admin}]";

/// A stand with keys, and a file that names its API.
struct Desk {
    stand: Stand,
    dir: TempDir,
}

fn desk(shards: usize) -> Desk {
    let stand = stand(shards, |config| {
        config
            .set("admin.auth.enabled", true)
            .set("admin.auth.api_keys", KEYS)
    });
    let dir = TempDir::new("desk").expect("a directory");
    let text = format!(
        "databases: {{a: {{writer: /tmp}}}}\nauth: {{enabled: false, method: trust}}\n\
         admin: {{enabled: true, listen: '127.0.0.1:{}', auth: {{enabled: true, api_keys: {KEYS}}}}}\n",
        stand.api.port
    );
    std::fs::write(dir.path().join("pgmux.yaml"), text).expect("a file");
    Desk { stand, dir }
}

impl Desk {
    fn run(&self, words: &str) -> Output {
        let file = self.dir.path().join("pgmux.yaml");
        run(Command::new(binary())
            .args(words.split_whitespace())
            .arg("-c")
            .arg(file))
    }

    /// What it prints, and its exit code.
    fn say(&self, words: &str) -> (String, i32) {
        let output = self.run(words);
        let code = output.status.code().expect("an exit code");
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(errors.is_empty(), "{words}: {errors}");
        (String::from_utf8(output.stdout).expect("UTF-8"), code)
    }

    fn json(&self, words: &str) -> serde_json::Value {
        let (text, _) = self.say(&format!("{words} --json"));
        serde_json::from_str(&text).unwrap_or_else(|error| panic!("{words}: {error}: {text}"))
    }
}

fn run(command: &mut Command) -> Output {
    command
        .env_remove("PGMUX_ADMIN_KEY")
        .output()
        .expect("pgmux")
}

fn tables_json_and_exit_codes_tell_what_the_api_tells(shards: usize) {
    let desk = desk(shards);
    let client = desk.stand.pgmux.client();
    let (text, code) = desk.say("status");
    assert!(
        code == 0 && text.contains(": ready\n") && text.contains(&desk.stand.database),
        "{text}"
    );
    assert_eq!(desk.json("status")["ready"]["status"], "ready");
    let (text, code) = desk.say("stats");
    assert!(
        code == 0 && text.lines().any(|line| line.starts_with("logins ")),
        "{text}"
    );
    assert!(desk.json("stats")["figures"]["logins"].is_u64());
    let (text, code) = desk.say("health");
    assert!(code == 0 && text.contains(" reachable"), "{text}");
    let (text, code) = desk.say("connections");
    assert!(code == 0 && text.contains("app"), "{text}");
    let (pid, _) = client.key.as_ref().expect("a key");
    let (text, code) = desk.say("sessions --state idle --user app");
    assert!(
        code == 0
            && text
                .lines()
                .any(|line| line.starts_with(&format!("{pid} "))),
        "{text}"
    );
    assert_eq!(desk.json("sessions")["sessions"][0]["id"], *pid);
    let (text, _) = desk.say("sessions --user nobody");
    assert_eq!(
        text.lines().count(),
        1,
        "only the names of the columns: {text}"
    );
    drop(client);
    desk.stand.end();
}

fn maintenance_cancel_and_reload_are_carried_out(shards: usize) {
    let mut desk = desk(shards);
    let mut client = desk.stand.pgmux.client();
    let (pid, _) = client.key.clone().expect("a key");
    assert_eq!(
        desk.say(&format!("cancel {pid}")),
        ("no_active_query\n".to_owned(), 3)
    );
    client.send(&frontend::query("select pg_sleep(60)"));
    desk.stand.direct.expect_sleeper();
    assert_eq!(
        desk.say(&format!("cancel {pid}")),
        ("cancelled\n".to_owned(), 0)
    );
    client.replies();
    assert_eq!(
        desk.say("maintenance on"),
        ("maintenance_entered\n".to_owned(), 0)
    );
    let (text, code) = desk.say("status");
    assert!(
        code == 3 && text.contains("not ready: pgmux is in maintenance mode"),
        "{text}"
    );
    client.send(&frontend::query("select 1"));
    expect_farewell(&mut client, "57P01", "maintenance");
    assert_eq!(desk.json("maintenance status")["enabled"], true);
    assert_eq!(
        desk.say("maintenance off"),
        ("maintenance_exited\n".to_owned(), 0)
    );
    let (text, code) = desk.say("maintenance");
    assert!(code == 0 && text.contains("off"), "{text}");
    let own = format!("maintenance on --database {}", desk.stand.database);
    assert_eq!(desk.say(&own).1, 0);
    let own = format!("maintenance off --database {}", desk.stand.database);
    assert_eq!(desk.say(&own), ("maintenance_exited\n".to_owned(), 0));
    assert_eq!(desk.say("pause"), ("paused\n".to_owned(), 0));
    assert_eq!(desk.say("resume"), ("resumed\n".to_owned(), 0));
    assert_eq!(desk.say("reconnect").0, "reconnecting\n");
    let (text, code) = desk.say("reload");
    assert!(code == 0 && text.ends_with("reloaded\n"), "{text}");
    let failed = desk.run("maintenance on --database nowhere");
    let words = String::from_utf8_lossy(&failed.stderr).into_owned();
    assert!(
        failed.status.code() == Some(1) && words.contains("404: there is no such database"),
        "{words}"
    );
    desk.stand.end();
}

#[test]
fn who_cannot_be_asked_is_named_with_the_reason() {
    let desk = desk(1);
    let address = format!("127.0.0.1:{}", desk.stand.api.port);
    let wrong = run(Command::new(binary()).args(["stats", "--admin", &address]));
    let words = String::from_utf8_lossy(&wrong.stderr).into_owned();
    assert!(
        wrong.status.code() == Some(1) && words.contains("401: authentication required"),
        "{words}"
    );
    let by_environment = Command::new(binary())
        .args(["stats", "--admin", &address])
        .env("PGMUX_ADMIN_KEY", "viewer-0123456789")
        .output()
        .expect("pgmux");
    assert_eq!(by_environment.status.code(), Some(0));
    let file = desk.dir.path().join("key");
    std::fs::write(&file, "viewer-0123456789\n").expect("a file");
    let by_file = run(Command::new(binary())
        .args(["reload", "--admin", &address, "--key-file"])
        .arg(&file));
    let words = String::from_utf8_lossy(&by_file.stderr).into_owned();
    assert!(
        by_file.status.code() == Some(1) && words.contains("403: admin role required"),
        "{words}"
    );
    let nobody = format!("127.0.0.1:{}", free_port());
    let absent = run(Command::new(binary()).args(["status", "--admin", &nobody]));
    let words = String::from_utf8_lossy(&absent.stderr).into_owned();
    assert!(
        absent.status.code() == Some(1) && words.contains(&nobody),
        "{words}"
    );
    let off = desk.dir.path().join("off.yaml");
    std::fs::write(
        &off,
        "databases: {a: {writer: /tmp}}\nauth: {enabled: false, method: trust}\n",
    )
    .expect("a file");
    let silent = run(Command::new(binary()).args(["status", "-c"]).arg(&off));
    let words = String::from_utf8_lossy(&silent.stderr).into_owned();
    assert!(
        silent.status.code() == Some(1) && words.contains("admin.enabled"),
        "{words}"
    );
    desk.stand.end();
}
