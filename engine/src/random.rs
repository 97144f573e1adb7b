//! Random bytes for nonces, salts and cancel keys, from the kernel.

use std::cell::RefCell;

thread_local! {
    /// Bytes not handed out yet: one system call for many clients.
    static STOCK: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// Fills `out`.
pub fn fill(out: &mut [u8]) {
    STOCK.with_borrow_mut(|stock| {
        for byte in out {
            if stock.is_empty() {
                stock.resize(STOCK_BYTES, 0);
                getrandom::fill(stock)
                    .expect("the kernel has random bytes: getrandom(2) cannot fail after boot");
            }
            *byte = stock.pop().unwrap_or_default();
        }
    });
}

/// A random array.
pub fn array<const N: usize>() -> [u8; N] {
    let mut bytes = [0; N];
    fill(&mut bytes);
    bytes
}

/// A SCRAM nonce: 18 random bytes, as PostgreSQL's `SCRAM_RAW_NONCE_LEN`, in
/// hexadecimal, which needs no escaping.
pub fn nonce() -> String {
    array::<18>()
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect()
}

/// Between 0 and 1, for jitter.
pub fn fraction() -> f64 {
    f64::from(u32::from_ne_bytes(array())) / f64::from(u32::MAX)
}

const STOCK_BYTES: usize = 1024;
