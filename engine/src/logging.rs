//! Logs by `tracing`, as text or JSON on standard error.

use std::io::IsTerminal;
use std::sync::OnceLock;

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
    let said = variable.is_some_and(|text| !text.trim().is_empty());
    let fixed_by = match level {
        Some(_) => Some("--log-level"),
        None if said => Some(LOG_VARIABLE),
        None => None,
    };
    let builder = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal());
    let started = match format {
        LogFormat::Text => {
            let builder = builder.with_filter_reloading();
            let handle = builder.reload_handle();
            remember(fixed_by, move |filter| drop(handle.reload(filter)));
            builder.try_init()
        }
        LogFormat::Json => {
            let builder = builder
                .json()
                .flatten_event(true)
                .with_current_span(false)
                .with_span_list(false)
                .with_filter_reloading();
            let handle = builder.reload_handle();
            remember(fixed_by, move |filter| drop(handle.reload(filter)));
            builder.try_init()
        }
    };
    started.map_err(|error| format!("cannot start logging: {error}"))
}

/// How the filter is replaced.
struct Live {
    fixed_by: Option<&'static str>,
    set: Box<dyn Fn(EnvFilter) + Send + Sync>,
}

static LIVE: OnceLock<Live> = OnceLock::new();

fn remember(fixed_by: Option<&'static str>, set: impl Fn(EnvFilter) + Send + Sync + 'static) {
    let set = Box::new(set);
    // A second call is an error of `try_init` too.
    let _ = LIVE.set(Live { fixed_by, set });
}

/// What wins over the configuration's `log.level`, if something does.
pub fn fixed_by() -> Option<&'static str> {
    LIVE.get()?.fixed_by
}

/// Takes over what the configuration says; `None`: nothing.
pub fn set_level(level: Option<&str>) {
    if let Some(live) = LIVE.get()
        && live.fixed_by.is_none()
        && let Ok(filter) = filter(level, None)
    {
        (live.set)(filter);
    }
}

/// Whether this is a level, or directives.
pub fn check(level: &str) -> Result<(), String> {
    let wrong = |_| {
        format!(
            "expected error, warn, info, debug, trace, off or directives such as info,engine=debug, got {level:?}"
        )
    };
    let known = ["error", "warn", "info", "debug", "trace", "off"];
    if !level.contains(['=', ',']) && !known.contains(&level.to_lowercase().as_str()) {
        return Err(wrong(()));
    }
    EnvFilter::try_new(level).map(drop).map_err(|_| wrong(()))
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
