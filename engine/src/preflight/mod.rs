//! What pgmux needs of the machine, checked before it serves: each finding is a sentence that names the mend.

mod kernel;
mod limits;
mod ports;

use crate::auth::Method;
use crate::config::{AuthMethod, Config, ListenAddr, Pin};

/// How bad a finding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Severity {
    /// pgmux would not work: it does not start.
    Refuse,
    /// pgmux works, but perhaps not as it is meant to.
    Warn,
}

/// Something on this machine that does not fit the configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// How bad it is.
    pub severity: Severity,
    /// What is wrong and how to mend it.
    pub text: String,
}

impl Finding {
    fn refuse(text: impl Into<String>) -> Self {
        Self {
            severity: Severity::Refuse,
            text: text.into(),
        }
    }

    fn warn(text: impl Into<String>) -> Self {
        Self {
            severity: Severity::Warn,
            text: text.into(),
        }
    }
}

/// Checks everything; an empty list is a machine that fits.
///
/// Limits of this process that are too low are raised on the way, as far as the kernel lets it.
pub fn check(config: &Config) -> Vec<Finding> {
    let shards = shards(config);
    let mut findings = kernel::check();
    findings.extend(limits::check(config, shards));
    // Whose sockets are inherited nobody knows yet.
    if !may_inherit(config) {
        findings.extend(ports::check(&config.proxy.listen));
        findings.extend(ports::check_admin(&config.admin));
    }
    findings.extend(cpus(config, shards));
    findings.extend(open_door(config));
    findings
}

/// The CPUs that this process may use.
pub fn usable_cpus() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

fn shards(config: &Config) -> usize {
    config.engine.shards.unwrap_or_else(usable_cpus)
}

fn cpus(config: &Config, shards: usize) -> Option<Finding> {
    let cpus = usable_cpus();
    if shards <= cpus {
        return None;
    }
    let text = format!("{shards} shards share {cpus} CPUs: set engine.shards to {cpus} or auto");
    match config.engine.pin {
        Pin::On => Some(Finding::refuse(format!("{text}, or engine.pin to off"))),
        Pin::Auto | Pin::Off => Some(Finding::warn(text)),
    }
}

/// Trust on an address that other machines can reach.
fn open_door(config: &Config) -> Option<Finding> {
    let reachable = config.proxy.listen.iter().find(|addr| match addr {
        ListenAddr::Tcp(addr) => !addr.ip().is_loopback(),
        ListenAddr::Unix(_) => false,
    })?;
    let text = match &config.auth.rules {
        None if config.auth.method == AuthMethod::Trust => {
            "auth.method is trust: nobody is asked for a password; set auth.method to scram-sha-256 or proxy.listen to 127.0.0.1".to_owned()
        }
        None => return None,
        Some(rules) => {
            let mut trusting = rules.all().iter();
            let rule = trusting.find(|rule| rule.method == Method::Trust && rule.is_public())?;
            format!(
                "{}:{} asks nobody from there for a password (trust): write scram-sha-256, or an address of this machine",
                rule.file, rule.line
            )
        }
    };
    Some(Finding::warn(format!(
        "{reachable} can be reached by other machines and {text}"
    )))
}

/// Whether this process may have its listening sockets from another: the service manager, or the one that it takes over
/// from. Then [`listenable`] is asked of the rest.
pub fn may_inherit(config: &Config) -> bool {
    let answers = |path| std::os::unix::net::UnixStream::connect(path).is_ok();
    let activated = std::env::var("LISTEN_PID").ok() == Some(std::process::id().to_string());
    activated || config.control.as_deref().is_some_and(answers)
}

/// Why one address cannot be listened on, if it cannot.
pub fn listenable(address: &ListenAddr) -> Result<(), String> {
    let found = ports::check(std::slice::from_ref(address));
    found
        .into_iter()
        .next()
        .map_or(Ok(()), |finding| Err(finding.text))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(front: &str) -> Config {
        let text = format!("{front}\ndatabases: {{app: {{writer: /tmp}}}}\n");
        Config::parse(&text, "test.yaml").unwrap_or_else(|errors| panic!("{errors}"))
    }

    #[test]
    fn trust_is_fine_at_home_and_noted_elsewhere() {
        let open = "auth: {enabled: false, method: trust}\nproxy: {listen: ";
        assert_eq!(
            open_door(&config(&format!(
                "{open}['127.0.0.1:1', '[::1]:1', /tmp]}}"
            ))),
            None
        );
        let finding = open_door(&config(&format!("{open}['127.0.0.1:1', '0.0.0.0:2']}}"))).unwrap();
        assert_eq!(finding.severity, Severity::Warn);
        assert!(finding.text.starts_with("0.0.0.0:2 can be reached"));
        assert_eq!(
            open_door(&config("auth: {users: [{username: a, password: b}]}")),
            None
        );
    }

    #[test]
    fn more_shards_than_cpus_are_refused_only_when_each_must_have_its_own() {
        let auth = "auth: {enabled: false, method: trust}\nengine: {shards: 256, pin: ";
        let severity = |pin: &str| {
            cpus(&config(&format!("{auth}{pin}}}")), 256).map(|finding| finding.severity)
        };
        if usable_cpus() < 256 {
            assert_eq!(severity("'on'"), Some(Severity::Refuse));
            assert_eq!(severity("auto"), Some(Severity::Warn));
        }
        assert_eq!(cpus(&config(&format!("{auth}auto}}")), 1), None);
    }
}
