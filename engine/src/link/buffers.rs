//! Buffers that a link needs only while bytes are on their way: an idle link
//! has none.

use std::cell::RefCell;

thread_local! {
    static SPARE: RefCell<Vec<Vec<u8>>> = const { RefCell::new(Vec::new()) };
    static OUT: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// An empty buffer.
pub(super) fn take() -> Vec<u8> {
    SPARE.with_borrow_mut(Vec::pop).unwrap_or_default()
}

/// Gives a buffer back.
pub(super) fn give(mut buffer: Vec<u8>) {
    if buffer.capacity() == 0 || buffer.capacity() > KEPT_BYTES {
        return;
    }
    buffer.clear();
    SPARE.with_borrow_mut(|spare| {
        if spare.len() < KEPT {
            spare.push(buffer);
        }
    });
}

/// Where records are made before the socket copies them. Its length only
/// grows, for rustls writes into bytes that are there.
pub(super) fn with_out<T>(make: impl FnOnce(&mut Vec<u8>) -> T) -> T {
    let mut out = OUT.take();
    let made = make(&mut out);
    if out.capacity() <= 2 * KEPT_BYTES {
        OUT.replace(out);
    }
    made
}

/// Two records and a receive buffer; a larger one is rare and not kept.
const KEPT_BYTES: usize = 48 * 1024;
/// Buffers kept for reuse in a shard.
const KEPT: usize = 32;
