//! The process's life: bind, start the shards, wait for a signal, drain.

use crate::client::{Brakes, Places};
use crate::config::{Balance, Config, ListenAddr, Pin};
use crate::control::Event;
use crate::desk::{self, Desk};
use crate::listeners::{self, Inherited};
use crate::logging;
use crate::memory::Memory;
use crate::notify::{self, Phase};
use crate::preflight;
use crate::reload::{Loader, Operator, Parts};
use crate::resolver::{Refresher, Resolver};
use crate::shard::{Answers, Loads, Mail, Postbox, Reports, Roles, ShardSeed, Targets, run};
use crate::snapshot::Snapshot;
use crate::succession::Succession;
use ::pool::Budget;
use admin::stats::ShardStats;
use admin::thread::{Listening, Thread};
use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, bounded};
use glommio::{LocalExecutorBuilder, Placement};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGUSR1};
use signal_hook::iterator::Signals;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::time::{Duration, Instant};

/// How the process came to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// Told to, with all transactions ended.
    Drained,
    /// Told to, and `proxy.shutdown_timeout` ran out.
    TimedOut,
    /// Told to twice.
    Forced,
}

/// Why it could not start, or could not go on.
#[derive(Debug)]
pub enum StartError {
    /// An address cannot be listened on.
    Listen(ListenAddr, io::Error),
    /// A shard cannot start, or has failed.
    Shard(usize, String),
    /// An address for operators cannot be listened on, or their thread cannot be
    /// started.
    Admin(&'static str, io::Error),
    /// The control socket cannot be made, or who has it does not hand over.
    Control(PathBuf, io::Error),
    /// The signal handlers cannot be installed.
    Signals(io::Error),
    /// The thread that looks names up again cannot be started.
    Resolver(io::Error),
    /// The certificates have changed since they were checked, and are wrong now.
    Certificates(String),
}

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StartError::Listen(address, error) => {
                write!(
                    f,
                    "cannot listen on {address}: {error}; stop who listens there, or choose another proxy.listen"
                )
            }
            StartError::Admin(key, error) => {
                write!(f, "cannot listen on {key}: {error}; choose another address")
            }
            StartError::Shard(id, reason) => write!(f, "shard {id} has failed: {reason}"),
            StartError::Control(path, error) => write!(
                f,
                "control.socket {}: {error}; end the process that has it, or choose another",
                path.display()
            ),
            StartError::Certificates(text) => f.write_str(text),
            StartError::Resolver(error) => write!(f, "cannot start the resolver: {error}"),
            StartError::Signals(error) => write!(f, "cannot handle signals: {error}"),
        }
    }
}

impl std::error::Error for StartError {}

/// Serves until told to stop.
///
/// `file`: where the configuration is; `load` reads it anew.
pub fn serve(config: Config, file: &Path, load: Loader) -> Result<Exit, StartError> {
    let signals = Signals::new([SIGHUP, SIGINT, SIGTERM, SIGUSR1]).map_err(StartError::Signals)?;
    let shards = shard_count(&config);
    let mut succession = Succession::begin(&config)?;
    let inherited = succession.sockets();
    if !inherited.is_empty() {
        let had = |address: &&ListenAddr| !inherited.iter().any(|(at, _)| at == *address);
        for address in config.proxy.listen.iter().filter(had) {
            let failed = |text| StartError::Listen(address.clone(), io::Error::other(text));
            preflight::listenable(address).map_err(failed)?;
        }
    }
    let failed = |(address, error)| StartError::Listen(address, error);
    let (addresses, listeners) =
        listeners::open(&config.proxy.listen, shards, inherited).map_err(failed)?;
    let listening = desk::listen(&config.admin)?;
    let spare = spare(&addresses, &listeners, succession.is_wanted())?;
    let start = Start {
        load,
        file: file.to_owned(),
        shards,
        listeners,
    };
    let running = Running::start(config, start, &mut succession)?;
    succession.announce(&running.operator, spare)?;
    running.operator.watch();
    let thread = running.serve_operators(listening)?;
    let list: Vec<String> = addresses.iter().map(ToString::to_string).collect();
    tracing::info!(listen = %list.join(", "), shards, "ready");
    notify::tell(Phase::Ready, "serving");
    let exit = running.wait(signals, &succession);
    if let Some(thread) = thread {
        thread.stop();
    }
    if !succession.is_over() {
        for address in &addresses {
            if let ListenAddr::Unix(path) = address {
                // Somebody may have removed it already.
                let _ = std::fs::remove_file(path);
            }
        }
    }
    exit
}

/// The listening sockets once more, for a process that takes over.
fn spare(
    addresses: &[ListenAddr],
    listeners: &listeners::ByShard,
    wanted: bool,
) -> Result<Vec<Inherited>, StartError> {
    let mut spare = Vec::new();
    for fd in listeners.iter().flatten().filter(|_| wanted) {
        let Some(address) = listeners::address_of(fd) else {
            continue;
        };
        // A unix socket is one, which all shards share.
        let known = |(at, _): &Inherited| *at == address;
        if matches!(address, ListenAddr::Unix(_)) && spare.iter().any(known) {
            continue;
        }
        let failed = |error| StartError::Listen(addresses[0].clone(), error);
        spare.push((address, fd.try_clone().map_err(failed)?));
    }
    Ok(spare)
}

/// As configured, or one for each CPU that this process may use.
pub fn shard_count(config: &Config) -> usize {
    let usable = || std::thread::available_parallelism().map_or(1, usize::from);
    config.engine.shards.unwrap_or_else(usable)
}

/// What the shards are started with.
struct Start {
    load: Loader,
    file: PathBuf,
    shards: usize,
    listeners: listeners::ByShard,
}

/// The shards, started.
struct Running {
    operator: Arc<Operator>,
    /// Ends with this.
    _refresher: Option<Refresher>,
    places: Arc<Places>,
    posts: Vec<Postbox>,
    ended: Receiver<(usize, Result<(), String>)>,
    alive: usize,
}

impl Running {
    fn start(
        config: Config,
        start: Start,
        succession: &mut Succession,
    ) -> Result<Self, StartError> {
        let Start { shards, .. } = start;
        let snapshot = Snapshot::first(config, shards).map_err(StartError::Certificates)?;
        let snapshot = Arc::new(snapshot);
        let reports = Arc::new(Reports::default());
        let answers = Arc::new(Answers::default());
        let brakes = Arc::new(Brakes::default());
        let places = Arc::new(Places::default());
        let roles = Arc::new(Roles::new(shards));
        let resolver = Resolver::new(snapshot.engine.hosts_file.clone());
        let targets = Arc::new(Targets::new(snapshot.breaker, resolver));
        let loads = Arc::new(Loads::new(shards, snapshot.engine.balance != Balance::Off));
        let replications = Arc::new(Budget::new(
            snapshot.proxy.max_replication_connections,
            shards,
        ));
        let memory = Arc::new(Memory::new(snapshot.engine.memory_max));
        let inhabited = Arc::new(AtomicUsize::new(shards));
        let (hello, hellos) = bounded(shards);
        let (end, ended) = bounded(shards);
        let mut peers = Vec::new();
        for (id, listeners) in start.listeners.into_iter().enumerate() {
            let (send, receive) = bounded(1);
            peers.push(send);
            let seed = ShardSeed {
                id,
                snapshot: Arc::clone(&snapshot),
                reports: Arc::clone(&reports),
                answers: Arc::clone(&answers),
                brakes: Arc::clone(&brakes),
                places: Arc::clone(&places),
                roles: Arc::clone(&roles),
                targets: Arc::clone(&targets),
                memory: Arc::clone(&memory),
                loads: Arc::clone(&loads),
                replications: Arc::clone(&replications),
                inhabited: Arc::clone(&inhabited),
                crowded: shards > usable_cpus().len(),
                listeners,
                own: succession.own_listener(id),
                kin: Arc::clone(&succession.kin),
                hello: hello.clone(),
                peers: receive,
            };
            spawn(
                seed,
                placement(snapshot.engine.pin, id, shards),
                end.clone(),
            )?;
        }
        let posts = introduce(shards, &hellos, &ended, &peers)?;
        memory.watch(&posts);
        logging::set_level(snapshot.log_level.as_deref());
        let refresher = refresher(&snapshot.config, Arc::clone(&targets), posts.clone())?;
        let operator = Operator::new(Parts {
            file: start.file,
            load: start.load,
            snapshot,
            posts: posts.clone(),
            roles,
            answers,
            replications,
            targets,
        });
        Ok(Self {
            operator: Arc::new(operator),
            _refresher: refresher,
            places,
            posts,
            ended,
            alive: shards,
        })
    }

    /// The admin thread, if somebody is to be listened to.
    fn serve_operators(&self, listening: Vec<Listening>) -> Result<Option<Thread>, StartError> {
        if listening.is_empty() {
            return Ok(None);
        }
        let (operator, places) = (Arc::clone(&self.operator), Arc::clone(&self.places));
        let desk = Desk::new(operator, self.posts.clone(), places);
        let thread = Thread::start(Arc::new(desk), listening);
        thread
            .map(Some)
            .map_err(|error| StartError::Admin("admin.listen", error))
    }

    fn wait(mut self, mut signals: Signals, succession: &Succession) -> Result<Exit, StartError> {
        let (caught, arrivals) = bounded(4);
        let handle = signals.handle();
        let forwarder = std::thread::spawn(move || {
            for signal in signals.forever() {
                if caught.send(signal).is_err() {
                    return;
                }
            }
        });
        let exit = self.watch(&arrivals, succession);
        handle.close();
        drop(arrivals);
        // It ends when the handle is closed; it cannot fail.
        let _ = forwarder.join();
        exit
    }

    fn watch(
        &mut self,
        arrivals: &Receiver<i32>,
        succession: &Succession,
    ) -> Result<Exit, StartError> {
        let mut deadline: Option<Instant> = None;
        // Another process has taken over: until then logins may end.
        let mut logins_end: Option<Instant> = None;
        loop {
            let next = match logins_end {
                Some(_) => Some(Instant::now() + LOGINS_LOOK),
                None => deadline,
            };
            let timeout = next.map_or_else(crossbeam_channel::never, crossbeam_channel::at);
            crossbeam_channel::select! {
                recv(arrivals) -> signal => match signal {
                    Ok(SIGUSR1) => self.log_stats(),
                    Ok(SIGHUP) => drop(self.operator.reload()),
                    Ok(_) if deadline.is_none() => {
                        logins_end = None;
                        deadline = Some(self.stop(succession));
                    }
                    Ok(_) | Err(_) => return Ok(Exit::Forced),
                },
                recv(succession.events) -> event => if let (Ok(Event::TakenOver { done }), None) = (event, deadline) {
                    // No new clients are to be sent here, and none come.
                    self.operator.stop();
                    self.operator.leave_listeners();
                    let _ = done.try_send(());
                    logins_end = Some(Instant::now() + LOGINS_END);
                },
                recv(self.ended) -> ended => {
                    if let Ok((id, Err(reason))) = ended {
                        return Err(StartError::Shard(id, reason));
                    }
                    self.alive -= 1;
                    if self.alive == 0 {
                        return Ok(Exit::Drained);
                    }
                },
                recv(timeout) -> _ => match logins_end {
                    Some(end) => if Instant::now() >= end || self.stats().logging_in == 0 {
                        logins_end = None;
                        deadline = Some(self.stop(succession));
                    },
                    None => {
                        self.post_all(|| Mail::Stop);
                        self.wait_for_stragglers();
                        return Ok(Exit::TimedOut);
                    }
                }
            }
        }
    }

    /// No new clients, and those that are there leave when they may. Until when they may stay.
    fn stop(&self, succession: &Succession) -> Instant {
        let timeout = self.operator.snapshot().proxy.shutdown_timeout;
        tracing::info!(?timeout, "stopping: no new clients, transactions may end");
        self.operator.stop();
        notify::tell(Phase::Stopping, "transactions may end");
        succession.let_go();
        self.post_all(|| Mail::Drain);
        Instant::now() + timeout
    }

    /// Clients that were told to leave at once get a moment to hear it.
    fn wait_for_stragglers(&mut self) {
        let deadline = Instant::now() + STRAGGLE;
        while self.alive > 0 {
            match self
                .ended
                .recv_timeout(deadline.saturating_duration_since(Instant::now()))
            {
                Ok(_) => self.alive -= 1,
                Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => return,
            }
        }
    }

    fn post_all(&self, mail: impl Fn() -> Mail) {
        for post in &self.posts {
            post.post(mail());
        }
    }

    fn log_stats(&self) {
        tracing::info!("stats {}", self.stats());
    }

    fn stats(&self) -> ShardStats {
        let (reply, replies) = bounded(self.posts.len());
        self.post_all(|| Mail::Stats(reply.clone()));
        let mut sum = ShardStats::default();
        for _ in &self.posts {
            if let Ok(stats) = replies.recv_timeout(STATS_PATIENCE) {
                sum.merge(&stats);
            }
        }
        sum
    }
}

/// Looks the names of targets up again, and tells the shards what has changed.
fn refresher(
    config: &Config,
    targets: Arc<Targets>,
    posts: Vec<Postbox>,
) -> Result<Option<Refresher>, StartError> {
    let interval = config.engine.dns_interval.filter(|time| !time.is_zero());
    let Some(interval) = interval else {
        return Ok(None);
    };
    let tell = move |id| {
        for post in &posts {
            post.post(Mail::Target { id });
        }
    };
    Refresher::start(targets, interval, tell)
        .map(Some)
        .map_err(StartError::Resolver)
}

/// Collects every shard's postbox and hands all of them to every shard.
fn introduce(
    shards: usize,
    hellos: &Receiver<(usize, Postbox)>,
    ended: &Receiver<(usize, Result<(), String>)>,
    peers: &[Sender<Vec<Postbox>>],
) -> Result<Vec<Postbox>, StartError> {
    let mut posts: Vec<Option<Postbox>> = vec![None; shards];
    while posts.iter().any(Option::is_none) {
        crossbeam_channel::select! {
            recv(hellos) -> hello => {
                if let Ok((id, post)) = hello {
                    posts[id] = Some(post);
                }
            },
            recv(ended) -> ended => {
                let (id, reason) = ended.unwrap_or((0, Err("it ended while starting".into())));
                return Err(StartError::Shard(id, reason.err().unwrap_or_else(|| "it ended while starting".into())));
            },
        }
    }
    let posts: Vec<Postbox> = posts.into_iter().flatten().collect();
    for peer in peers {
        // A shard that is gone reports its end by itself.
        let _ = peer.send(posts.clone());
    }
    Ok(posts)
}

/// The least that glommio takes.
const UNUSED_STORAGE: usize = 64 << 10;

fn spawn(
    seed: ShardSeed,
    placement: Placement,
    end: Sender<(usize, Result<(), String>)>,
) -> Result<(), StartError> {
    let id = seed.id;
    let failed = move |error: &dyn fmt::Display| StartError::Shard(id, error.to_string());
    let executor = LocalExecutorBuilder::new(placement)
        .name(&format!("shard-{id}"))
        // The driver never leaves the run queue, so the executor's own rings
        // are looked at only when its slice ends.
        .preempt_timer(Duration::from_millis(100))
        // Buffers of glommio's own storage, 10 MiB unless told: not used.
        .io_memory(UNUSED_STORAGE)
        .spawn(move || async move { run(seed).await.map_err(|error| error.to_string()) })
        .map_err(|error| failed(&error))?;
    std::thread::spawn(move || {
        let outcome = executor.join();
        let outcome = outcome.unwrap_or_else(|error| Err(format!("its executor died: {error}")));
        // Nobody listens any more once the process ends.
        let _ = end.send((id, outcome));
    });
    Ok(())
}

/// Pinned when there is a core for each shard, unless the operator says
/// otherwise.
fn placement(pin: Pin, shard: usize, shards: usize) -> Placement {
    let cpus = usable_cpus();
    let wanted = match pin {
        Pin::On => true,
        Pin::Off => false,
        Pin::Auto => shards > 1 && shards <= cpus.len(),
    };
    match cpus.get(shard % cpus.len().max(1)) {
        Some(&cpu) if wanted => Placement::Fixed(cpu),
        _ => Placement::Unbound,
    }
}

/// The CPUs that this process may use.
fn usable_cpus() -> Vec<usize> {
    let set = rustix::thread::sched_getaffinity(None).ok();
    let usable = set.map(|set| {
        (0..rustix::thread::CpuSet::MAX_CPU)
            .filter(|&cpu| set.is_set(cpu))
            .collect()
    });
    usable.unwrap_or_default()
}

/// How often it is looked whether logins have ended.
const LOGINS_LOOK: Duration = Duration::from_millis(20);
/// How long logins may take that had begun when another process took over.
const LOGINS_END: Duration = Duration::from_secs(5);
/// For the last words to clients that are cut off.
const STRAGGLE: Duration = Duration::from_secs(1);
/// A shard that does not answer within this is not counted.
const STATS_PATIENCE: Duration = Duration::from_secs(1);
