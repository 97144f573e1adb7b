//! Lists of clients, and cancelling what one of them has asked.
//!
//! A page begins at a shard and a place in it, which the page before has named.
//! A client that moves meanwhile may be on two pages, or on none.

use super::Desk;
use crate::shard::{Hit, Owner, Question, Seen};
use admin::handle::{Cancelled, Client, Page, State, Unclear, Wanted};
use admin::moment::{at_second, rfc3339};
use std::sync::Arc;

impl Desk {
    pub(super) async fn list(&self, wanted: Wanted) -> Result<Page, Unclear> {
        let (mut shard, mut from) = match &wanted.after {
            None => (0, 0),
            Some(text) => place(text).ok_or_else(|| {
                Unclear("expected after= what a page before has told as next".to_owned())
            })?,
        };
        let only = Arc::new(crate::shard::Wanted {
            state: wanted.state,
            user: wanted.user.map(String::into_bytes),
            database: wanted.database.map(String::into_bytes),
        });
        let mut page = Page::default();
        while shard < self.posts.len() {
            let limit = wanted.limit - page.sessions.len();
            if limit == 0 {
                page.next = Some(format!("{shard}.{from}"));
                break;
            }
            let question = |reply| Question::Clients {
                wanted: Arc::clone(&only),
                from,
                limit,
                reply,
            };
            match self.ask(shard, question).await {
                None => page.silent_shards.push(shard),
                Some(part) => {
                    let told = part
                        .clients
                        .into_iter()
                        .map(|seen| self.told_of(seen, shard));
                    page.sessions.extend(told);
                    if let Some(next) = part.next {
                        from = next;
                        continue;
                    }
                }
            }
            (shard, from) = (shard + 1, 0);
        }
        page.sessions.sort_by_key(|client| client.id);
        Ok(page)
    }

    fn told_of(&self, seen: Seen, shard: usize) -> Client {
        let Seen {
            home,
            about,
            standing,
            micros,
        } = seen;
        let doing = standing.doing();
        let state_ms = micros / 1000;
        let database = String::from_utf8_lossy(about.database.text()).into_owned();
        let snapshot = self.snapshot();
        let known = snapshot.database_named(&database);
        let known = known.filter(|_| doing.has_server());
        Client {
            id: self.process_ids.of(home.0, home.1),
            client_addr: about.source.to_string(),
            user: String::from_utf8_lossy(about.user.text()).into_owned(),
            connected_at: rfc3339(at_second(about.since)),
            state: doing.state(),
            state_ms,
            wait_ms: (doing.state() == State::Waiting).then_some(state_ms),
            backend_addr: known.map(|database| database.target.to_string()),
            in_transaction: doing.in_transaction(),
            pinned: doing.is_pinned(),
            database,
            shard,
        }
    }

    pub(super) async fn cancel_client(&self, id: u32) -> Cancelled {
        let Owner::Here { shard, slot } = self.process_ids.owner(id) else {
            return Cancelled::Unknown;
        };
        if shard >= self.posts.len() {
            return Cancelled::Unknown;
        }
        let question = |reply| Question::Cancel { slot, reply };
        let mut hit = self.ask(shard, question).await;
        // One that moves all the time is between two transactions all the time.
        for _ in 0..HOPS {
            let Some(Hit::Away(home)) = hit else { break };
            let shard = home.shard_now();
            let question = |reply| Question::CancelGuest { home, reply };
            hit = self.ask(shard, question).await;
        }
        match hit {
            None => Cancelled::Silent,
            Some(Hit::Sent) => Cancelled::Sent,
            Some(Hit::Idle | Hit::Away(_)) => Cancelled::Idle,
            Some(Hit::Nobody) => Cancelled::Unknown,
        }
    }
}

fn place(text: &str) -> Option<(usize, usize)> {
    let (shard, from) = text.split_once('.')?;
    Some((shard.parse().ok()?, from.parse().ok()?))
}

/// How often a client is followed to another shard.
const HOPS: usize = 8;
