//! The tasks of a shard: the one way to spawn them, and their run queue.
//!
//! The queue is ours, and the ring's driver empties it, because the driver
//! must know whether anything is runnable before it sleeps, and because a
//! transaction is two or three wake-ups long: waking and running a task
//! of glommio's executor costs some 370 instructions, here it is about 140
//! (callgrind, `pgbench -S`).
//!
//! A panic ends only its task: what it owned is dropped, the panic is counted
//! and logged.

use super::WakeHandle;
use slab::Slab;
use std::any::Any;
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Wake, Waker};

thread_local! {
    static TASKS: Tasks = Tasks::default();
}

/// The tasks of one thread.
#[derive(Default)]
struct Tasks {
    /// A place whose task is being polled is empty.
    places: RefCell<Slab<Option<Task>>>,
    /// Places to be polled, in this order.
    queue: RefCell<VecDeque<u32>>,
    calls: Arc<Calls>,
    polls: Cell<u64>,
    panics: Cell<u64>,
}

struct Task {
    future: Pin<Box<dyn Future<Output = ()>>>,
    waker: Waker,
    ticket: Arc<Ticket>,
}

/// What a waker knows of its task.
struct Ticket {
    place: u32,
    /// Is in the queue already; only its own thread looks at it.
    queued: AtomicBool,
    home: Arc<Calls>,
}

/// Wake-ups from other threads. Nothing in pgmux does that (mail comes by the
/// ring), but a waker may go anywhere.
#[derive(Default)]
struct Calls {
    places: Mutex<Vec<u32>>,
    bell: Mutex<Option<WakeHandle>>,
}

/// Starts a task on the current shard.
pub fn spawn(future: impl Future<Output = ()> + 'static) {
    TASKS.with(|tasks| tasks.spawn(Box::pin(future)));
}

/// Polls of tasks on this thread so far.
pub fn polls() -> u64 {
    TASKS.with(|tasks| tasks.polls.get())
}

/// Tasks on this thread that ended by a panic.
pub fn panics() -> u64 {
    TASKS.with(|tasks| tasks.panics.get())
}

/// Polls the tasks that are runnable now, each once. True when others have
/// become runnable meanwhile.
pub(super) fn run_queued() -> bool {
    TASKS.with(|tasks| {
        let runnable = tasks.queue.borrow().len();
        for _ in 0..runnable {
            let next = tasks.queue.borrow_mut().pop_front();
            let Some(place) = next else { break };
            tasks.poll(place);
        }
        !tasks.queue.borrow().is_empty()
    })
}

/// Has other threads ring this bell when they wake a task of this one.
pub(super) fn answer_to(bell: WakeHandle) {
    TASKS.with(|tasks| *lock(&tasks.calls.bell) = Some(bell));
    take_calls();
}

/// The bell has rung.
pub(super) fn take_calls() {
    TASKS.with(|tasks| {
        tasks
            .queue
            .borrow_mut()
            .extend(lock(&tasks.calls.places).drain(..))
    });
}

/// Drops all tasks but the one that calls, if one does; also those that others
/// start while they are dropped.
pub(super) fn drop_all() {
    TASKS.with(|tasks| {
        while let Some(task) = tasks.any() {
            tasks.contain(|| drop(task));
        }
        tasks.queue.borrow_mut().clear();
    });
}

impl Tasks {
    fn spawn(&self, future: Pin<Box<dyn Future<Output = ()>>>) {
        let mut places = self.places.borrow_mut();
        let entry = places.vacant_entry();
        let place = u32::try_from(entry.key()).expect("fewer than 2^32 tasks");
        let ticket = Arc::new(Ticket {
            place,
            queued: AtomicBool::new(true),
            home: Arc::clone(&self.calls),
        });
        entry.insert(Some(Task {
            future,
            waker: Waker::from(Arc::clone(&ticket)),
            ticket,
        }));
        self.queue.borrow_mut().push_back(place);
    }

    fn poll(&self, place: u32) {
        let task = self
            .places
            .borrow_mut()
            .get_mut(place as usize)
            .and_then(Option::take);
        // None: a wake-up that came too late.
        let Some(mut task) = task else { return };
        task.ticket.queued.store(false, Ordering::Relaxed);
        self.polls.set(self.polls.get() + 1);
        let mut cx = Context::from_waker(&task.waker);
        let polled = self.contain(|| task.future.as_mut().poll(&mut cx));
        if let Some(Poll::Pending) = polled {
            self.places.borrow_mut()[place as usize] = Some(task);
            return;
        }
        // Late wake-ups must not reach the place's next task.
        task.ticket.queued.store(true, Ordering::Relaxed);
        self.contain(|| drop(task));
        self.places.borrow_mut().remove(place as usize);
    }

    fn any(&self) -> Option<Task> {
        let mut places = self.places.borrow_mut();
        let (place, _) = places.iter().find(|(_, task)| task.is_some())?;
        places.remove(place)
    }

    /// `None` when it panicked.
    fn contain<T>(&self, work: impl FnOnce() -> T) -> Option<T> {
        match catch_unwind(AssertUnwindSafe(work)) {
            Ok(output) => Some(output),
            Err(panic) => {
                self.panics.set(self.panics.get() + 1);
                let panic = text(&*panic);
                tracing::error!(panic, "a task panicked; its connections are closed");
                None
            }
        }
    }
}

impl Wake for Ticket {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        let at_home = TASKS.try_with(|tasks| {
            let at_home = Arc::ptr_eq(&tasks.calls, &self.home);
            if at_home && !self.queued.load(Ordering::Relaxed) {
                self.queued.store(true, Ordering::Relaxed);
                tasks.queue.borrow_mut().push_back(self.place);
            }
            at_home
        });
        if at_home != Ok(true) {
            self.home.call(self.place);
        }
    }
}

impl Calls {
    fn call(&self, place: u32) {
        lock(&self.places).push(place);
        if let Some(bell) = &*lock(&self.bell) {
            bell.wake();
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn text(panic: &(dyn Any + Send)) -> &str {
    let literal = panic.downcast_ref::<&str>().copied();
    literal
        .or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("no text")
}
