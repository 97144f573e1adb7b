//! Connections: accepted, bounded in number, size and time.

use crate::answer::{self, Answer};
use crate::handle::Handle;
use crate::routes::{self, Scope};
use crate::stream::Stream;
use crate::thread::Counts;
use http_body_util::{BodyExt, LengthLimitError, Limited};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use std::cell::{Cell, RefCell};
use std::convert::Infallible;
use std::future::poll_fn;
use std::net::{IpAddr, SocketAddr};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Notify, watch};
use tokio::task::{JoinSet, spawn_local};
use tokio::time::{Instant, sleep, timeout};

/// What all connections of the thread share.
pub(crate) struct Server<H> {
    handle: Arc<H>,
    counts: Arc<Counts>,
    guests: RefCell<Vec<Rc<Guest>>>,
}

/// A connection, as the others know it.
struct Guest {
    /// A request of it is being answered.
    busy: Cell<bool>,
    /// Since when it is not.
    since: Cell<Instant>,
    /// Its place is needed for another.
    leave: Notify,
}

impl<H: Handle> Server<H> {
    pub(crate) fn new(handle: Arc<H>, counts: Arc<Counts>) -> Rc<Self> {
        Rc::new(Self {
            handle,
            counts,
            guests: RefCell::default(),
        })
    }

    /// Accepts until told to stop, and then waits for the answers that are due.
    pub(crate) async fn serve(
        self: Rc<Self>,
        listener: TcpListener,
        scope: Scope,
        mut stop: watch::Receiver<bool>,
    ) {
        let mut connections = JoinSet::new();
        loop {
            let accepted = tokio::select! {
                accepted = listener.accept() => accepted,
                _ = stop.wait_for(|stop| *stop) => break,
            };
            while connections.try_join_next().is_some() {}
            match accepted {
                Ok((stream, peer)) => {
                    let serving = Rc::clone(&self).welcome(stream, peer, scope, stop.clone());
                    connections.spawn_local(serving);
                }
                // Out of descriptors, or the peer has gone: the next may fare better.
                Err(error) => {
                    tracing::warn!(%error, "the admin API cannot accept a connection");
                    sleep(ACCEPT_PAUSE).await;
                }
            }
        }
        drop(listener);
        while connections.join_next().await.is_some() {}
    }

    async fn welcome(
        self: Rc<Self>,
        stream: TcpStream,
        peer: SocketAddr,
        scope: Scope,
        stop: watch::Receiver<bool>,
    ) {
        // Answers are small and wait for nothing.
        let _ = stream.set_nodelay(true);
        let stream = Stream::new(stream);
        let Some(guest) = self.admit() else {
            let words = answer::last_words(
                StatusCode::SERVICE_UNAVAILABLE,
                "too many connections to the admin API",
            );
            return stream.end(&words).await;
        };
        let _left = Leaving(&self, &guest);
        tokio::select! {
            () = self.converse(stream, peer.ip(), scope, &guest, stop) => {}
            () = guest.leave.notified() => {}
        }
    }

    /// Requests and answers, until either side has enough.
    async fn converse(
        &self,
        stream: Stream,
        peer: IpAddr,
        scope: Scope,
        guest: &Guest,
        mut stop: watch::Receiver<bool>,
    ) {
        let service = service_fn(|request: Request<Incoming>| {
            Box::pin(async {
                guest.busy.set(true);
                let answer = self.answer(request, peer, scope).await;
                guest.busy.set(false);
                guest.since.set(Instant::now());
                Ok::<_, Infallible>(answer.into_response())
            })
        });
        let mut connection = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(HEAD_PATIENCE)
            .max_headers(HEADERS_MAX)
            .max_buf_size(HEAD_BYTES)
            .serve_connection(TokioIo::new(stream), service);
        let mut stopping = pin!(async move {
            // The thread's end ends it too.
            let _ = stop.wait_for(|stop| *stop).await;
        });
        let mut told = false;
        let outcome = poll_fn(|cx| {
            if !told && stopping.as_mut().poll(cx).is_ready() {
                told = true;
                std::pin::Pin::new(&mut connection).graceful_shutdown();
            }
            connection.poll_without_shutdown(cx)
        })
        .await;
        let late = outcome.is_err_and(|error| error.is_timeout());
        let parts = connection.into_parts();
        // Who has said nothing is told nothing.
        let words = if late && !parts.read_buf.is_empty() {
            answer::last_words(
                StatusCode::REQUEST_TIMEOUT,
                "the request did not come in time",
            )
        } else {
            Vec::new()
        };
        parts.io.into_inner().end(&words).await;
    }

    /// Answers in any case: late, after a panic, or as it should be.
    async fn answer(&self, request: Request<Incoming>, peer: IpAddr, scope: Scope) -> Answer {
        self.counts.request();
        let (head, body) = request.into_parts();
        let routing = async {
            let route = routes::find(&head, peer, scope, &self.handle)?;
            take_in(body).await?;
            Ok::<_, Answer>(routes::act(route, &head, &self.handle, &self.counts).await)
        };
        let mut routing = pin!(timeout(ANSWER_PATIENCE, routing));
        let outcome =
            poll_fn(
                |cx| match catch_unwind(AssertUnwindSafe(|| routing.as_mut().poll(cx))) {
                    Ok(Poll::Ready(done)) => Poll::Ready(Some(done)),
                    Ok(Poll::Pending) => Poll::Pending,
                    Err(_) => Poll::Ready(None),
                },
            )
            .await;
        match outcome {
            Some(Ok(Ok(answer) | Err(answer))) => answer,
            Some(Err(_)) => {
                answer::error(StatusCode::GATEWAY_TIMEOUT, "there was no answer in time")
            }
            None => {
                self.counts.panicked();
                tracing::error!(
                    path = head.uri.path(),
                    "a request to the admin API has panicked"
                );
                answer::error(StatusCode::INTERNAL_SERVER_ERROR, "internal error")
            }
        }
    }

    /// A place for a connection; if none is free, that of the one that has said
    /// nothing for the longest time. `None` when all are being answered.
    fn admit(&self) -> Option<Rc<Guest>> {
        let mut guests = self.guests.borrow_mut();
        if guests.len() >= CONNECTIONS_MAX {
            let silent = guests
                .iter()
                .enumerate()
                .filter(|(_, guest)| !guest.busy.get());
            let longest = silent.min_by_key(|(_, guest)| guest.since.get());
            self.counts.crowded_out();
            let (at, _) = longest?;
            guests.swap_remove(at).leave.notify_one();
        }
        let guest = Rc::new(Guest {
            busy: Cell::new(false),
            since: Cell::new(Instant::now()),
            leave: Notify::new(),
        });
        guests.push(Rc::clone(&guest));
        self.counts.connections(guests.len());
        Some(guest)
    }
}

struct Leaving<'a, H>(&'a Server<H>, &'a Rc<Guest>);

impl<H> Drop for Leaving<'_, H> {
    fn drop(&mut self) {
        let mut guests = self.0.guests.borrow_mut();
        guests.retain(|guest| !Rc::ptr_eq(guest, self.1));
        self.0.counts.connections(guests.len());
    }
}

/// No request needs a body; one that has one is heard out, up to a limit.
async fn take_in(body: Incoming) -> Result<(), Answer> {
    let taken = timeout(BODY_PATIENCE, Limited::new(body, BODY_BYTES).collect()).await;
    match taken {
        Ok(Ok(_)) => Ok(()),
        Ok(Err(error)) if error.is::<LengthLimitError>() => Err(closing(answer::error(
            StatusCode::PAYLOAD_TOO_LARGE,
            &format!("the body is longer than {BODY_BYTES} bytes"),
        ))),
        Ok(Err(_)) => Err(closing(answer::error(
            StatusCode::BAD_REQUEST,
            "the body cannot be read",
        ))),
        Err(_) => Err(closing(answer::error(
            StatusCode::REQUEST_TIMEOUT,
            "the body did not come in time",
        ))),
    }
}

/// Where the next request would begin nobody knows.
fn closing(answer: Answer) -> Answer {
    answer.with(hyper::header::CONNECTION, "close")
}

/// Runs every listener until told to stop, and a little longer.
pub(crate) async fn run<H: Handle>(
    server: Rc<Server<H>>,
    listeners: Vec<(TcpListener, Scope)>,
    mut stop: watch::Receiver<bool>,
) {
    let mut serving = Vec::new();
    for (listener, scope) in listeners {
        let accepting = Rc::clone(&server).serve(listener, scope, stop.clone());
        serving.push(spawn_local(accepting));
    }
    let all = async {
        for listener in serving {
            if let Err(error) = listener.await
                && error.is_panic()
            {
                std::panic::resume_unwind(error.into_panic());
            }
        }
    };
    let mut all = pin!(all);
    tokio::select! {
        () = &mut all => return,
        // An error is the end of whoever would say it.
        _ = stop.wait_for(|stop| *stop) => {}
    }
    // Whoever has not taken its answer by then will not.
    let _ = timeout(PARTING, all).await;
}

/// Connections at a time. Scrapers and probes need a handful; the rest are
/// mistakes or attacks (reliability.md, M-2).
pub(crate) const CONNECTIONS_MAX: usize = 128;
/// Bytes of a request's head: hyper's least is half of it.
pub(crate) const HEAD_BYTES: usize = 16 * 1024;
/// Headers of a request; hyper's own limit.
const HEADERS_MAX: usize = 100;
/// Bytes of a request's body, of which nothing is used.
pub(crate) const BODY_BYTES: usize = 64 * 1024;
/// Until a request's head must be there, from the last answer or the beginning
/// on. A scraper that comes later connects anew.
const HEAD_PATIENCE: Duration = Duration::from_secs(10);
/// Until its body must be there.
const BODY_PATIENCE: Duration = Duration::from_secs(5);
/// Until a request must be answered, whatever it asks.
const ANSWER_PATIENCE: Duration = Duration::from_secs(20);
/// After an accept that failed.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// How long answers may take to leave when the process ends.
const PARTING: Duration = Duration::from_secs(1);
