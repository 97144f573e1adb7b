//! All shards take a snapshot over, or none does.

use crate::shard::{Mail, Postbox};
use crate::snapshot::Snapshot;
use crossbeam_channel::bounded;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long a shard may take to say that it is prepared. One that is alive says so at its next turn.
pub(super) const STAGING: Duration = Duration::from_secs(5);
/// How long one may take to say that it has followed: it will, but the report does not wait for ever.
const FOLLOWING: Duration = Duration::from_secs(10);

/// Has every shard prepare for the snapshot. An error says which shard cannot, and then none is prepared any more.
pub(super) fn stage(
    posts: &[Postbox],
    snapshot: &Arc<Snapshot>,
    patience: Duration,
) -> Result<(), String> {
    let staged = all_prepare(posts, snapshot, patience);
    if staged.is_err() {
        let (reply, _) = bounded(posts.len());
        for post in posts {
            // Who cannot take it now has the next one staged over this one.
            let reply = reply.clone();
            let _ = post.try_post(Mail::Commit {
                number: None,
                reply,
            });
        }
    }
    staged
}

fn all_prepare(
    posts: &[Postbox],
    snapshot: &Arc<Snapshot>,
    patience: Duration,
) -> Result<(), String> {
    let (reply, replies) = bounded(posts.len());
    let deadline = Instant::now() + patience;
    let mut silent: Vec<usize> = Vec::new();
    for (shard, post) in posts.iter().enumerate() {
        let mail = Mail::Stage {
            snapshot: Arc::clone(snapshot),
            reply: reply.clone(),
        };
        post.try_post(mail)
            .map_err(|_| format!("shard {shard} takes no messages"))?;
        silent.push(shard);
    }
    while !silent.is_empty() {
        match replies.recv_deadline(deadline) {
            Ok((shard, Ok(()))) => silent.retain(|other| *other != shard),
            Ok((shard, Err(reason))) => return Err(format!("shard {shard} cannot: {reason}")),
            Err(_) => {
                let silent: Vec<_> = silent.iter().map(ToString::to_string).collect();
                return Err(format!(
                    "shard {} has not answered within {} s",
                    silent.join(", "),
                    patience.as_secs_f32()
                ));
            }
        }
    }
    Ok(())
}

/// Has every shard serve by what it has prepared. True: all have said that they do.
pub(super) fn commit(posts: &[Postbox], number: u64) -> bool {
    tell(posts, |reply| Mail::Commit {
        number: Some(number),
        reply,
    })
}

/// Tells every shard and waits until all have done it.
pub(super) fn tell(
    posts: &[Postbox],
    mail: impl Fn(crossbeam_channel::Sender<usize>) -> Mail,
) -> bool {
    let (reply, replies) = bounded(posts.len());
    for post in posts {
        post.post(mail(reply.clone()));
    }
    let deadline = Instant::now() + FOLLOWING;
    posts
        .iter()
        .all(|_| replies.recv_deadline(deadline).is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;
    use crate::ring::{Ring, Sizes};
    use crate::shard::Mailbox;

    fn snapshot() -> Arc<Snapshot> {
        let text = "databases: {a: {writer: /tmp}}\nauth: {users: [{username: x, password: y}]}\n";
        let config = Config::parse(text, "x").unwrap_or_else(|errors| panic!("{errors}"));
        Arc::new(Snapshot::first(config, 2).expect("a snapshot"))
    }

    /// What a shard does with its mail, as far as this is concerned.
    fn answer(mailbox: &Mailbox, shard: usize, answer: Result<(), String>) -> bool {
        let mut commits = false;
        let until = Instant::now() + Duration::from_millis(300);
        while Instant::now() < until {
            match mailbox.take() {
                Some(Mail::Stage { reply, .. }) => {
                    let _ = reply.send((shard, answer.clone()));
                }
                Some(Mail::Commit { number, .. }) => commits |= number.is_some(),
                _ => std::thread::yield_now(),
            }
        }
        commits
    }

    fn outcome(answers: [Option<Result<(), String>>; 2]) -> (Result<(), String>, [bool; 2]) {
        let rings = [(); 2].map(|()| Ring::new(Sizes::default()).expect("a ring"));
        let boxes = rings.each_ref().map(|ring| Mailbox::new(ring, 64));
        let posts: Vec<_> = boxes.iter().map(Mailbox::postbox).collect();
        std::thread::scope(|scope| {
            let snapshot = snapshot();
            let staging = scope.spawn(move || stage(&posts, &snapshot, Duration::from_millis(200)));
            let commits = [0, 1].map(|shard| match &answers[shard] {
                Some(said) => answer(&boxes[shard], shard, said.clone()),
                None => false,
            });
            (staging.join().expect("no panic"), commits)
        })
    }

    #[test]
    fn a_shard_that_does_not_answer_has_none_change() {
        let (staged, commits) = outcome([Some(Ok(())), None]);
        assert!(staged.is_err_and(|error| error.contains("shard 1 has not answered")));
        assert_eq!(commits, [false, false]);
    }

    #[test]
    fn a_shard_that_cannot_has_none_change() {
        let (staged, commits) = outcome([Some(Err("it is stopping".into())), Some(Ok(()))]);
        let expected = "shard 0 cannot: it is stopping";
        assert!(staged.is_err_and(|error| error.contains(expected)));
        assert_eq!(commits, [false, false]);
    }
}
