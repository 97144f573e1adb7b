//! The `pgmux` program: read the arguments, then do what they say.

use std::io::Write;
use std::process::ExitCode;

use clap::Parser;
use engine::cli::{self, Cli, Command, DemoArgs, RunArgs};
use engine::config::defaults_file;
use engine::demo::{self, Stop};
use engine::lifecycle::{self, Exit};
use engine::logging;

/// As a shell reports a program that Ctrl-C ended.
const INTERRUPTED: u8 = 130;

fn main() -> ExitCode {
    let done = match Cli::parse().into_command() {
        Command::Run(args) => return run(args),
        Command::Demo(args) => return demo(&args),
        Command::Check(args) => cli::check(&args).map_err(|errors| errors.to_string()),
        Command::Config(_) => Ok(defaults_file()),
        Command::Status(args) => return say(cli::status(&args)),
        Command::Stats(args) => return say(cli::stats(&args)),
        Command::Health(args) => return say(cli::health(&args)),
        Command::Connections(args) => return say(cli::connections(&args)),
        Command::Sessions(args) => return say(cli::sessions(&args)),
        Command::Cancel(args) => return say(cli::cancel(&args)),
        Command::Reload(args) => return say(cli::reload(&args)),
        Command::Maintenance(args) => return say(cli::maintenance(&args)),
        Command::Pause(args) => return say(cli::order("pause", &args)),
        Command::Resume(args) => return say(cli::order("resume", &args)),
        Command::Reconnect(args) => return say(cli::order("reconnect", &args)),
        Command::Kill(args) => return say(cli::order("kill", &args)),
    };
    match done {
        Ok(text) => print(&text),
        Err(problems) => fail(&problems),
    }
}

/// Logging, configuration, machine, and then the service until a signal ends it.
fn run(args: RunArgs) -> ExitCode {
    if let Err(problem) = logging::init(args.log.log_format, args.log.log_level.as_deref()) {
        return fail(&problem);
    }
    let config = match cli::prepare(&args) {
        Ok(config) => config,
        Err(problems) => return fail(&problems),
    };
    let file = args.config.clone().unwrap_or_default();
    match lifecycle::serve(config, &file, Box::new(move || cli::load(&args))) {
        // That clients did not make it in time is in the log; the operator's order was carried out.
        Ok(Exit::Drained | Exit::TimedOut) => ExitCode::SUCCESS,
        Ok(Exit::Forced) => ExitCode::from(INTERRUPTED),
        Err(error) => fail(&error.to_string()),
    }
}

fn demo(args: &DemoArgs) -> ExitCode {
    match demo::run(args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(Stop::Interrupted) => ExitCode::from(INTERRUPTED),
        Err(Stop::Failed(text)) => fail(&text),
    }
}

/// What a running pgmux has answered.
fn say(said: Result<cli::Said, String>) -> ExitCode {
    match said {
        Ok(said) => match print(&said.text) {
            ExitCode::SUCCESS => ExitCode::from(said.code),
            failed => failed,
        },
        Err(problems) => fail(&problems),
    }
}

/// A reader that went away (`pgmux config --defaults | head`) is no failure.
fn print(text: &str) -> ExitCode {
    match std::io::stdout().write_all(text.as_bytes()) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => {
            fail(&format!("cannot write: {error}"))
        }
        _ => ExitCode::SUCCESS,
    }
}

/// Each line of `problems` to standard error.
fn fail(problems: &str) -> ExitCode {
    for line in problems.lines() {
        eprintln!("pgmux: {line}");
    }
    ExitCode::FAILURE
}
