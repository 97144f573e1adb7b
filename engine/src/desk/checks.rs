//! Whether primaries can be reached: a TCP connection, or one to a unix socket,
//! is made and closed. Asked at most once a second, however often somebody
//! wants to know.

use crate::config::Target;
use crate::snapshot::Snapshot;
use std::collections::HashSet;
use std::time::Duration;
use tokio::net::{TcpStream, UnixStream};
use tokio::sync::Mutex;
use tokio::time::{Instant, timeout};

/// See the module's text.
#[derive(Default)]
pub(super) struct Checks {
    /// Held while it is asked, so that all who come meanwhile get that answer.
    last: Mutex<Option<Last>>,
}

struct Last {
    at: Instant,
    asked: HashSet<Target>,
    reached: HashSet<Target>,
}

impl Checks {
    /// Those of the databases' primaries that can be.
    pub(super) async fn reached(&self, snapshot: &Snapshot) -> HashSet<Target> {
        let targets = snapshot.databases.iter();
        let targets: HashSet<Target> = targets.map(|database| database.target.clone()).collect();
        let mut last = self.last.lock().await;
        let fresh = last.as_ref();
        let fresh = fresh.filter(|last| last.at.elapsed() < FRESH && last.asked == targets);
        if let Some(fresh) = fresh {
            return fresh.reached.clone();
        }
        let asked = targets
            .iter()
            .map(|target| Box::pin(async { reach(target).await.then(|| target.clone()) }));
        let reached = super::join(asked.collect()).await;
        let reached: HashSet<Target> = reached.into_iter().flatten().collect();
        *last = Some(Last {
            at: Instant::now(),
            asked: targets,
            reached: reached.clone(),
        });
        reached
    }
}

async fn reach(target: &Target) -> bool {
    let connecting = async {
        match target {
            Target::Tcp { host, port } => {
                TcpStream::connect((host.as_str(), *port)).await.map(drop)
            }
            Target::Unix { .. } => match target.socket_path() {
                Some(path) => UnixStream::connect(path).await.map(drop),
                None => Err(std::io::ErrorKind::NotFound.into()),
            },
        }
    };
    matches!(timeout(PATIENCE, connecting).await, Ok(Ok(())))
}

/// How long an answer holds.
const FRESH: Duration = Duration::from_secs(1);
/// pgmux's reference gives a primary as long.
const PATIENCE: Duration = Duration::from_secs(2);
