//! Opens many clients that do nothing, and tells what each costs the target.

use std::process::ExitCode;

use anyhow::Result;
use bench::dsn::Dsn;
use bench::idle::{self, Figures, Plan};
use bench::interrupt::Interrupt;
use clap::Parser;

/// Opens N idle clients on a target that runs, and reports its memory per client and its idle CPU.
///
/// Start the target afresh: its memory before the first client is what the others are reckoned against.
#[derive(Debug, Parser)]
#[command(name = "pgmux-idle", version)]
struct Args {
    /// Where the target listens, as postgres://user:password@127.0.0.1:6432/db or host=… port=… user=… dbname=…
    dsn: Dsn,
    /// The target's process id.
    #[arg(long)]
    pid: u32,
    /// Clients in the end.
    #[arg(long, default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(1..))]
    clients: u32,
    /// Clients while the CPU is watched.
    #[arg(long, default_value_t = 1_000)]
    watched: u32,
    /// How long the CPU is watched, in seconds.
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..))]
    seconds: u32,
}

fn main() -> ExitCode {
    match run(&Args::parse()) {
        Ok(figures) => {
            print(&figures);
            ExitCode::from(u8::from(figures.lost > 0))
        }
        Err(error) => {
            eprintln!("pgmux-idle: {error:#}");
            ExitCode::from(2)
        }
    }
}

fn run(args: &Args) -> Result<Figures> {
    let interrupt = Interrupt::listen()?;
    let plan = Plan {
        clients: args.clients,
        watched_clients: args.watched,
        seconds: args.seconds,
    };
    idle::measure(&args.dsn, args.pid, plan, &interrupt)
}

fn print(figures: &Figures) {
    println!("clients                      {:>10}", figures.clients);
    println!("RSS before the first client  {:>10} KiB", figures.empty_kib);
    println!("RSS after one client         {:>10} KiB", figures.warm_kib);
    println!("RSS with all clients         {:>10} KiB", figures.full_kib);
    println!("RSS after all have left      {:>10} KiB", figures.after_kib);
    println!(
        "per client over empty        {:>10.2} KiB",
        figures.kib_over_empty()
    );
    println!(
        "per client over one client   {:>10.2} KiB",
        figures.kib_over_warm()
    );
    if let Some(kib) = figures.kib_at_the_margin() {
        println!("per client at the margin     {kib:>10.2} KiB");
    }
    if let Some(us) = figures.login_cpu_us {
        println!("CPU per login                {us:>10.0} µs");
    }
    println!(
        "CPU with {:>6} idle clients  {:>11.3} % of a core, {:.1} context switches/s",
        figures.watched_clients, figures.idle_cpu_percent, figures.switches_per_second
    );
    println!("clients lost                 {:>10}", figures.lost);
}
