//! One run of pgbench, with everybody's counters read inside it.
//!
//! pgbench reports its progress once a second. The counters are read when the
//! first report arrives and again some reports later, so neither the logins nor
//! the way down are in the figures. The two readings are some milliseconds late,
//! hence *rates* are divided, not totals: CPU per second over transactions per second.

mod output;

use std::collections::BTreeMap;
use std::fs::OpenOptions;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use rustix::process::Signal;

use crate::counters::{self, Counters, Told};
use crate::interrupt::Interrupt;
use crate::process::{Launch, Process};
use crate::stats::percentile;
use crate::target::{Cell, Target};
use crate::usage::{Snapshot, Usage, Watched};

pub use output::{Line, Logged, Progress, Summary, parse_line, parse_log, parse_summary};

/// How to run pgbench.
#[derive(Clone, Debug)]
pub struct Load<'a> {
    /// The program.
    pub program: &'a Path,
    /// A directory for its latency logs.
    pub dir: &'a Path,
    /// Length of the measured window.
    pub seconds: u32,
    /// pgbench's threads at most.
    pub jobs: u32,
    /// CPUs for pgbench.
    pub cpus: Option<&'a str>,
    /// PostgreSQL's postmaster.
    pub postmaster: u32,
    /// Log every transaction, for the worst wait may be any, and ask the pooler for its own counters before and after.
    pub closely: bool,
    /// A login for every transaction.
    pub connect: bool,
    /// Ctrl-C.
    pub interrupt: &'a Interrupt,
}

/// What a run gave.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Outcome {
    /// Transactions per second in the window.
    pub tps: f64,
    /// Latencies in the window, in microseconds: the middle and the 99th percentile.
    pub p50_us: f64,
    /// See `p50_us`.
    pub p99_us: f64,
    /// The longest wait of any client that ended in the window or after it.
    pub worst_us: f64,
    /// The mean latency, in the window, of the client that had the largest.
    pub worst_mean_us: f64,
    /// What the pooler counted from before the first login until after the last transaction.
    pub told: Option<Told>,
    /// What was used in the window.
    pub usage: Usage,
    /// Clients that were hardly served while others were: TPS of such a run flatters.
    pub starved: u32,
    /// Transactions that failed, plus everything that pgbench complained about.
    pub errors: u64,
    /// pgbench had to be ended: some answer never came.
    pub hung: bool,
    /// The first complaint.
    pub complaint: Option<String>,
}

impl Outcome {
    /// A run that could not be measured.
    pub fn failed(why: String) -> Self {
        Self {
            errors: 1,
            complaint: Some(why),
            ..Self::default()
        }
    }

    /// Nanoseconds of CPU in the window, as microseconds per transaction.
    pub fn per_transaction_us(&self, cpu_ns: u64) -> f64 {
        cpu_ns as f64 / 1e3 / (self.usage.window.as_secs_f64() * self.tps)
    }
}

impl Load<'_> {
    /// Runs one cell against one target. Whatever the target does wrong is in the
    /// outcome; an error means that the benchmark cannot go on.
    pub fn run(&self, target: &Target, cell: Cell) -> Result<Outcome> {
        let logs = tempfile::Builder::new()
            .prefix("log-")
            .tempdir_in(self.dir)?;
        let launch = Launch {
            name: "pgbench",
            program: self.program,
            as_postgres: false,
            stop: Signal::TERM,
            cpus: self.cpus,
            under: &[],
        };
        if let Some(password) = &target.dsn.password {
            write_password(logs.path(), password)?;
        }
        let before = self.counters(target);
        let mut process = launch.start_piped(self.arguments(target, cell, logs.path()))?;
        let watched = Watched {
            pooler: target.pids.clone(),
            postmaster: Some(self.postmaster),
            load: Some(process.pid()),
        };
        let stderr = process
            .child()
            .stderr
            .take()
            .context("pgbench has no stderr")?;
        let mut watch = Watch::new(self.seconds, watched);
        self.follow(&lines(stderr), &mut watch)?;
        let mut outcome = watch.finish(&mut process, logs.path(), cell.clients)?;
        let after = self.counters(target);
        outcome.told = before
            .zip(after)
            .map(|(before, after)| Told::between(&before, after));
        Ok(outcome)
    }

    /// A pooler that does not tell its counters lacks those figures, and no others.
    fn counters(&self, target: &Target) -> Option<Counters> {
        let wanted = self.closely.then(|| counters::read(target, self.interrupt));
        wanted?.ok().flatten()
    }

    fn arguments(&self, target: &Target, cell: Cell, logs: &Path) -> Vec<String> {
        let jobs = self.jobs.min(cell.clients).max(1);
        // The alarm of -T comes before the last report, so one second is on top of the warm-up's.
        let seconds = self.seconds + WARM_UP_SECONDS + 1;
        let prefix = logs.join("latency");
        let mut arguments: Vec<String> = ["--select-only", "--no-vacuum", "--log"]
            .map(str::to_owned)
            .into();
        arguments.push("--progress-timestamp".to_owned());
        for (key, value) in [
            ("--client", cell.clients.to_string()),
            ("--jobs", jobs.to_string()),
            ("--protocol", cell.mode.word().to_owned()),
            ("--time", seconds.to_string()),
            ("--progress", "1".to_owned()),
            ("--log-prefix", prefix.display().to_string()),
        ] {
            arguments.push(format!("{key}={value}"));
        }
        if !self.closely {
            arguments.push(format!("--sampling-rate={SAMPLING_RATE}"));
        }
        if self.connect {
            arguments.push("--connect".to_owned());
        }
        arguments.push(target.dsn.conninfo() + &passfile(logs));
        arguments
    }

    fn follow(&self, lines: &Receiver<String>, watch: &mut Watch) -> Result<()> {
        let length = u64::from(self.seconds + WARM_UP_SECONDS + 1);
        let deadline = Instant::now() + Duration::from_secs(length) + LATENESS_LIMIT;
        loop {
            self.interrupt.check()?;
            match lines.recv_timeout(Duration::from_millis(50)) {
                Ok(line) => watch.line(&line),
                Err(RecvTimeoutError::Disconnected) => return Ok(()),
                Err(RecvTimeoutError::Timeout) if Instant::now() > deadline => {
                    watch.hung = true;
                    watch.complain("pgbench did not end in time");
                    return Ok(());
                }
                Err(RecvTimeoutError::Timeout) => {}
            }
        }
    }
}

/// What is gathered while pgbench runs.
struct Watch {
    seconds: u32,
    watched: Watched,
    /// Reports that came, those outside the window too.
    seen: u32,
    /// Reports at which the counters were read.
    reports: Vec<Progress>,
    before: Option<Snapshot>,
    after: Option<Snapshot>,
    hung: bool,
    errors: u64,
    complaint: Option<String>,
}

impl Watch {
    fn new(seconds: u32, watched: Watched) -> Self {
        Self {
            seconds,
            watched,
            seen: 0,
            reports: Vec::new(),
            before: None,
            after: None,
            hung: false,
            errors: 0,
            complaint: None,
        }
    }

    fn line(&mut self, line: &str) {
        match parse_line(line) {
            Line::Progress(progress) => self.report(progress),
            Line::Complaint => self.complain(line),
            Line::Blank => {}
        }
    }

    /// Reads the counters at every report of the window: on a busy machine the last
    /// report may not come, and the window then ends with the one before.
    fn report(&mut self, progress: Progress) {
        self.seen += 1;
        if self.seen < WARM_UP_SECONDS || self.seen > WARM_UP_SECONDS + self.seconds {
            return;
        }
        match self.watched.snapshot() {
            Ok(snapshot) if self.before.is_none() => self.before = Some(snapshot),
            Ok(snapshot) => self.after = Some(snapshot),
            Err(error) => return self.complain(&format!("{error:#}")),
        }
        self.reports.push(progress);
    }

    fn complain(&mut self, what: &str) {
        self.errors += 1;
        self.complaint.get_or_insert_with(|| what.trim().to_owned());
    }

    fn finish(mut self, process: &mut Process, logs: &Path, clients: u32) -> Result<Outcome> {
        let mut told = String::new();
        if self.hung {
            process.stop();
        }
        if let Some(mut stdout) = process.child().stdout.take() {
            stdout.read_to_string(&mut told)?;
        }
        let status = process.child().wait()?;
        match parse_summary(&told) {
            Some(summary) => self.errors += summary.failed,
            None => self.complain("pgbench gave no summary"),
        }
        if !status.success() {
            self.complain(&format!("pgbench ended with {status}"));
        }
        let (Some(before), Some(after)) = (&self.before, &self.after) else {
            self.complain("too few progress reports");
            return Ok(self.outcome());
        };
        let usage = after.since(before);
        let logged = read_logs(logs, &self.reports)?;
        let worst_us = logged.iter().map(|logged| logged.latency_us).max();
        let logged = within(logged, &self.reports);
        let mut latencies: Vec<u32> = logged.iter().map(|logged| logged.latency_us).collect();
        latencies.sort_unstable();
        let percentile = |share| percentile(&latencies, share).unwrap_or(f64::NAN);
        Ok(Outcome {
            tps: tps(&self.reports),
            p50_us: percentile(0.50),
            p99_us: percentile(0.99),
            worst_us: worst_us.map_or(f64::NAN, f64::from),
            worst_mean_us: worst_mean(&logged),
            usage,
            starved: starved(&logged, clients),
            ..self.outcome()
        })
    }

    fn outcome(&self) -> Outcome {
        Outcome {
            errors: self.errors,
            hung: self.hung,
            complaint: self.complaint.clone(),
            ..Outcome::default()
        }
    }
}

/// The part of a connection string that names where passwords are: it is in the list of processes, they are not.
fn passfile(dir: &Path) -> String {
    format!(" passfile='{}'", dir.join(PASSWORDS).display())
}

/// libpq ignores such a file when others may read it.
fn write_password(dir: &Path, password: &str) -> Result<()> {
    let mut options = OpenOptions::new();
    let options = options.write(true).create_new(true).mode(0o600);
    let mut file = options.open(dir.join(PASSWORDS)).context("passwords")?;
    let escaped = password.replace('\\', r"\\").replace(':', r"\:");
    writeln!(file, "*:*:*:*:{escaped}")?;
    Ok(())
}

/// Transactions per second over all reports but the first, which only marks the begin.
fn tps(reports: &[Progress]) -> f64 {
    let mut transactions = 0.0;
    let mut seconds = 0.0;
    for pair in reports.windows(2) {
        let length = pair[1].epoch - pair[0].epoch;
        transactions += pair[1].tps * length;
        seconds += length;
    }
    transactions / seconds
}

/// The transactions that ended after the first report: one that waited through the window ends behind it.
fn read_logs(dir: &Path, reports: &[Progress]) -> Result<Vec<Logged>> {
    let Some(first) = reports.first() else {
        return Ok(Vec::new());
    };
    let mut found = Vec::new();
    for entry in std::fs::read_dir(dir)? {
        let text = std::fs::read_to_string(entry?.path())?;
        parse_log(&text, first.epoch, &mut found)?;
    }
    Ok(found)
}

/// Those that ended before the last report.
fn within(mut logged: Vec<Logged>, reports: &[Progress]) -> Vec<Logged> {
    let end = reports.last().map_or(0.0, |last| last.epoch);
    logged.retain(|logged| logged.ended <= end);
    logged
}

/// The largest of the clients' mean latencies.
fn worst_mean(logged: &[Logged]) -> f64 {
    let mut sums: BTreeMap<u32, (f64, f64)> = BTreeMap::new();
    for logged in logged {
        let (sum, count) = sums.entry(logged.client).or_default();
        *sum += f64::from(logged.latency_us);
        *count += 1.0;
    }
    let means = sums.values().map(|(sum, count)| sum / count);
    means.fold(f64::NAN, f64::max)
}

/// Clients with less than a tenth of their share. With fewer than ten samples a client nothing can be said.
fn starved(logged: &[Logged], clients: u32) -> u32 {
    let share = logged.len() / clients.max(1) as usize;
    if share < 10 {
        return 0;
    }
    let mut counts = vec![0usize; clients as usize];
    for logged in logged {
        if let Some(count) = counts.get_mut(logged.client as usize) {
            *count += 1;
        }
    }
    let starved = counts.iter().filter(|count| **count * 10 < share);
    u32::try_from(starved.count()).unwrap_or(u32::MAX)
}

fn lines(stderr: impl Read + Send + 'static) -> Receiver<String> {
    let (sender, receiver) = channel();
    std::thread::spawn(move || {
        for line in BufReader::new(stderr).lines().map_while(Result::ok) {
            if sender.send(line).is_err() {
                return;
            }
        }
    });
    receiver
}

const PASSWORDS: &str = "passwords";
const WARM_UP_SECONDS: u32 = 1;
/// One transaction in ten is logged: some thousand samples a run, and no visible cost in pgbench.
const SAMPLING_RATE: &str = "0.1";
/// Logging in 256 clients, or a summary on a loaded machine, takes its time; more than this is a hang.
const LATENESS_LIMIT: Duration = Duration::from_secs(20);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tps_weighs_each_report_by_its_length_and_leaves_out_the_first() {
        let report = |epoch, tps| Progress { epoch, tps };
        let reports = [report(10.0, 1.0), report(11.0, 100.0), report(13.0, 400.0)];
        assert!((tps(&reports) - 300.0).abs() < 1e-9);
    }

    #[test]
    fn cpu_per_transaction_divides_rates() {
        let outcome = Outcome {
            tps: 1_000.0,
            usage: Usage {
                window: Duration::from_secs(2),
                ..Usage::default()
            },
            ..Outcome::default()
        };
        assert!((outcome.per_transaction_us(20_000_000) - 10.0).abs() < 1e-9);
    }

    #[test]
    fn the_window_ends_with_the_last_report_that_came_and_never_later() {
        let report = |second: u32| Progress {
            epoch: f64::from(second),
            tps: 1.0,
        };
        let mut watch = Watch::new(3, Watched::default());
        (1..=3).for_each(|second| watch.report(report(second)));
        assert!(watch.after.is_some());
        assert_eq!(watch.reports.last(), Some(&report(3)));
        (4..=6).for_each(|second| watch.report(report(second)));
        assert_eq!(watch.reports.last(), Some(&report(4)));
    }

    #[test]
    fn clients_that_get_less_than_a_tenth_of_their_share_starve() {
        let of = |client, count| {
            let logged = Logged {
                client,
                latency_us: 1,
                ended: 0.0,
            };
            std::iter::repeat_n(logged, count)
        };
        let logged: Vec<Logged> = of(0, 100).chain(of(1, 96)).chain(of(2, 4)).collect();
        // Client 3 had nothing at all.
        assert_eq!(starved(&logged, 4), 2);
        assert_eq!(starved(&logged[..30], 4), 0, "too few samples to tell");
        assert_eq!(starved(&[], 4), 0);
    }

    #[test]
    fn the_worst_mean_is_of_one_client_not_of_one_transaction() {
        let logged = [(0, 100), (0, 900), (1, 600), (1, 600)].map(|(client, latency_us)| Logged {
            client,
            latency_us,
            ended: f64::from(latency_us),
        });
        assert!((worst_mean(&logged) - 600.0).abs() < 1e-9);
        assert!(worst_mean(&[]).is_nan());
        let report = |epoch| Progress { epoch, tps: 1.0 };
        let inside = within(logged.to_vec(), &[report(0.0), report(600.0)]);
        assert_eq!(
            inside.len(),
            3,
            "what ended later is a wait, and not in the window"
        );
    }

    #[test]
    fn a_complaint_counts_as_an_error() {
        let mut watch = Watch::new(1, Watched::default());
        watch.line("pgbench: error: client 3 aborted in command 1");
        watch.line("");
        assert_eq!(watch.errors, 1);
        assert!(watch.complaint.is_some_and(|text| text.contains("aborted")));
    }
}
