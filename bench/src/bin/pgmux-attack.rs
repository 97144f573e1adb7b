//! Attacks a target on this machine as a stranger would, and tells what those who are let in notice of it.

use std::process::ExitCode;

use anyhow::Result;
use bench::attack::{self, Phase, Plan};
use bench::dsn::Dsn;
use bench::interrupt::Interrupt;
use clap::Parser;

/// Tries many wrong passwords, then holds many logins and TLS handshakes open, while a good client logs in again and again and others run.
///
/// Everything stays on 127.0.0.1, is bounded and ends by itself.
#[derive(Debug, Parser)]
#[command(name = "pgmux-attack", version)]
struct Args {
    /// Where the target listens, as postgres://user:password@127.0.0.1:6432/db or host=… port=… user=… dbname=…
    dsn: Dsn,
    /// The target's process id.
    #[arg(long)]
    pid: u32,
    /// Logins with a wrong password.
    #[arg(long, default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(..=100_000))]
    wrong_passwords: u32,
    /// Logins that are never ended.
    #[arg(long, default_value_t = 8_000, value_parser = clap::value_parser!(u32).range(..=50_000))]
    half_open: u32,
    /// TLS handshakes that are never ended; 0 where the target has no TLS.
    #[arg(long, default_value_t = 0, value_parser = clap::value_parser!(u32).range(..=50_000))]
    stalled: u32,
    /// Clients that ask all the time.
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u32).range(..=64))]
    runners: u32,
    /// The least time of each phase, in seconds.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=60))]
    seconds: u32,
}

fn main() -> ExitCode {
    match run(&Args::parse()) {
        Ok(phases) => {
            println!("times in milliseconds: of logins, then of queries");
            println!("{}", Phase::head());
            phases.iter().for_each(|phase| println!("{}", phase.line()));
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("pgmux-attack: {error:#}");
            ExitCode::from(2)
        }
    }
}

fn run(args: &Args) -> Result<Vec<Phase>> {
    let plan = Plan {
        wrong_passwords: args.wrong_passwords,
        half_open: args.half_open,
        stalled: args.stalled,
        runners: args.runners,
        seconds: args.seconds,
    };
    attack::measure(&args.dsn, args.pid, plan, &Interrupt::listen()?)
}
