//! Where a text asks to be sent: `/* route:writer */`, `/* route:reader */`.

use super::words;

/// The servers that a text asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Route {
    /// Reads may go to a replica even where they would not. Never a write.
    Reader,
    /// To the primary, whatever it is.
    Writer,
}

/// What a block comment asks for. If it asks for both, the primary is the answer.
pub(crate) fn of_comment(comment: &[u8]) -> Option<Route> {
    let routes = words(comment)?.filter_map(|word| match word {
        b"route:writer" => Some(Route::Writer),
        b"route:reader" => Some(Route::Reader),
        _ => None,
    });
    routes.reduce(stricter)
}

/// Of two hints, the one that counts.
pub(crate) fn stricter(one: Route, other: Route) -> Route {
    match (one, other) {
        (Route::Reader, Route::Reader) => Route::Reader,
        _ => Route::Writer,
    }
}
