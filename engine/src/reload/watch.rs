//! Notices that the configuration has changed, or a file that it names.
//!
//! The directories are watched, not the files: editors write another file and rename it over the old one, and Kubernetes
//! swaps a link that is a directory (`..data`) in the path of all of them. What has happened does not matter, only
//! whether the files hold something else a moment later.

use super::Operator;
use crate::config::contents;
use rustix::fs::inotify::{self, CreateFlags, WatchFlags};
use rustix::io::Errno;
use std::collections::BTreeSet;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// Reloads whenever one of the files has changed, as long as the configuration in force says `config.watch`.
pub(super) fn spawn(operator: Arc<Operator>) {
    // What changes from now on is noticed, however late the thread begins.
    let mut known = state_of(&operator);
    let watch = move || {
        while operator.snapshot().watch {
            let news = News::about(&files(&operator));
            if state_of(&operator) == known {
                news.wait();
                continue;
            }
            tracing::info!("a file of the configuration has changed");
            // What changes from here on is a change again, whatever this comes to.
            known = state_of(&operator);
            operator.reload();
            if files(&operator).len() != known.len() {
                // Other files are named now.
                known = state_of(&operator);
            }
        }
        operator
            .watched
            .store(false, std::sync::atomic::Ordering::SeqCst);
    };
    let spawned = std::thread::Builder::new()
        .name("watch".to_owned())
        .spawn(watch);
    if let Err(error) = spawned {
        tracing::error!(%error, "the configuration is not watched");
    }
}

fn files(operator: &Operator) -> Vec<PathBuf> {
    let snapshot = operator.snapshot();
    let named = snapshot.facts.files().iter().cloned();
    std::iter::once(operator.file.clone())
        .chain(named)
        .collect()
}

/// What all files hold.
fn state_of(operator: &Operator) -> Vec<(PathBuf, [u8; 32])> {
    files(operator)
        .into_iter()
        .map(|file| {
            let digest = contents(&file);
            (file, digest)
        })
        .collect()
}

/// What happens in the directories of some files from the moment on that it is made.
struct News(Option<OwnedFd>);

impl News {
    fn about(files: &[PathBuf]) -> Self {
        let news = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK);
        let news = news
            .inspect_err(|error| {
                tracing::warn!(%error, "files are not watched, but looked at now and then");
            })
            .ok();
        if let Some(news) = &news {
            for directory in directories(files) {
                // One that is not there is looked for the next time.
                let _ = inotify::add_watch(news, &directory, WHAT);
            }
        }
        Self(news)
    }

    /// Until something has happened and then nothing for a while, or until it is time to look anyway.
    fn wait(self) {
        let Some(news) = &self.0 else {
            std::thread::sleep(ANYWAY);
            return;
        };
        if !happens(news, ANYWAY) {
            return;
        }
        // A disk that is always busy must not put it off for ever.
        for _ in 0..QUIET_TRIES {
            if !happens(news, QUIET) {
                return;
            }
        }
    }
}

fn happens(news: &OwnedFd, within: Duration) -> bool {
    let mut poll = [rustix::event::PollFd::new(
        news,
        rustix::event::PollFlags::IN,
    )];
    let timeout = rustix::time::Timespec::try_from(within).ok();
    match rustix::event::poll(&mut poll, timeout.as_ref()) {
        Ok(0) => return false,
        Ok(_) | Err(Errno::INTR) => {}
        Err(_) => {
            std::thread::sleep(within);
            return false;
        }
    }
    let mut events = [0; 4096];
    while rustix::io::read(news, &mut events).is_ok_and(|read| read > 0) {}
    true
}

/// Those in which a change of a file's contents, or of a link on the way to it, shows.
fn directories(files: &[PathBuf]) -> BTreeSet<PathBuf> {
    let mut all = BTreeSet::new();
    for file in files {
        let mut path = std::path::absolute(file).unwrap_or_else(|_| file.clone());
        // As many links as the kernel follows.
        for _ in 0..40 {
            all.extend(path.parent().map(Path::to_owned));
            let Ok(target) = std::fs::read_link(&path) else {
                break;
            };
            path = path.parent().unwrap_or(Path::new("/")).join(target);
        }
        let real = std::fs::canonicalize(file).ok();
        all.extend(real.and_then(|real| real.parent().map(Path::to_owned)));
        // The link that Kubernetes swaps stands beside the file's own.
        for part in path.ancestors().skip(1).filter(|part| part.is_symlink()) {
            all.extend(part.parent().map(Path::to_owned));
        }
    }
    all
}

const WHAT: WatchFlags = WatchFlags::CLOSE_WRITE
    .union(WatchFlags::CREATE)
    .union(WatchFlags::DELETE)
    .union(WatchFlags::MOVED_TO)
    .union(WatchFlags::MOVED_FROM)
    .union(WatchFlags::MOVE_SELF)
    .union(WatchFlags::DELETE_SELF)
    .union(WatchFlags::ATTRIB);
/// Several files, or several writes of one, are one change.
const QUIET: Duration = Duration::from_secs(1);
const QUIET_TRIES: usize = 10;
/// File systems of other machines tell nothing.
const ANYWAY: Duration = Duration::from_secs(30);
