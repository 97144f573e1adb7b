//! Traces every load and store of pgmux while clients on several shards ask, and tells which cache lines move between threads.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use bench::cluster::{Cluster, Programs, Wish};
use bench::interrupt::Interrupt;
use bench::peers::{Backend, Ready, Site};
use bench::sharing::{self, Plan, Window};
use bench::target::Mode;
use clap::Parser;

/// Shows whether a query writes what another shard reads. Some minutes under valgrind; nothing is written to disk.
#[derive(Debug, Parser)]
#[command(name = "pgmux-sharing", version)]
struct Args {
    /// The pgmux to look at; a release build.
    #[arg(long, default_value = "target/release/pgmux")]
    pgmux: PathBuf,
    /// Its shards.
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u32).range(2..=16))]
    shards: u32,
    /// Clients of each shard.
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=16))]
    clients: u32,
    /// Transactions of each client in each window.
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    transactions: u32,
    /// pgbench's modes.
    #[arg(
        long,
        value_delimiter = ',',
        default_value = "simple,extended,prepared"
    )]
    modes: Vec<Mode>,
    /// The folder of PostgreSQL's programs.
    #[arg(long)]
    pg_bin: Option<PathBuf>,
    /// End with an error when queries move lines.
    #[arg(long)]
    check: bool,
}

fn main() -> ExitCode {
    let args = Args::parse();
    match run(&args) {
        Ok(windows) => {
            println!("{}", sharing::report(&windows));
            let bad = windows.iter().any(Window::is_bad);
            ExitCode::from(u8::from(args.check && bad))
        }
        Err(error) => {
            eprintln!("pgmux-sharing: {error:#}");
            ExitCode::from(2)
        }
    }
}

fn run(args: &Args) -> Result<Vec<Window>> {
    sharing::needs()?;
    let interrupt = Interrupt::listen()?;
    let wish = Wish {
        scale: 1,
        connections: 200,
        cpus: None,
    };
    let cluster = Cluster::start(Programs::find(args.pg_bin.as_deref())?, &wish, &interrupt)?;
    let site = Site {
        cluster: &cluster,
        backend: Backend::Tcp,
        cpus: None,
        under: Vec::new(),
        clients_max: 1_000,
        ready: Ready::LetsIn,
        certificate: None,
        interrupt: &interrupt,
    };
    let plan = Plan {
        program: args.pgmux.clone(),
        shards: args.shards,
        clients: args.clients,
        transactions: args.transactions,
        modes: args.modes.clone(),
    };
    sharing::measure(&plan, &site)
}
