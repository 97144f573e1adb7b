//! Puts all clients of a pgmux on one of its shards, and tells how they fare.

use std::process::ExitCode;
use std::time::Duration;

use bench::dsn::Dsn;
use bench::moves::{self, Plan};
use clap::Parser;

/// Opens N clients on one shard of a pgmux that runs, and reports how many queries they got answered.
///
/// With `--wander`, all of them leave after so many milliseconds and come back on the next of `--shards`, or with one
/// shard on the same: then the only difference is that their servers are there already.
#[derive(Debug, Parser)]
#[command(name = "pgmux-moves", version)]
struct Args {
    /// Where pgmux listens, as postgres://user:password@127.0.0.1:6432/db or host=… port=… user=… dbname=…
    dsn: Dsn,
    /// Clients at a time.
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..))]
    clients: u32,
    /// The shard to begin with, from 0.
    #[arg(long, default_value_t = 0)]
    shard: u32,
    /// Milliseconds on each shard.
    #[arg(long)]
    wander: Option<u64>,
    /// Over how many shards the clients wander.
    #[arg(long, default_value_t = 1)]
    shards: u32,
    /// Microseconds that a server sleeps for each query; from 1000 on the rate depends on the servers and hardly on CPUs.
    #[arg(long, default_value_t = 0)]
    sleep: u64,
    /// Seconds in all.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    seconds: u32,
}

fn main() -> ExitCode {
    let args = Args::parse();
    let time = Duration::from_secs(args.seconds.into());
    let plan = Plan {
        clients: args.clients,
        shard: args.shard,
        shards: args.shards,
        stay: args.wander.map_or(time, Duration::from_millis),
        sleep: Duration::from_micros(args.sleep),
        time,
    };
    match moves::run(&args.dsn, &plan) {
        Ok(outcome) => {
            println!("queries         {:>10}", outcome.queries);
            println!("a second        {:>10.0}", outcome.rate());
            let longest = outcome.longest.as_secs_f64() * 1e3;
            println!("longest wait    {longest:>10.2} ms");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("pgmux-moves: {error:#}");
            ExitCode::from(2)
        }
    }
}
