//! The targets of logins and of TLS.

use super::{Bound, Check, Rule, Verdict, check_errors, check_ratio};
use crate::idle;
use crate::results::Figure;
use crate::secure::{Kind, Secured};
use crate::target::names;

/// Holds the section's results against its targets.
pub fn judge(secured: &Secured) -> Vec<Check> {
    let mut checks = Vec::new();
    for (kind, results) in &secured.results {
        let cell = kind.cell();
        let rule = Rule {
            figure: Figure::CpuUs,
            mode: cell.mode,
            clients: cell.clients,
            against: names::PGBOUNCER,
            bound: Bound::AtMost(limit(*kind)),
        };
        let mut check = check_ratio(results, &rule, names::PGMUX, names::PGBOUNCER);
        check.what = format!("{}: {}", kind.words(), check.what);
        checks.push(check);
        let mut errors = check_errors(results);
        errors.what = format!("{}: {}", kind.words(), errors.what);
        checks.push(errors);
    }
    checks.push(check_idle(&secured.idle));
    checks
}

/// CPU per transaction over PgBouncer's.
fn limit(kind: Kind) -> f64 {
    match kind {
        Kind::Tls => 0.85,
        Kind::Logins => 0.70,
        Kind::TlsLogins => 0.80,
    }
}

fn check_idle(idle: &[(String, idle::Figures)]) -> Check {
    let of = |name: &str| {
        let found = idle.iter().find(|(target, _)| target == name);
        found.map(|(_, figures)| figures.kib_over_empty())
    };
    let (ours, theirs) = (of(names::PGMUX), of(names::PGBOUNCER));
    let both = ours.zip(theirs);
    Check {
        what: "RSS per idle client by TLS over the empty process".to_owned(),
        bound: theirs.map_or("less than PgBouncer".to_owned(), |kib| {
            format!("< {kib:.1} KiB, PgBouncer's")
        }),
        measured: ours.map_or("not run".to_owned(), |kib| format!("{kib:.1} KiB")),
        verdict: match both {
            Some((ours, theirs)) if ours < theirs => Verdict::Pass,
            Some(_) => Verdict::Fail,
            None => Verdict::Open,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn idle_memory_is_held_against_the_peer_in_the_same_run() {
        let figures = |full_kib| idle::Figures {
            clients: 100,
            full_kib,
            ..idle::Figures::default()
        };
        let judged = |ours, theirs| {
            check_idle(&[
                (names::PGMUX.to_owned(), figures(ours)),
                (names::PGBOUNCER.to_owned(), figures(theirs)),
            ])
            .verdict
        };
        assert_eq!(judged(100, 200), Verdict::Pass);
        assert_eq!(judged(200, 200), Verdict::Fail);
        assert_eq!(check_idle(&[]).verdict, Verdict::Open);
    }
}
