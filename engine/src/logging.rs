//! Logs by `tracing`, as text or JSON on standard error.

use std::io::IsTerminal;

use tracing_subscriber::EnvFilter;

/// The environment variable that holds the level, or directives such as `info,engine::session=debug`.
pub const LOG_VARIABLE: &str = "PGMUX_LOG";

/// Ours from `info` on; glommio tells of its own start and end at that level too.
const DEFAULT_FILTER: &str = "info,glommio=warn";

/// How a log line looks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum LogFormat {
    /// For people.
    #[default]
    Text,
    /// One JSON object a line.
    Json,
}

/// Starts logging for the whole process. The filter is `level`, else [`LOG_VARIABLE`], else `info`.
///
/// Called once, before any other thread; a second call is an error.
pub fn init(format: LogFormat, level: Option<&str>) -> Result<(), String> {
    let variable = std::env::var(LOG_VARIABLE).ok();
    let filter = filter(level, variable.as_deref())?;
    let builder = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal());
    let started = match format {
        LogFormat::Text => builder.try_init(),
        LogFormat::Json => builder
            .json()
            .flatten_event(true)
            .with_current_span(false)
            .with_span_list(false)
            .try_init(),
    };
    started.map_err(|error| format!("cannot start logging: {error}"))
}

fn filter(level: Option<&str>, variable: Option<&str>) -> Result<EnvFilter, String> {
    let (origin, text) = match (level, variable) {
        (Some(level), _) => ("--log-level", level),
        (None, Some(text)) if !text.trim().is_empty() => (LOG_VARIABLE, text),
        _ => ("", DEFAULT_FILTER),
    };
    let text = if text.contains(['=', ',']) {
        text.to_owned()
    } else {
        format!("{text},glommio=warn")
    };
    EnvFilter::try_new(&text).map_err(|_| {
        format!("{origin}: expected error, warn, info, debug, trace, off or directives such as info,engine=debug, got {text:?}")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_flag_wins_over_the_environment_and_the_environment_over_the_default() {
        let shown = |level, variable| filter(level, variable).unwrap().to_string();
        assert!(shown(Some("debug"), Some("trace")).contains("debug"));
        assert!(shown(None, Some("trace")).contains("trace"));
        assert!(shown(None, Some("warn,engine::session=debug")).contains("engine::session=debug"));
        assert!(shown(None, Some(" ")).contains("info"));
        assert!(shown(None, None).contains("info"));
    }

    #[test]
    fn nonsense_is_refused_with_its_origin() {
        for (level, variable, origin) in [
            (Some("loud=="), None, "--log-level"),
            (None, Some("=="), LOG_VARIABLE),
        ] {
            let error = filter(level, variable).unwrap_err();
            assert!(error.starts_with(origin), "{error}");
        }
    }
}
