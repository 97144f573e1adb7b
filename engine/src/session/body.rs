//! What becomes of the body of the message that is being read.

use protocol::frame::Head;

#[derive(Default)]
pub(super) enum Body {
    /// It goes on as it comes.
    #[default]
    Relay,
    /// Nobody gets it.
    Drop,
    /// It is gathered, because it must be looked at and did not come in one
    /// piece.
    Collect(Box<Collected>),
}

/// A message whose beginning is gathered.
pub(super) struct Collected {
    pub(super) head: Head,
    /// How much of the body must be there before it is looked at.
    pub(super) need: usize,
    pub(super) bytes: Vec<u8>,
}

impl Collected {
    pub(super) fn body(head: Head, need: usize) -> Body {
        // Grows with what comes, never with what a header claims.
        Body::Collect(Box::new(Self {
            head,
            need,
            bytes: Vec::new(),
        }))
    }

    pub(super) fn is_complete(&self) -> bool {
        self.bytes.len() >= self.need
    }
}

/// What to do with a message that has been looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// It goes on as it is.
    Relay,
    /// What was looked at is replaced; the rest of the body goes on.
    Replace,
    /// Nobody gets it.
    Drop,
    /// It must wait, and be looked at again.
    Blocked,
}
