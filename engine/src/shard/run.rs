//! A shard's life, from its thread's start to its end.

use super::{
    Answers, Balancer, Cancels, Clients, Counters, Deadlines, Door, Loads, Mail, Mailbox, Offload,
    Postbox, ProcessIds, Reports, Roles, Shard, Targets, Wishes, cancel, deadlines, listen,
    questions,
};
use crate::client::{Brakes, Places};
use crate::config::Balance;
use crate::control::Kin;
use crate::link::Handshakes;
use crate::memory::Memory;
use crate::ring::{Ring, Sizes, drive, task};
use crate::signal::Signal;
use crate::snapshot::{InForce, Snapshot};
use ::pool::Budget;
use crossbeam_channel::{Receiver, Sender};
use std::cell::{Cell, RefCell};
use std::io;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// What a shard is made of, handed to its thread.
pub struct ShardSeed {
    /// Its number.
    pub id: usize,
    /// What it serves by at first.
    pub snapshot: Arc<Snapshot>,
    /// What PostgreSQL has said of users.
    pub answers: Arc<Answers>,
    /// Who has failed to log in.
    pub brakes: Arc<Brakes>,
    /// How many clients there are.
    pub places: Arc<Places>,
    /// The roles of clients.
    pub roles: Arc<Roles>,
    /// What servers report at login.
    pub reports: Arc<Reports>,
    /// The PostgreSQLs.
    pub targets: Arc<Targets>,
    /// Whether there is memory.
    pub memory: Arc<Memory>,
    /// Clients of all shards.
    pub loads: Arc<Loads>,
    /// The replication connections that all shards together may have.
    pub replications: Arc<Budget>,
    /// The shards that have not got rid of their clients yet.
    pub inhabited: Arc<AtomicUsize>,
    /// There are more shards than CPUs.
    pub crowded: bool,
    /// Its listening sockets.
    pub listeners: Vec<OwnedFd>,
    /// One that only this process has, on one shard.
    pub own: Option<OwnedFd>,
    /// The processes before and after this one.
    pub kin: Arc<Kin>,
    /// Where it says how it can be reached.
    pub hello: Sender<(usize, Postbox)>,
    /// How the others can be reached, in order.
    pub peers: Receiver<Vec<Postbox>>,
}

/// The receive buffers are pinned, which fails for a moment when the kernel
/// cannot move what is in the way: seen where many processes started at once.
fn open_ring() -> io::Result<Ring> {
    let mut tries = RING_TRIES;
    loop {
        let short = match Ring::new(Sizes::default()) {
            Err(error) if error.raw_os_error() == Some(libc::ENOMEM) => error,
            other => return other,
        };
        tries -= 1;
        if tries == 0 {
            return Err(short);
        }
        // Nothing else runs on this thread yet.
        std::thread::sleep(RING_PAUSE);
    }
}

/// Runs a shard until it has drained. Ends with an error when the ring cannot
/// be made or fails.
pub async fn run(seed: ShardSeed) -> io::Result<()> {
    let ring = open_ring()?;
    let mailbox = Mailbox::new(&ring, seed.snapshot.engine.mailbox as usize);
    let gone = |_| io::Error::other("the process gave up starting");
    seed.hello
        .send((seed.id, mailbox.postbox()))
        .map_err(gone)?;
    // Blocking is right here: nothing else runs on this thread yet.
    let peers = seed
        .peers
        .recv()
        .map_err(|_| io::Error::other("the process gave up starting"))?;
    let shard = Rc::new(Shard {
        id: seed.id,
        ring: ring.clone(),
        answers: seed.answers,
        brakes: seed.brakes,
        places: seed.places,
        roles: seed.roles,
        reports: seed.reports,
        targets: seed.targets,
        memory: seed.memory,
        loads: seed.loads,
        balancer: Balancer::default(),
        replications: seed.replications,
        handshakes: Handshakes::default(),
        clients: Clients::default(),
        counters: Counters::default(),
        times: super::Times::default(),
        deadlines: Deadlines::default(),
        limits: RefCell::default(),
        faults: super::Faults::default(),
        acquires: RefCell::default(),
        maintenance: super::Maintenance::default(),
        process_ids: ProcessIds::new(seed.snapshot.engine.instance_id, peers.len()),
        cancels: Cancels::new(seed.snapshot.peers.len()),
        snapshot: RefCell::new(Rc::new(InForce::new(seed.snapshot))),
        staged: RefCell::default(),
        door: Door::default(),
        waiting: Cell::new(0),
        drain: Signal::default(),
        deaf: Signal::default(),
        taken_over: Signal::default(),
        listening: Cell::new(0),
        kin: seed.kin,
        inhabited: seed.inhabited,
        finished: Signal::default(),
        group_pools: RefCell::default(),
        role_pools: RefCell::default(),
        lookups: RefCell::default(),
        mailbox,
        peers,
        offload: Offload::default(),
        ids: Cell::new(0),
        scratch: RefCell::default(),
        definitions: RefCell::default(),
    });
    if shard.config().engine.balance == Balance::Restless && shard.peers.len() > 1 {
        shard.clients.tell_all(Wishes::RESTLESS);
    }
    shard.open_pools();
    for fd in seed.listeners {
        task::spawn(listen::accept(Rc::clone(&shard), ring.listener(fd), false));
    }
    if let Some(fd) = seed.own {
        task::spawn(listen::accept(Rc::clone(&shard), ring.listener(fd), true));
    }
    task::spawn(deadlines::keep(Rc::clone(&shard)));
    task::spawn(watch_idle(Rc::clone(&shard)));
    task::spawn(read_mail(Rc::clone(&shard)));
    let (many_shards, clients) = (seed.crowded, Rc::clone(&shard));
    let crowded = || many_shards || clients.waiting.get() > 0;
    drive(&ring, crowded, || shard.finished.is_given())
}

/// Servers that nobody uses still speak: settings change, PostgreSQL stops.
async fn watch_idle(shard: Rc<Shard>) {
    loop {
        shard.ring.idle_news().await;
        for pool in shard.pools() {
            pool.sweep_dead();
            pool.start_logins();
        }
    }
}

async fn read_mail(shard: Rc<Shard>) {
    loop {
        while let Some(mail) = shard.mailbox.take() {
            open(&shard, mail);
        }
        if shard.mailbox.take_missed() {
            catch_up(&shard);
            continue;
        }
        shard.ring.woken().await;
    }
}

/// What hints would have led to that found no room. Those of roles that lack a
/// server are repeated by who lacks it.
fn catch_up(shard: &Rc<Shard>) {
    for pool in shard.pools() {
        pool.on_budget_mail();
    }
    if shard.loads.drifted() == Some(shard.id) {
        shard.give_clients_away();
    }
}

fn open(shard: &Rc<Shard>, mail: Mail) {
    match mail {
        Mail::Client(fd) => listen::welcome(shard, fd),
        Mail::Drain => {
            if !shard.drain.is_given() {
                shard.loads.stop_moves();
                shard.pools().iter().for_each(|pool| pool.stop_warming());
                shard.drain.give();
                task::spawn(drain(Rc::clone(shard)));
            }
            shard.clients.tell_all(Wishes::LEAVE);
        }
        Mail::TakenOver { reply } => {
            task::spawn(listen::leave_to_another(Rc::clone(shard), reply));
        }
        Mail::AcceptAnew => shard.ring.accept_anew(),
        Mail::Stop => shard.clients.tell_all(Wishes::STOP),
        Mail::Guest(guest) => guest.settle_in(shard),
        Mail::Left { slot } => shard.clients.free(slot),
        Mail::Shed => shard.clients.ask_to_leave(),
        Mail::Balance => shard.give_clients_away(),
        Mail::Server(arriving) => shard.on_arriving(*arriving),
        Mail::Budget { pool } => {
            if let Some(pool) = shard.find_pool(pool) {
                pool.on_budget_mail();
            }
        }
        Mail::Target { id } => shard.hear_news(id),
        Mail::Offer { group } => shard.offer_idle(group),
        Mail::Evict { group } => shard.evict_idle(group),
        Mail::LookUp { group, user, guard } => shard.look_up_here(group, user, guard),
        Mail::Cancel {
            slot,
            key,
            guard,
            until,
            known,
        } => cancel::take(shard, slot, key, guard, until, &known),
        Mail::CancelGuest { home, guard, until } => {
            cancel::take_for_guest(shard, home, guard, until);
        }
        Mail::Stage { snapshot, reply } => shard.stage(snapshot, &reply),
        Mail::Commit { number, reply } => shard.commit(number, &reply),
        Mail::Follow { reply } => shard.follow_switches(&reply),
        Mail::EndClients { group } => shard.clients.tell(Some(group), Wishes::STOP),
        Mail::Stats(reply) => {
            // The asker may have lost patience.
            let _ = reply.try_send(shard.stats());
        }
        Mail::Ask(question) => questions::answer(shard, question),
        Mail::Done { id, result } => shard.job_done(id, result),
    }
}

/// Waits for the clients to leave, says goodbye to the servers, ends the shard.
/// Cancel requests are taken as long as any shard has clients: they come to any.
async fn drain(shard: Rc<Shard>) {
    // One that was on its way here when moves were stopped does not find its
    // shard gone.
    while !shard.clients.is_empty() || shard.loads.expects(shard.id) {
        shard.ring.sleep(DRAIN_POLL).await;
    }
    shard.inhabited.fetch_sub(1, Ordering::AcqRel);
    while shard.inhabited.load(Ordering::Acquire) > 0 {
        shard.ring.sleep(DRAIN_POLL).await;
    }
    shard.deaf.give();
    while !shard.clients.is_empty() || shard.door.count() > 0 {
        shard.ring.sleep(DRAIN_POLL).await;
    }
    let deadline = Instant::now() + GOODBYES;
    loop {
        // Again and again: another shard may have sent some meanwhile.
        let pools = shard.pools();
        pools.iter().for_each(|pool| pool.close_all_idle());
        let is_done = shard.stats().servers == 0 && !pools.iter().any(|pool| pool.is_expecting());
        if is_done || Instant::now() >= deadline {
            break;
        }
        shard.ring.sleep(DRAIN_POLL).await;
    }
    shard.finished.give();
}

const DRAIN_POLL: Duration = Duration::from_millis(5);
/// How long the servers may take to close their ends.
const GOODBYES: Duration = Duration::from_millis(500);

const RING_TRIES: u32 = 5;
const RING_PAUSE: Duration = Duration::from_millis(100);
