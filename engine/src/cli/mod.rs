//! The command line: what can be said, and what each command does with it.

mod check;
mod prepare;
mod remote;
mod table;
mod warnings;

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};

use crate::config::{self, Pin};
use crate::logging::LogFormat;

pub use check::check;
pub use prepare::{load, prepare};
pub use remote::{CancelArgs, MaintenanceArgs, OrderArgs, RemoteArgs, Said, SessionsArgs};
pub use remote::{
    cancel, connections, health, maintenance, order, reload, sessions, stats, status,
};

/// A PostgreSQL connection pooler and proxy: one process, one shard per core.
#[derive(Debug, Parser)]
#[command(name = "pgmux", version, arg_required_else_help = true)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub struct Cli {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    run: RunArgs,
}

/// What pgmux can do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Serve clients; `pgmux -c FILE` means the same.
    Run(RunArgs),
    /// Read a configuration file and report every mistake in it.
    Check(CheckArgs),
    /// Print what a configuration can say.
    Config(ConfigArgs),
    /// Try pgmux in front of a throwaway PostgreSQL on this machine.
    Demo(DemoArgs),
    /// Tell whether a running pgmux is ready, its clients and its servers; exit code 3: it is not ready.
    Status(RemoteArgs),
    /// Tell every figure of a running pgmux.
    Stats(RemoteArgs),
    /// Tell whether its primaries can be reached; exit code 3: one cannot.
    Health(RemoteArgs),
    /// Tell how many clients each user and database has, and may have.
    Connections(RemoteArgs),
    /// List its clients.
    Sessions(SessionsArgs),
    /// Cancel what a client has asked; exit code 3: it has asked nothing.
    Cancel(CancelArgs),
    /// Have it read again what SIGHUP has it read again.
    Reload(RemoteArgs),
    /// Send away clients that have no transaction, and let nobody new in; or end that.
    Maintenance(MaintenanceArgs),
    /// Give no client a server any more: what runs ends, who asks waits, every server is closed.
    Pause(OrderArgs),
    /// Go on after a pause.
    Resume(OrderArgs),
    /// Replace every server when nobody has it.
    Reconnect(OrderArgs),
    /// End all clients at once, and pause.
    Kill(OrderArgs),
}

/// How to serve.
#[derive(Debug, Args)]
pub struct RunArgs {
    /// The configuration file.
    #[arg(short, long, value_name = "FILE", required = true)]
    pub config: Option<PathBuf>,
    /// The number of shards, instead of engine.shards.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=config::SHARDS_MAX as i64))]
    pub shards: Option<u16>,
    /// Whether a shard stays on its CPU, instead of engine.pin.
    #[arg(long, value_enum)]
    pub pin: Option<Pin>,
    /// Where clients connect, instead of proxy.listen; can be given more than once.
    #[arg(long, value_name = "ADDR")]
    pub listen: Vec<String>,
    /// How logs are written.
    #[command(flatten)]
    pub log: LogArgs,
}

/// How logs are written.
#[derive(Debug, Args)]
pub struct LogArgs {
    /// How a log line looks.
    #[arg(long, value_enum, default_value_t)]
    pub log_format: LogFormat,
    /// What is logged (error, warn, info, debug, trace, off, or directives), instead of PGMUX_LOG.
    #[arg(long, value_name = "LEVEL")]
    pub log_level: Option<String>,
}

/// What to check.
#[derive(Debug, Args)]
pub struct CheckArgs {
    /// The configuration file.
    #[arg(short, long, value_name = "FILE")]
    pub config: PathBuf,
}

/// What to print of the configuration.
#[derive(Debug, Args)]
pub struct ConfigArgs {
    /// Print every key with its default and a line of explanation, as a valid file.
    #[arg(long, required = true)]
    pub defaults: bool,
}

/// How to demonstrate.
#[derive(Debug, Args)]
pub struct DemoArgs {
    /// End by itself after this many seconds of serving.
    #[arg(long, value_name = "N")]
    pub seconds: Option<u64>,
    /// The port of pgmux on 127.0.0.1.
    #[arg(long, value_name = "PORT", default_value_t = 6432, value_parser = clap::value_parser!(u16).range(1..))]
    pub port: u16,
}

impl Cli {
    /// The command; none means `run`.
    pub fn into_command(self) -> Command {
        self.command.unwrap_or(Command::Run(self.run))
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    fn parsed(words: &str) -> Result<Command, String> {
        let words = std::iter::once("pgmux").chain(words.split_whitespace());
        Cli::try_parse_from(words)
            .map(Cli::into_command)
            .map_err(|error| error.to_string())
    }

    #[test]
    fn the_definition_is_consistent() {
        <Cli as CommandFactory>::command().debug_assert();
    }

    #[test]
    fn a_file_alone_means_run() {
        for words in [
            "-c x.yaml --shards 2 --listen 127.0.0.1:1 --listen /tmp",
            "run -c x.yaml --shards 2 --listen 127.0.0.1:1 --listen /tmp",
        ] {
            let Ok(Command::Run(args)) = parsed(words) else {
                panic!("{words}")
            };
            assert_eq!(args.config, Some(PathBuf::from("x.yaml")));
            assert_eq!((args.shards, args.listen.len()), (Some(2), 2));
        }
    }

    #[test]
    fn every_command_is_understood() {
        assert!(matches!(parsed("check --config x"), Ok(Command::Check(_))));
        assert!(matches!(
            parsed("config --defaults"),
            Ok(Command::Config(_))
        ));
        let Ok(Command::Demo(args)) = parsed("demo --seconds 3") else {
            panic!("demo")
        };
        for words in [
            "status -c x",
            "stats --admin 127.0.0.1:9091 --json",
            "health -c x",
            "connections -c x --key-file k",
            "sessions -c x --state in_transaction --user u --database d --limit 5",
            "cancel 7 -c x",
            "reload -c x",
            "maintenance on --database d -c x",
            "maintenance -c x",
            "pause -c x",
            "resume --database d -c x --json",
            "reconnect -c x",
            "kill --database d -c x",
        ] {
            assert!(parsed(words).is_ok(), "{words:?}");
        }
        assert_eq!((args.seconds, args.port), (Some(3), 6432));
        assert!(
            parsed("--version")
                .unwrap_err()
                .contains(env!("CARGO_PKG_VERSION"))
        );
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        for words in [
            "",
            "run",
            "check",
            "config",
            "-c x check -c x",
            "run -c x --shards 0",
            "run -c x --shards 257",
            "run -c x --pin maybe",
            "x.yaml",
            "status",
            "cancel -c x",
            "cancel x -c x",
            "maintenance maybe -c x",
            "sessions -c x --limit 0",
            "stats --admin nowhere",
        ] {
            assert!(parsed(words).is_err(), "{words:?}");
        }
    }
}
