//! What strangers do to those who are let in: how long a login and a query
//! take while a crowd tries wrong passwords or never ends its logins.

use std::collections::VecDeque;
use std::io::{Read, Write};
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use bytes::BytesMut;
use postgres_protocol::message::frontend;
use socket2::Socket;

use crate::certificate::SSL_REQUEST;
use crate::dsn::Dsn;
use crate::idle::{make_room, source};
use crate::interrupt::Interrupt;
use crate::login::{Session, connect};
use crate::procfs;
use crate::stats::percentile;

/// How large the crowds are.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// Logins with a wrong password.
    pub wrong_passwords: u32,
    /// Connections that send a startup packet and nothing more.
    pub half_open: u32,
    /// Connections that begin a TLS handshake and do nothing more.
    pub stalled: u32,
    /// Clients that ask one query after the other all the time.
    pub runners: u32,
    /// The least time of a phase.
    pub seconds: u32,
}

/// What was seen in one phase.
#[derive(Clone, Debug, Default)]
pub struct Phase {
    /// Its name.
    pub name: &'static str,
    /// Microseconds of each good login, sorted.
    pub logins_us: Vec<u32>,
    /// Microseconds of each query of the running clients, sorted.
    pub queries_us: Vec<u32>,
    /// Good logins that failed.
    pub failed: u32,
    /// What the crowd did, in words.
    pub crowd: String,
    /// Memory of the target at the end of it.
    pub rss_kib: u64,
}

impl Phase {
    /// A line of the table: median, 99th percentile and maximum of both.
    pub fn line(&self) -> String {
        let at = |sorted: &[u32], share| percentile(sorted, share).unwrap_or(0.0) / 1000.0;
        format!(
            "{:<18} {:>7} {:>8.2} {:>8.2} {:>8.2} {:>8} {:>8.3} {:>8.3} {:>7} {:>9}  {}",
            self.name,
            self.logins_us.len(),
            at(&self.logins_us, 0.5),
            at(&self.logins_us, 0.99),
            at(&self.logins_us, 1.0),
            self.queries_us.len(),
            at(&self.queries_us, 0.5),
            at(&self.queries_us, 0.99),
            self.failed,
            self.rss_kib,
            self.crowd
        )
    }

    /// The head of the table; times are milliseconds.
    pub fn head() -> String {
        format!(
            "{:<18} {:>7} {:>8} {:>8} {:>8} {:>8} {:>8} {:>8} {:>7} {:>9}  crowd",
            "phase",
            "logins",
            "median",
            "p99",
            "max",
            "queries",
            "median",
            "p99",
            "failed",
            "RSS KiB"
        )
    }
}

/// Runs all phases, the quiet one first and last.
pub fn measure(dsn: &Dsn, pid: u32, plan: Plan, interrupt: &Interrupt) -> Result<Vec<Phase>> {
    if !matches!(dsn.host.as_str(), "127.0.0.1" | "localhost") {
        bail!("only a target on 127.0.0.1 is attacked");
    }
    let guesses = u32::try_from(GUESSERS * GUESSES_OPEN)?;
    make_room(
        (plan.half_open + plan.stalled).max(guesses) + plan.runners,
        pid,
    )?;
    let phase = |name, crowd: &mut dyn FnMut() -> Result<String>| {
        let mut phase = watch(dsn, name, plan, interrupt, crowd)?;
        phase.rss_kib = phase.rss_kib.max(procfs::rss_kib(pid)?);
        anyhow::Ok(phase)
    };
    let mut held = Vec::new();
    let mut phases = vec![
        phase("quiet", &mut || Ok(String::new()))?,
        phase("wrong passwords", &mut || guess(dsn, plan, interrupt))?,
        phase("half open", &mut || {
            let told = hold(dsn, plan, interrupt, &mut held)?;
            interrupt.sleep(Duration::from_secs(plan.seconds.into()))?;
            Ok(told)
        })?,
    ];
    held.clear();
    if plan.stalled > 0 {
        phases.push(phase("stalled TLS", &mut || {
            let told = stall(dsn, plan, interrupt, &mut held)?;
            interrupt.sleep(Duration::from_secs(plan.seconds.into()))?;
            Ok(told)
        })?);
        held.clear();
    }
    phases.push(phase("quiet again", &mut || Ok(String::new()))?);
    Ok(phases)
}

/// Good clients work while the crowd does, and for `plan.seconds` at least.
fn watch(
    dsn: &Dsn,
    name: &'static str,
    plan: Plan,
    interrupt: &Interrupt,
    crowd: &mut dyn FnMut() -> Result<String>,
) -> Result<Phase> {
    let stop = AtomicBool::new(false);
    let failed = AtomicU32::new(0);
    let end = Instant::now() + Duration::from_secs(plan.seconds.into());
    let going = || !stop.load(Ordering::Relaxed);
    std::thread::scope(|scope| {
        let logins = scope.spawn(|| {
            let mut times = Vec::new();
            while going() {
                let begin = Instant::now();
                match Session::open(dsn, Some(FRIEND)) {
                    Ok(session) => {
                        times.push(micros(begin.elapsed()));
                        session.close();
                    }
                    Err(_) => {
                        failed.fetch_add(1, Ordering::Relaxed);
                    }
                }
                std::thread::sleep(BETWEEN_LOGINS);
            }
            times
        });
        let run = || -> Result<Vec<u32>> {
            let session = Session::open(dsn, Some(FRIEND))?;
            let mut times = Vec::new();
            while going() {
                let begin = Instant::now();
                session.ask()?;
                times.push(micros(begin.elapsed()));
                std::thread::sleep(BETWEEN_QUERIES);
            }
            session.close();
            Ok(times)
        };
        let runners: Vec<_> = (0..plan.runners).map(|_| scope.spawn(run)).collect();
        let told = crowd().and_then(|told| {
            interrupt.sleep(end.saturating_duration_since(Instant::now()))?;
            Ok(told)
        });
        stop.store(true, Ordering::Relaxed);
        let mut phase = Phase {
            name,
            logins_us: logins.join().unwrap_or_default(),
            ..Phase::default()
        };
        for runner in runners {
            let times = runner
                .join()
                .unwrap_or_else(|_| bail!("a client panicked"))?;
            phase.queries_us.extend(times);
        }
        phase.logins_us.sort_unstable();
        phase.queries_us.sort_unstable();
        phase.failed = failed.load(Ordering::Relaxed);
        phase.crowd = told?;
        Ok(phase)
    })
}

/// Logins with proofs that are wrong. Nothing is hashed for them: the cost is
/// the target's alone.
fn guess(dsn: &Dsn, plan: Plan, interrupt: &Interrupt) -> Result<String> {
    let left = AtomicU32::new(plan.wrong_passwords);
    let (refused, turned_away) = (AtomicU32::new(0), AtomicU32::new(0));
    let begin = Instant::now();
    std::thread::scope(|scope| {
        for thread in 0..GUESSERS {
            let (left, refused, turned_away) = (&left, &refused, &turned_away);
            scope.spawn(move || {
                stand_back();
                let one = || {
                    left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |n| n.checked_sub(1))
                };
                let mut nth = thread;
                // A refusal comes late on purpose; nobody who guesses waits for it.
                let mut guessed = VecDeque::new();
                let settle = |socket: Option<Socket>| {
                    let count = match socket.as_ref().map(refusal) {
                        Some(Ok(true)) => refused,
                        _ => turned_away,
                    };
                    count.fetch_add(1, Ordering::Relaxed);
                };
                while one().is_ok() && interrupt.check().is_ok() {
                    nth += GUESSERS;
                    guessed.push_back(guess_once(dsn, nth).ok().flatten());
                    if guessed.len() > GUESSES_OPEN {
                        guessed.pop_front().into_iter().for_each(settle);
                    }
                }
                guessed.into_iter().for_each(settle);
            });
        }
    });
    interrupt.check()?;
    Ok(format!(
        "{} refused and {} turned away in {:.1} s",
        refused.into_inner(),
        turned_away.into_inner(),
        begin.elapsed().as_secs_f64()
    ))
}

/// A login with a wrong proof, up to the answer; none when it did not come so far.
fn guess_once(dsn: &Dsn, nth: usize) -> Result<Option<Socket>> {
    let socket = half_open(dsn, nth)?;
    socket.set_read_timeout(Some(PATIENCE))?;
    let mut chunk = [0u8; 2048];
    let first = receive(&socket, &mut chunk)?;
    let mut out = BytesMut::new();
    match first.get(5..9) {
        Some([0, 0, 0, 10]) => {
            frontend::sasl_initial_response(
                "SCRAM-SHA-256",
                b"n,,n=,r=guessguessguessguess",
                &mut out,
            )?;
            (&socket).write_all(&out)?;
            let challenge = receive(&socket, &mut chunk)?;
            let text = String::from_utf8_lossy(challenge.get(9..).unwrap_or_default());
            let nonce = text.split(',').next().unwrap_or_default();
            let zeros = "A".repeat(43);
            out.clear();
            frontend::sasl_response(format!("c=biws,{nonce},p={zeros}=").as_bytes(), &mut out)?;
        }
        Some([0, 0, 0, 3 | 5]) => frontend::password_message(b"md5-and-wrong", &mut out)?,
        _ => return Ok(None),
    }
    (&socket).write_all(&out)?;
    Ok(Some(socket))
}

/// Attackers are on machines of their own: here they get the CPU last, so that what is measured is what the target
/// makes of them. Of the calling thread only, as Linux does it.
fn stand_back() {
    // Where it is not allowed, the figures are only worse.
    let _ = rustix::process::setpriority_process(None, NICEST);
}

/// Whether the exchange went on to its end, a refusal.
fn refusal(socket: &Socket) -> Result<bool> {
    Ok(receive(socket, &mut [0u8; 2048])?.first() == Some(&b'E'))
}

fn receive<'a>(mut socket: &Socket, chunk: &'a mut [u8]) -> Result<&'a [u8]> {
    let read = socket.read(chunk)?;
    Ok(&chunk[..read])
}

/// Connections that send a startup packet and stay.
fn hold(dsn: &Dsn, plan: Plan, interrupt: &Interrupt, held: &mut Vec<Socket>) -> Result<String> {
    let begin = Instant::now();
    let mut failed = 0;
    for nth in 0..plan.half_open as usize {
        interrupt.check()?;
        match half_open(dsn, nth) {
            Ok(socket) => held.push(socket),
            Err(_) => failed += 1,
        }
    }
    let opened = begin.elapsed();
    let mut chunk = [0u8; 64];
    let waits = held.iter().filter(|socket| {
        // Who waits for a password has been asked for it; who was turned away has an error.
        socket.set_nonblocking(true).is_ok()
            && matches!((&**socket).read(&mut chunk), Ok(read) if read > 0 && chunk[0] == b'R')
    });
    let waits = waits.count();
    Ok(format!(
        "{waits} of {} wait for a password, the others were turned away ({failed} could not connect), in {:.1} s",
        plan.half_open,
        opened.as_secs_f64()
    ))
}

/// Connections that ask for TLS, say hello, and stay: the target has done its part of the handshake.
fn stall(dsn: &Dsn, plan: Plan, interrupt: &Interrupt, held: &mut Vec<Socket>) -> Result<String> {
    let begin = Instant::now();
    let config = tls()?;
    let (mut asked, mut answered) = (0, 0);
    let mut chunk = [0u8; 8192];
    for nth in 0..plan.stalled as usize {
        interrupt.check()?;
        let mut begun = || -> Result<Socket> {
            let socket = connect(dsn, source(&dsn.host, nth))?;
            socket.set_read_timeout(Some(PATIENCE))?;
            (&socket).write_all(&SSL_REQUEST)?;
            if (&socket).read(&mut chunk)? != 1 || chunk[0] != b'S' {
                bail!("the target does not speak TLS");
            }
            let name = rustls::pki_types::ServerName::try_from("localhost")?;
            rustls::ClientConnection::new(config.clone(), name)?.write_tls(&mut &socket)?;
            Ok(socket)
        };
        if let Ok(socket) = begun() {
            asked += 1;
            held.push(socket);
        }
    }
    for mut socket in held.iter() {
        answered += u32::from(socket.read(&mut chunk).is_ok_and(|read| read > 0));
    }
    Ok(format!(
        "{answered} of {asked} have the target's hello, {} tried, in {:.1} s",
        plan.stalled,
        begin.elapsed().as_secs_f64()
    ))
}

/// It comes to no certificate, so nobody need be trusted.
fn tls() -> Result<Arc<rustls::ClientConfig>> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_root_certificates(rustls::RootCertStore::empty())
        .with_no_client_auth();
    Ok(Arc::new(config))
}

fn half_open(dsn: &Dsn, nth: usize) -> Result<Socket> {
    let socket = connect(dsn, source(&dsn.host, nth))?;
    let mut out = BytesMut::new();
    let parameters = [
        ("user", dsn.user.as_str()),
        ("database", dsn.database.as_str()),
    ];
    frontend::startup_message(parameters, &mut out)?;
    (&socket).write_all(&out)?;
    Ok(socket)
}

fn micros(time: Duration) -> u32 {
    u32::try_from(time.as_micros()).unwrap_or(u32::MAX)
}

/// Where good clients come from. Attackers come from 127.0.0.1 and the next ones.
const FRIEND: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 200);
const BETWEEN_LOGINS: Duration = Duration::from_millis(20);
/// So that the running clients leave the machine to those who are measured.
const BETWEEN_QUERIES: Duration = Duration::from_millis(1);
/// The level at which others come first.
const NICEST: i32 = 19;
/// Threads that guess.
const GUESSERS: usize = 32;
/// Wrong proofs of each that wait for their answer at the same time.
const GUESSES_OPEN: usize = 128;
const PATIENCE: Duration = Duration::from_secs(10);
