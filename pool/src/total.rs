//! Permits for servers that several budgets share.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::SeqCst};

/// The permits of a database whose roles have a budget each. It keeps no queue: a role that gets none says so by
/// [`Total::is_short`], and whoever has idle servers then gives them up.
#[derive(Debug)]
pub struct Total {
    taken: AtomicU32,
    max: u32,
    /// Somebody got no permit since one last came back.
    short: AtomicBool,
    /// The others have not been told yet.
    untold: AtomicBool,
}

impl Total {
    /// At most `max` permits.
    pub fn new(max: u32) -> Self {
        Total {
            taken: AtomicU32::new(0),
            max,
            short: AtomicBool::new(false),
            untold: AtomicBool::new(false),
        }
    }

    /// Permits that are out.
    pub fn taken(&self) -> u32 {
        self.taken.load(SeqCst)
    }

    /// Whether somebody waits for a permit.
    pub fn is_short(&self) -> bool {
        self.short.load(SeqCst)
    }

    /// Whether it has become short, and whoever asks is the one to tell the others.
    pub fn must_be_told(&self) -> bool {
        self.untold.swap(false, SeqCst)
    }

    /// A permit has come back: whether those that wait for one are to be told to try again.
    pub fn may_be_tried(&self) -> bool {
        self.taken() < self.max && self.short.swap(false, SeqCst)
    }

    pub(crate) fn try_take(&self) -> bool {
        let take = || {
            let one_more = |taken| (taken < self.max).then_some(taken + 1);
            self.taken.fetch_update(SeqCst, SeqCst, one_more).is_ok()
        };
        if take() {
            return true;
        }
        if !self.short.swap(true, SeqCst) {
            self.untold.store(true, SeqCst);
        }
        // One that came back before its giver could see that it is missed.
        take()
    }

    pub(crate) fn give_back(&self) {
        let before = self.taken.fetch_sub(1, SeqCst);
        assert!(before > 0, "a permit came back that was never taken");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Budget;
    use std::sync::Arc;

    #[test]
    fn budgets_share_a_total_and_keep_to_their_own() {
        let total = Arc::new(Total::new(3));
        let [a, b] = [(); 2].map(|()| Budget::within(Arc::clone(&total), 2, 1));
        assert!(a.try_take() && a.try_take() && !a.try_take());
        assert!(!total.is_short(), "it was its own budget that was empty");
        assert!(b.try_take() && !b.try_take());
        assert!(total.is_short() && total.must_be_told() && !total.must_be_told());
        assert_eq!((a.taken(), b.taken(), total.taken()), (2, 1, 3));
        a.give_back();
        assert!(total.may_be_tried() && !total.may_be_tried());
        assert!(b.try_take());
        assert_eq!((a.taken(), b.taken(), total.taken()), (1, 2, 3));
    }
}
