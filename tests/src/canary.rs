//! After each attack a fresh client asks for a value that nobody else has.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::wire::{Endpoint, Login, Session};

/// A fresh client logs in, asks by both protocols for its own unique value, and must get exactly that and a clean
/// session.
pub fn check(endpoint: &Endpoint, login: &Login) {
    let mut client = Session::open(endpoint, login);
    ask(&mut client);
}

/// The same on a session that is open already and must have survived.
pub fn ask(client: &mut Session) {
    let feather = feather();
    let trace = client.trace(&format!("select '{feather}'"));
    let expected = [
        "RowDescription \"?column?\":25".to_string(),
        format!("DataRow \"{feather}\""),
        "CommandComplete \"SELECT 1\"".into(),
        "ReadyForQuery I".into(),
    ];
    assert_eq!(trace, expected, "the canary of the simple protocol");
    let rows = client.rows_extended("select $1::text", &[&feather]);
    assert_eq!(
        rows,
        [[Some(feather)]],
        "the canary of the extended protocol"
    );
}

/// A value that no other client of this machine uses.
fn feather() -> String {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let next = NEXT.fetch_add(1, Ordering::Relaxed);
    format!("canary-{}-{next}", std::process::id())
}
