//! The process's life: bind, start the shards, wait for a signal, drain.

use crate::client::{Brakes, Places};
use crate::config::{Admin, Balance, Config, ListenAddr, Pin};
use crate::desk::Desk;
use crate::logging;
use crate::memory::Memory;
use crate::net;
use crate::reload::{Loader, Operator, Parts};
use crate::resolver::{Refresher, Resolver};
use crate::shard::{Answers, Loads, Mail, Postbox, Reports, Roles, ShardSeed, Targets, run};
use crate::snapshot::Snapshot;
use ::pool::Budget;
use admin::stats::ShardStats;
use admin::thread::{Listening, Thread};
use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, bounded};
use glommio::{LocalExecutorBuilder, Placement};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGUSR1};
use signal_hook::iterator::Signals;
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
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
            StartError::Certificates(text) => f.write_str(text),
            StartError::Resolver(error) => write!(f, "cannot start the resolver: {error}"),
            StartError::Signals(error) => write!(f, "cannot handle signals: {error}"),
        }
    }
}

impl std::error::Error for StartError {}

/// Serves until told to stop.
///
/// `load`: reads the configuration anew.
pub fn serve(config: Config, load: Loader) -> Result<Exit, StartError> {
    let signals = Signals::new([SIGHUP, SIGINT, SIGTERM, SIGUSR1]).map_err(StartError::Signals)?;
    let shards = shard_count(&config);
    let (addresses, listeners) = bind_all(&config, shards)?;
    let listening = listen_for_operators(&config.admin)?;
    let running = Running::start(config, load, shards, listeners)?;
    let thread = running.serve_operators(listening)?;
    let list: Vec<String> = addresses.iter().map(ToString::to_string).collect();
    tracing::info!(listen = %list.join(", "), shards, "ready");
    let exit = running.wait(signals);
    if let Some(thread) = thread {
        thread.stop();
    }
    for address in &addresses {
        if let ListenAddr::Unix(path) = address {
            // Somebody may have removed it already.
            let _ = std::fs::remove_file(path);
        }
    }
    exit
}

/// As configured, or one for each CPU that this process may use.
pub fn shard_count(config: &Config) -> usize {
    let usable = || std::thread::available_parallelism().map_or(1, usize::from);
    config.engine.shards.unwrap_or_else(usable)
}

/// Where operators ask: bound before anything is started, as all addresses.
fn listen_for_operators(config: &Admin) -> Result<Vec<Listening>, StartError> {
    let mut all: Vec<Listening> = Vec::new();
    let mut listen = |key, address: SocketAddr, metrics, admin| {
        let failed = |error| StartError::Admin(key, error);
        let listener = net::listen(&ListenAddr::Tcp(address)).map_err(failed)?;
        tracing::info!(%address, metrics, admin, "operators may ask");
        all.push(Listening {
            listener: listener.into(),
            metrics,
            admin,
        });
        Ok(())
    };
    match (config.metrics, config.api) {
        (Some(metrics), Some(api)) if metrics == api => listen("admin.listen", api, true, true)?,
        (metrics, api) => {
            if let Some(address) = metrics {
                listen("metrics.listen", address, true, false)?;
            }
            if let Some(address) = api {
                listen("admin.listen", address, false, true)?;
            }
        }
    }
    Ok(all)
}

type Listeners = Vec<Vec<OwnedFd>>;

/// Binds every address for every shard: all before anything else is started,
/// so that a mistake ends the process at once.
fn bind_all(config: &Config, shards: usize) -> Result<(Vec<ListenAddr>, Listeners), StartError> {
    let mut all: Listeners = (0..shards).map(|_| Vec::new()).collect();
    let mut bound = Vec::new();
    for address in &config.proxy.listen {
        let failed = |error| StartError::Listen(address.clone(), error);
        let first = net::listen(address).map_err(failed)?;
        let actual = actual_address(address, &first);
        for (shard, listeners) in all.iter_mut().enumerate() {
            let own = match &actual {
                _ if shard == 0 => first.try_clone(),
                ListenAddr::Tcp(_) => net::listen(&actual),
                ListenAddr::Unix(_) => first.try_clone(),
            };
            listeners.push(own.map_err(failed)?);
        }
        bound.push(actual);
    }
    Ok((bound, all))
}

/// With the port that the kernel chose where port 0 was asked for.
fn actual_address(address: &ListenAddr, fd: &OwnedFd) -> ListenAddr {
    let local = socket2::SockRef::from(fd)
        .local_addr()
        .ok()
        .and_then(|local| local.as_socket());
    match (address, local) {
        (ListenAddr::Tcp(wanted), Some(local)) => {
            ListenAddr::Tcp(SocketAddr::new(wanted.ip(), local.port()))
        }
        _ => address.clone(),
    }
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
        load: Loader,
        shards: usize,
        listeners: Listeners,
    ) -> Result<Self, StartError> {
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
        for (id, listeners) in listeners.into_iter().enumerate() {
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
            load,
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

    fn wait(mut self, mut signals: Signals) -> Result<Exit, StartError> {
        let (caught, arrivals) = bounded(4);
        let handle = signals.handle();
        let forwarder = std::thread::spawn(move || {
            for signal in signals.forever() {
                if caught.send(signal).is_err() {
                    return;
                }
            }
        });
        let exit = self.watch(&arrivals);
        handle.close();
        drop(arrivals);
        // It ends when the handle is closed; it cannot fail.
        let _ = forwarder.join();
        exit
    }

    fn watch(&mut self, arrivals: &Receiver<i32>) -> Result<Exit, StartError> {
        let mut deadline: Option<Instant> = None;
        let mut told_to_stop = false;
        loop {
            let patience =
                deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
            let timeout = patience.map_or_else(crossbeam_channel::never, crossbeam_channel::after);
            crossbeam_channel::select! {
                recv(arrivals) -> signal => match signal {
                    Ok(SIGUSR1) => self.log_stats(),
                    Ok(SIGHUP) => drop(self.operator.reload()),
                    Ok(_) if told_to_stop => return Ok(Exit::Forced),
                    Ok(_) => {
                        let timeout = self.operator.snapshot().proxy.shutdown_timeout;
                        tracing::info!(?timeout, "stopping: no new clients, transactions may end");
                        told_to_stop = true;
                        self.operator.stop();
                        deadline = Some(Instant::now() + timeout);
                        self.post_all(|| Mail::Drain);
                    }
                    Err(_) => return Ok(Exit::Forced),
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
                recv(timeout) -> _ => {
                    self.post_all(|| Mail::Stop);
                    self.wait_for_stragglers();
                    return Ok(Exit::TimedOut);
                }
            }
        }
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
        let (reply, replies) = bounded(self.posts.len());
        self.post_all(|| Mail::Stats(reply.clone()));
        let mut sum = ShardStats::default();
        for _ in &self.posts {
            if let Ok(stats) = replies.recv_timeout(STATS_PATIENCE) {
                sum.merge(&stats);
            }
        }
        tracing::info!("stats {sum}");
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

/// For the last words to clients that are cut off.
const STRAGGLE: Duration = Duration::from_secs(1);
/// A shard that does not answer within this is not counted.
const STATS_PATIENCE: Duration = Duration::from_secs(1);
