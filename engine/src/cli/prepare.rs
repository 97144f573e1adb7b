//! Before serving: from the arguments to a configuration that this machine can serve.

use std::path::Path;

use super::RunArgs;
use crate::config::{Config, ConfigErrors, Problem, parse_listen};
use crate::preflight::{self, Severity};

/// Reads the configuration, lays the arguments over it, and checks the machine; what remains is to serve it.
///
/// Warnings are logged. An error is the whole text for the operator, a line for each problem.
pub fn prepare(args: &RunArgs) -> Result<Config, String> {
    let config = load(args).map_err(|errors| errors.to_string())?;
    fits(&config)?;
    Ok(config)
}

/// Reads the configuration and lays the arguments over it.
pub fn load(args: &RunArgs) -> Result<Config, ConfigErrors> {
    let path = args.config.as_deref().unwrap_or(Path::new(""));
    let mut config = Config::load(path)?;
    override_by(args, &mut config).map_err(ConfigErrors)?;
    Ok(config)
}

/// Checks the machine: warnings are logged, refusals returned together.
pub(crate) fn fits(config: &Config) -> Result<(), String> {
    let mut refusals = Vec::new();
    for finding in preflight::check(config) {
        match finding.severity {
            Severity::Warn => tracing::warn!("{}", finding.text),
            Severity::Refuse => refusals.push(finding.text),
        }
    }
    if refusals.is_empty() {
        Ok(())
    } else {
        Err(refusals.join("\n"))
    }
}

fn override_by(args: &RunArgs, config: &mut Config) -> Result<(), Vec<Problem>> {
    if let Some(shards) = args.shards {
        config.engine.shards = Some(usize::from(shards));
    }
    if let Some(pin) = args.pin {
        config.engine.pin = pin;
    }
    if !args.listen.is_empty() {
        config.proxy.listen = parse_listen(&args.listen).map_err(|problems| {
            let problem = |(_, text)| Problem {
                file: "--listen".to_owned(),
                line: 0,
                key: String::new(),
                text,
            };
            problems.into_iter().map(problem).collect::<Vec<_>>()
        })?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::cli::{Cli, Command};
    use crate::config::{ListenAddr, Pin};

    fn overridden(words: &str) -> Result<Config, String> {
        let text = "databases: {a: {writer: /tmp}}\nauth: {enabled: false, method: trust}\n";
        let mut config = Config::parse(text, "x.yaml").map_err(|errors| errors.to_string())?;
        let words = format!("pgmux run -c x.yaml {words}");
        let Command::Run(args) = Cli::parse_from(words.split_whitespace()).into_command() else {
            panic!("run")
        };
        override_by(&args, &mut config).map_err(|p| ConfigErrors(p).to_string())?;
        Ok(config)
    }

    #[test]
    fn arguments_win_over_the_file() {
        let config =
            overridden("--shards 3 --pin off --listen 127.0.0.1:7000 --listen /tmp").unwrap();
        assert_eq!(
            (config.engine.shards, config.engine.pin),
            (Some(3), Pin::Off)
        );
        let unix = ListenAddr::Unix("/tmp/.s.PGSQL.7000".into());
        assert_eq!(
            config.proxy.listen,
            [ListenAddr::Tcp("127.0.0.1:7000".parse().unwrap()), unix]
        );
        let config = overridden("").unwrap();
        assert_eq!((config.engine.shards, config.engine.pin), (None, Pin::Auto));
    }

    #[test]
    fn every_wrong_address_is_reported() {
        let Err(text) = overridden("--listen nowhere --listen 127.0.0.1:1 --listen 127.0.0.1")
        else {
            panic!("accepted")
        };
        assert_eq!(text.lines().count(), 2);
        assert!(
            text.starts_with("--listen: expected an IP address with a port"),
            "{text}"
        );
    }
}
