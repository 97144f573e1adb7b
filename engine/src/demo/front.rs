//! pgmux itself, as a child process of its own demo: so its CPU time is its own.

use std::fs;
use std::net::TcpListener;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use super::Stop;
use super::cluster::Cluster;
use super::interrupt::Interrupt;
use super::process::Service;

const CONFIG: &str = include_str!("demo.yaml");

const START_LIMIT: Duration = Duration::from_secs(20);

/// Asked first, so that a taken port is told at once and with the argument that mends it.
pub(super) fn port_is_free(port: u16) -> Result<(), Stop> {
    match TcpListener::bind(("127.0.0.1", port)) {
        Ok(_) => Ok(()),
        Err(error) => Err(Stop::Failed(format!(
            "cannot listen on 127.0.0.1:{port} ({error}): choose another with --port"
        ))),
    }
}

/// A running pgmux in front of the cluster.
pub(super) struct Front {
    process: Service,
    port: u16,
}

impl Front {
    pub(super) fn start(
        cluster: &Cluster,
        dir: &Path,
        port: u16,
        interrupt: &Interrupt,
    ) -> Result<Self, Stop> {
        let config = dir.join("pgmux.yaml");
        fs::write(&config, CONFIG)
            .map_err(|error| Stop::failed("cannot write to the temp directory", error))?;
        let program = std::env::current_exe()
            .map_err(|error| Stop::failed("cannot find this program", error))?;
        let mut command = Command::new(program);
        command
            .arg("run")
            .arg("--config")
            .arg(&config)
            .env("PGMUX_DEMO_PORT", port.to_string())
            .env("PGMUX_DEMO_PASSWORD", cluster.password())
            .env("PGMUX_DEMO_SERVER_PORT", cluster.port().to_string())
            .stdout(Stdio::null());
        let process = Service::start("pgmux", &mut command, dir, &dir.join("pgmux.log"))?;
        process.wait_until(START_LIMIT, interrupt, |process| {
            process.log().contains("ready")
        })?;
        Ok(Self { process, port })
    }

    pub(super) fn port(&self) -> u16 {
        self.port
    }

    pub(super) fn process(&self) -> &Service {
        &self.process
    }

    /// A failure through pgmux comes with what pgmux has to say about it.
    pub(super) fn blame(&self, stop: Stop) -> Stop {
        match stop {
            Stop::Failed(text) => Stop::Failed(format!(
                "{text}\nThe end of pgmux's log:\n{}",
                self.process.log_tail()
            )),
            Stop::Interrupted => stop,
        }
    }

    /// The CPU time that it used so far, in seconds.
    pub(super) fn cpu_seconds(&self) -> Option<f64> {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.process.id())).ok()?;
        Some(cpu_ticks(&stat)? as f64 / rustix::param::clock_ticks_per_second() as f64)
    }
}

/// `utime` and `stime` of a line of `/proc/PID/stat`: the 12th and 13th field after the program's name, which
/// may itself hold spaces and brackets.
fn cpu_ticks(stat: &str) -> Option<u64> {
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace().skip(11);
    let user: u64 = fields.next()?.parse().ok()?;
    let system: u64 = fields.next()?.parse().ok()?;
    Some(user + system)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;

    #[test]
    fn the_embedded_configuration_is_valid() {
        let text = CONFIG
            .replace("${PGMUX_DEMO_PORT}", "6432")
            .replace("${PGMUX_DEMO_SERVER_PORT}", "5432")
            .replace("${PGMUX_DEMO_PASSWORD}", "x");
        let config = Config::parse(&text, "demo.yaml").unwrap_or_else(|errors| panic!("{errors}"));
        assert_eq!(config.groups[0].pool.max_connections, 20);
        assert_eq!(config.proxy.listen[0].to_string(), "127.0.0.1:6432");
    }

    #[test]
    fn cpu_time_is_read_past_any_program_name() {
        let rest = "S 1 2 3 4 5 6 7 8 9 10 700 30 0 0 20 0 1 0 5";
        assert_eq!(cpu_ticks(&format!("42 (pgmux) {rest}")), Some(730));
        assert_eq!(cpu_ticks(&format!("42 (a) b) 1 2 3) {rest}")), Some(730));
        assert_eq!(cpu_ticks("42 (pgmux) S 1 2"), None);
    }
}
