//! What it costs to prove who one is, and to speak by TLS: PgBouncer and pgmux side by side.

use std::time::Instant;

use anyhow::Result;

use crate::args::Args;
use crate::certificate::Certificate;
use crate::idle;
use crate::lineup::Lineup;
use crate::matrix::Plan;
use crate::peers::{Auth, Peer, Ready, Site, Start};
use crate::pgbench::Load;
use crate::results::Results;
use crate::target::{Cell, Mode, Target};

/// One way to come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Transactions of clients that came by TLS.
    Tls,
    /// A login by SCRAM for every transaction.
    Logins,
    /// The same by TLS: a full handshake each time, for libpq keeps no sessions.
    TlsLogins,
}

impl Kind {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Tls, Self::Logins, Self::TlsLogins];

    /// The words in tables.
    pub fn words(self) -> &'static str {
        match self {
            Self::Tls => "client TLS",
            Self::Logins => "a SCRAM login for each transaction",
            Self::TlsLogins => "a SCRAM login by TLS for each transaction",
        }
    }

    fn auth(self) -> Auth {
        match self {
            Self::Tls => Auth::Trust,
            Self::Logins | Self::TlsLogins => Auth::Scram,
        }
    }

    /// The load of it: the proofs of eight clients keep a core of their own busy.
    pub fn cell(self) -> Cell {
        Cell {
            mode: Mode::Simple,
            clients: match self {
                Self::Tls => 64,
                Self::Logins | Self::TlsLogins => 8,
            },
        }
    }
}

/// Everything that the section found.
#[derive(Debug, Default)]
pub struct Secured {
    /// The runs of each kind.
    pub results: Vec<(Kind, Results)>,
    /// Who took part, in the order of the tables.
    pub names: Vec<String>,
    /// Idle clients by TLS, by target.
    pub idle: Vec<(String, idle::Figures)>,
}

/// Runs the section; what could not be done is a note.
pub fn measure(
    args: &Args,
    lineup: &Lineup,
    site: &Site<'_>,
    load: &Load<'_>,
    deadline: Instant,
    notes: &mut Vec<String>,
) -> Result<Secured> {
    let certificate = Certificate::make(site.cluster.dir())?;
    let mut secured = Secured {
        names: lineup.compared().map(Start::name).collect(),
        ..Secured::default()
    };
    for kind in Kind::ALL {
        let mut site = site.clone();
        site.certificate = (kind != Kind::Logins).then(|| certificate.clone());
        let start = |starter: &dyn Start| starter.start(&site, kind.auth());
        let peers = lineup
            .compared()
            .map(start)
            .collect::<Result<Vec<Peer>>>()?;
        let targets: Vec<Target> = peers.iter().map(|peer| peer.target.clone()).collect();
        let load = Load {
            connect: kind != Kind::Tls,
            ..load.clone()
        };
        let plan = Plan {
            cells: vec![kind.cell()],
            rounds: args.rounds,
            deadline,
        };
        eprintln!("{}", kind.words());
        secured.results.push((kind, plan.run(&load, &targets)?));
    }
    let mut site = site.clone();
    site.certificate = Some(certificate);
    site.ready = Ready::Listens;
    for starter in lineup.compared() {
        let name = starter.name();
        eprintln!("{IDLE_CLIENTS} idle clients of {name} by TLS");
        match sit(starter, &site) {
            Ok(figures) => secured.idle.push((name, figures)),
            Err(error) => {
                site.interrupt.check()?;
                notes.push(format!("idle clients of {name} by TLS: {error:#}"));
            }
        }
    }
    Ok(secured)
}

fn sit(starter: &dyn Start, site: &Site<'_>) -> Result<idle::Figures> {
    let peer = starter.start(site, Auth::Scram)?;
    let plan = idle::Plan {
        clients: IDLE_CLIENTS,
        watched_clients: IDLE_CLIENTS / 2,
        seconds: 3,
    };
    idle::measure(&peer.target.dsn, peer.pid()?, plan, site.interrupt)
}

const IDLE_CLIENTS: u32 = 2_000;
