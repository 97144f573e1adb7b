//! Which path does what, by which method, for whom.

use crate::access::Role;
use crate::answer::{self, Answer};
use crate::exposition::CONTENT_TYPE;
use crate::handle::{
    Cancelled, Connections, Figures, Handle, Maintenance, Order, Ordered, Readiness, Reloaded,
    State, Unclear, Unknown, Wanted,
};
use crate::metrics;
use crate::moment::rfc3339;
use crate::thread::Counts;
use hyper::header;
use hyper::http::request::Parts;
use hyper::{Method, StatusCode};
use serde_json::{Map, Value, json};
use std::net::IpAddr;
use std::sync::Arc;

/// What is served at an address, beside `/healthz` and `/readyz`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Scope {
    pub(crate) metrics: bool,
    pub(crate) admin: bool,
}

/// What is to be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Route {
    Metrics,
    Healthz,
    Readyz,
    Health,
    Stats,
    Config,
    Reload,
    Connections,
    Sessions,
    Cancel(u32),
    Maintenance(Verb),
    Order(Order),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verb {
    Look,
    Begin,
    End,
}

/// What is at a path, by method.
struct Place {
    get: Option<Route>,
    post: Option<Route>,
    delete: Option<Route>,
}

impl Place {
    const fn look(route: Route) -> Self {
        Self {
            get: Some(route),
            post: None,
            delete: None,
        }
    }

    const fn order(route: Route) -> Self {
        Self {
            get: None,
            post: Some(route),
            delete: None,
        }
    }

    fn by(&self, method: &Method) -> Option<Route> {
        match *method {
            Method::GET | Method::HEAD => self.get,
            Method::POST => self.post,
            Method::DELETE => self.delete,
            _ => None,
        }
    }

    /// RFC 9110, 15.5.6: a 405 says what would be allowed.
    fn allowed(&self) -> String {
        let methods = [
            (self.get, "GET, HEAD"),
            (self.post, "POST"),
            (self.delete, "DELETE"),
        ];
        let methods = methods.iter().filter(|(route, _)| route.is_some());
        let names: Vec<_> = methods.map(|(_, name)| *name).collect();
        names.join(", ")
    }
}

fn place(path: &str, scope: Scope) -> Result<Place, Answer> {
    let unknown = || answer::error(StatusCode::NOT_FOUND, "there is nothing at this path");
    match path {
        "/healthz" => return Ok(Place::look(Route::Healthz)),
        "/readyz" => return Ok(Place::look(Route::Readyz)),
        "/metrics" if scope.metrics => return Ok(Place::look(Route::Metrics)),
        _ => {}
    }
    let under = path.strip_prefix("/admin/").filter(|_| scope.admin);
    Ok(match under.ok_or_else(unknown)? {
        "health" => Place::look(Route::Health),
        "stats" => Place::look(Route::Stats),
        "config" => Place::look(Route::Config),
        "reload" => Place::order(Route::Reload),
        "pause" => Place::order(Route::Order(Order::Pause)),
        "resume" => Place::order(Route::Order(Order::Resume)),
        "reconnect" => Place::order(Route::Order(Order::Reconnect)),
        "kill" => Place::order(Route::Order(Order::Kill)),
        "connections" => Place::look(Route::Connections),
        "sessions" => Place::look(Route::Sessions),
        "maintenance" => Place {
            get: Some(Route::Maintenance(Verb::Look)),
            post: Some(Route::Maintenance(Verb::Begin)),
            delete: Some(Route::Maintenance(Verb::End)),
        },
        other => {
            let id = other.strip_prefix("sessions/").ok_or_else(unknown)?;
            let id = id.strip_suffix("/cancel").ok_or_else(unknown)?;
            if id.contains('/') {
                return Err(unknown());
            }
            let digits = !id.is_empty() && id.bytes().all(|byte| byte.is_ascii_digit());
            match id.parse() {
                Ok(id) if digits => Place::order(Route::Cancel(id)),
                _ => {
                    return Err(answer::error(
                        StatusCode::BAD_REQUEST,
                        "expected the number of a session, as /admin/sessions tells it",
                    ));
                }
            }
        }
    })
}

/// The route of a request that may be taken.
pub(crate) fn find<H: Handle>(
    head: &Parts,
    peer: IpAddr,
    scope: Scope,
    handle: &Arc<H>,
) -> Result<Route, Answer> {
    let place = place(head.uri.path(), scope)?;
    let Some(route) = place.by(&head.method) else {
        let text = "this method is not possible here";
        let answer = answer::error(StatusCode::METHOD_NOT_ALLOWED, text);
        return Err(answer.with(header::ALLOW, place.allowed()));
    };
    if let Some(role) = route.role() {
        // A page in an operator's browser could ask 127.0.0.1 for anything;
        // browsers say whose page it is.
        if head.headers.contains_key(header::ORIGIN) {
            return Err(answer::error(
                StatusCode::FORBIDDEN,
                "requests of web pages are not taken",
            ));
        }
        handle.access().admit(peer, &head.headers, role)?;
    }
    Ok(route)
}

impl Route {
    /// What it takes; `None`: nothing.
    fn role(self) -> Option<Role> {
        match self {
            Self::Metrics | Self::Healthz | Self::Readyz => None,
            Self::Reload
            | Self::Cancel(_)
            | Self::Order(_)
            | Self::Maintenance(Verb::Begin | Verb::End) => Some(Role::Admin),
            _ => Some(Role::Viewer),
        }
    }

    /// What may stand behind the `?`.
    fn parameters(self) -> &'static [&'static str] {
        match self {
            Self::Readyz | Self::Maintenance(_) | Self::Order(_) => &["database"],
            Self::Sessions => &["state", "user", "database", "limit", "after"],
            // Some scrapers add some of their own.
            Self::Metrics | Self::Healthz => &["*"],
            _ => &[],
        }
    }
}

/// Does it.
pub(crate) async fn act<H: Handle>(
    route: Route,
    head: &Parts,
    handle: &Arc<H>,
    counts: &Counts,
) -> Answer {
    let query = match Query::read(head.uri.query().unwrap_or_default(), route.parameters()) {
        Ok(query) => query,
        Err(problem) => return unclear(&problem),
    };
    let database = query.get("database");
    match route {
        Route::Healthz => answer::json(StatusCode::OK, &json!({ "status": "ok" })),
        Route::Metrics => {
            let mut figures = handle.figures().await;
            figures.thread = counts.figures();
            answer::text(StatusCode::OK, CONTENT_TYPE, metrics::page(&figures))
        }
        Route::Readyz => readyz(handle.readiness(database).await),
        Route::Health => answer::json(StatusCode::OK, &handle.health().await),
        Route::Stats => answer::json(StatusCode::OK, &stats(&handle.figures().await)),
        Route::Config => answer::json(StatusCode::OK, &handle.config()),
        Route::Reload => reload(handle.reload().await),
        Route::Connections => answer::json(StatusCode::OK, &connections(&handle.connections())),
        Route::Sessions => sessions(&query, handle).await,
        Route::Cancel(id) => cancelled(handle.cancel(id).await),
        Route::Maintenance(verb) => maintenance(verb, database, handle).await,
        Route::Order(order) => ordered(order, handle.order(order, database).await),
    }
}

fn readyz(readiness: Readiness) -> Answer {
    match readiness {
        Readiness::Ready => answer::json(StatusCode::OK, &json!({ "status": "ready" })),
        Readiness::NotReady(reason) => answer::json(
            StatusCode::SERVICE_UNAVAILABLE,
            &json!({ "status": "not_ready", "reason": reason }),
        ),
        Readiness::Unknown => unknown_database(),
    }
}

fn unknown_database() -> Answer {
    answer::error(StatusCode::NOT_FOUND, "there is no such database")
}

fn unclear(problem: &str) -> Answer {
    answer::error(StatusCode::BAD_REQUEST, problem)
}

fn reload(reloaded: Reloaded) -> Answer {
    match reloaded {
        Reloaded::Done(report) => answer::json(
            StatusCode::OK,
            &json!({ "status": "reloaded", "report": report }),
        ),
        Reloaded::Failed(problems, report) => answer::json(
            StatusCode::INTERNAL_SERVER_ERROR,
            &json!({ "status": "error", "error": problems.join("; "), "problems": problems, "report": report }),
        ),
        Reloaded::Unavailable => answer::error(
            StatusCode::SERVICE_UNAVAILABLE,
            "nothing is read again now: the process ends, or is at it already",
        ),
    }
}

fn cancelled(cancelled: Cancelled) -> Answer {
    match cancelled {
        Cancelled::Sent => answer::json(StatusCode::OK, &json!({ "status": "cancelled" })),
        Cancelled::Idle => answer::json(
            StatusCode::OK,
            &json!({ "status": "no_active_query", "message": "the session has asked nothing that could be cancelled" }),
        ),
        Cancelled::Unknown => answer::error(StatusCode::NOT_FOUND, "there is no such session"),
        Cancelled::Silent => answer::error(
            StatusCode::SERVICE_UNAVAILABLE,
            "the session's shard has not answered in time",
        ),
    }
}

fn stats(figures: &Figures) -> Value {
    let pools = figures.databases.iter().map(|database| {
        let writer = json!({
            "addr": database.address,
            "open": database.open,
            "idle": database.idle,
            "waiting": database.waiting,
            "acquires": database.acquires,
            "max": database.max,
            "paused": database.paused,
        });
        let pool = json!({ "writer": writer, "readers": {} });
        (database.name.clone(), pool)
    });
    let shards = figures.shards.iter().enumerate().map(|(id, shard)| {
        json!({
            "shard": id,
            "answered": shard.answered,
            "clients": shard.clients,
            "turns": shard.turns,
            "cpu_ms": u64::try_from(shard.cpu.as_millis()).unwrap_or(u64::MAX),
        })
    });
    let all = figures.all.figures();
    let all: Map<String, Value> = all
        .map(|(name, figure)| (name.to_owned(), figure.into()))
        .collect();
    json!({
        "pool": pools.collect::<Map<_, _>>(),
        "shards": shards.collect::<Vec<_>>(),
        "figures": all,
    })
}

/// With limits off they are told all the same: how many there are is asked for
/// more often than how many there may be.
fn connections(connections: &Connections) -> Value {
    let shares = |shares: &[crate::handle::Share]| -> Map<String, Value> {
        let told = |share: &crate::handle::Share| {
            let value = json!({ "active": share.active, "limit": share.limit });
            (share.name.clone(), value)
        };
        shares.iter().map(told).collect()
    };
    json!({
        "limits_enabled": connections.limited,
        "by_user": shares(&connections.by_user),
        "other_users": connections.other_users,
        "by_database": shares(&connections.by_database),
        "defaults": connections.defaults,
    })
}

async fn sessions<H: Handle>(query: &Query, handle: &Arc<H>) -> Answer {
    let wanted = match wanted(query) {
        Ok(wanted) => wanted,
        Err(problem) => return unclear(&problem),
    };
    match handle.sessions(wanted).await {
        Ok(page) => match serde_json::to_value(page) {
            Ok(page) => answer::json(StatusCode::OK, &page),
            Err(error) => answer::error(StatusCode::INTERNAL_SERVER_ERROR, &error.to_string()),
        },
        Err(Unclear(problem)) => unclear(&problem),
    }
}

fn wanted(query: &Query) -> Result<Wanted, String> {
    let state = match query.get("state") {
        None => None,
        Some(name) => {
            let known = State::ALL.into_iter().find(|state| state.name() == name);
            Some(known.ok_or("expected state=idle, waiting, active or in_transaction")?)
        }
    };
    let limit = match query.get("limit").map(str::parse) {
        None => PAGE,
        Some(Ok(limit)) if (1..=PAGE_MAX).contains(&limit) => limit,
        Some(_) => return Err(format!("expected limit=1 to {PAGE_MAX}")),
    };
    Ok(Wanted {
        state,
        user: query.get("user").map(str::to_owned),
        database: query.get("database").map(str::to_owned),
        limit,
        after: query.get("after").map(str::to_owned),
    })
}

async fn maintenance<H: Handle>(verb: Verb, database: Option<&str>, handle: &Arc<H>) -> Answer {
    let on = match verb {
        Verb::Look => return look_at(&handle.maintenance(), database, handle).await,
        Verb::Begin => true,
        Verb::End => false,
    };
    let Ok(changed) = handle.set_maintenance(database, on).await else {
        return unknown_database();
    };
    let status = match (on, changed.changed) {
        (true, true) => "maintenance_entered",
        (true, false) => "already in maintenance mode",
        (false, true) => "maintenance_exited",
        (false, false) => "not in maintenance mode",
    };
    let mut value = json!({ "status": status });
    if !changed.silent_shards.is_empty() {
        value["silent_shards"] = json!(changed.silent_shards);
    }
    answer::json(StatusCode::OK, &value)
}

fn ordered(order: Order, ordered: Result<Ordered, Unknown>) -> Answer {
    let status = match (order, ordered) {
        (_, Err(Unknown)) => return unknown_database(),
        (_, Ok(Ordered::Unavailable)) => {
            let text = "the process ends";
            return answer::error(StatusCode::SERVICE_UNAVAILABLE, text);
        }
        (_, Ok(Ordered::Overridden)) => {
            let text = "it has been resumed meanwhile";
            return answer::error(StatusCode::CONFLICT, text);
        }
        // RFC 9110, 15.3.3: accepted, and not completed.
        (_, Ok(Ordered::UnderWay)) => {
            let value = json!({ "status": "pausing", "message": "transactions still run; no new one begins" });
            return answer::json(StatusCode::ACCEPTED, &value);
        }
        (Order::Pause | Order::Kill, Ok(Ordered::Done)) => "paused",
        (Order::Resume, Ok(Ordered::Done)) => "resumed",
        (Order::Reconnect, Ok(Ordered::Done)) => "reconnecting",
    };
    answer::json(StatusCode::OK, &json!({ "status": status }))
}

async fn look_at<H: Handle>(
    maintenance: &Maintenance,
    database: Option<&str>,
    handle: &Arc<H>,
) -> Answer {
    if database.is_some_and(|name| !handle.has_database(name)) {
        return unknown_database();
    }
    let since = maintenance.since(database);
    let mut value = json!({ "enabled": since.is_some() });
    if let Some(since) = since {
        value["entered_at"] = rfc3339(since).into();
    }
    if database.is_none() {
        let databases = maintenance.databases.iter();
        let databases = databases.map(|(name, since)| (name.clone(), rfc3339(*since).into()));
        value["databases"] = Value::Object(databases.collect());
    }
    answer::json(StatusCode::OK, &value)
}

/// What stands behind the `?`.
struct Query(Vec<(String, String)>);

impl Query {
    fn read(text: &str, known: &[&str]) -> Result<Self, String> {
        let mut pairs: Vec<(String, String)> = Vec::new();
        for pair in text.split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            let (name, value) = (decoded(name)?, decoded(value)?);
            if known == ["*"] {
                continue;
            }
            if !known.contains(&name.as_str()) {
                return Err(match known {
                    [] => "no parameter is known here".to_owned(),
                    known => format!("expected no parameter but {}", known.join(", ")),
                });
            }
            if pairs.iter().any(|(other, _)| *other == name) {
                return Err(format!("{name} is given twice"));
            }
            pairs.push((name, value));
        }
        Ok(Self(pairs))
    }

    fn get(&self, name: &str) -> Option<&str> {
        let mut pairs = self.0.iter();
        pairs
            .find(|(own, _)| own == name)
            .map(|(_, value)| value.as_str())
    }
}

/// As a form is encoded: `+` for a space, `%` and two digits for a byte.
fn decoded(text: &str) -> Result<String, String> {
    let wrong = || "expected text that is encoded as in a form".to_owned();
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, behind @ ..] = rest {
        rest = behind;
        bytes.push(match (first, behind) {
            (b'+', _) => b' ',
            (b'%', [high, low, behind @ ..]) => {
                rest = behind;
                let digit = |byte: &u8| char::from(*byte).to_digit(16).ok_or_else(wrong);
                u8::try_from(digit(high)? * 16 + digit(low)?).map_err(|_| wrong())?
            }
            (b'%', _) => return Err(wrong()),
            (byte, _) => *byte,
        });
    }
    String::from_utf8(bytes).map_err(|_| wrong())
}

/// Clients of a page, unless told.
const PAGE: usize = 1000;
const PAGE_MAX: usize = 10_000;

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: Scope = Scope {
        metrics: true,
        admin: true,
    };

    fn status(method: Method, path: &str, scope: Scope) -> u16 {
        match place(path, scope) {
            Err(answer) => answer.status().as_u16(),
            Ok(place) if place.by(&method).is_none() => 405,
            Ok(_) => 200,
        }
    }

    #[test]
    fn each_path_has_its_methods_and_others_are_told_which() {
        for (path, allowed) in [
            ("/metrics", "GET, HEAD"),
            ("/healthz", "GET, HEAD"),
            ("/readyz", "GET, HEAD"),
            ("/admin/health", "GET, HEAD"),
            ("/admin/stats", "GET, HEAD"),
            ("/admin/config", "GET, HEAD"),
            ("/admin/connections", "GET, HEAD"),
            ("/admin/sessions", "GET, HEAD"),
            ("/admin/reload", "POST"),
            ("/admin/pause", "POST"),
            ("/admin/resume", "POST"),
            ("/admin/reconnect", "POST"),
            ("/admin/kill", "POST"),
            ("/admin/sessions/7/cancel", "POST"),
            ("/admin/maintenance", "GET, HEAD, POST, DELETE"),
        ] {
            let place = place(path, ALL).unwrap_or_else(|_| panic!("{path}"));
            assert_eq!(place.allowed(), allowed, "{path}");
            assert_eq!(status(Method::PATCH, path, ALL), 405, "{path}");
        }
        for path in [
            "/",
            "",
            "/admin",
            "/admin/",
            "/admin/sessions/",
            "/admin/stats/",
            "/admin/sessions/1/2/cancel",
            "/METRICS",
            "/admin/sessions/1",
        ] {
            assert_eq!(status(Method::GET, path, ALL), 404, "{path}");
        }
        for id in ["", "x", "-1", "+1", "4294967296", "1%20"] {
            let path = format!("/admin/sessions/{id}/cancel");
            assert_eq!(status(Method::POST, &path, ALL), 400, "{path}");
        }
    }

    #[test]
    fn an_address_serves_what_it_is_for() {
        let metrics = Scope {
            metrics: true,
            admin: false,
        };
        let admin = Scope {
            metrics: false,
            admin: true,
        };
        for scope in [metrics, admin] {
            assert_eq!(status(Method::GET, "/healthz", scope), 200);
            assert_eq!(status(Method::GET, "/readyz", scope), 200);
        }
        assert_eq!(status(Method::GET, "/metrics", admin), 404);
        assert_eq!(status(Method::GET, "/admin/stats", metrics), 404);
        assert_eq!(
            status(Method::POST, "/admin/sessions/1/cancel", metrics),
            404
        );
    }

    #[test]
    fn what_changes_something_needs_an_admin() {
        for (path, method, role) in [
            ("/metrics", Method::GET, None),
            ("/admin/stats", Method::GET, Some(Role::Viewer)),
            ("/admin/maintenance", Method::GET, Some(Role::Viewer)),
            ("/admin/maintenance", Method::POST, Some(Role::Admin)),
            ("/admin/maintenance", Method::DELETE, Some(Role::Admin)),
            ("/admin/reload", Method::POST, Some(Role::Admin)),
            ("/admin/pause", Method::POST, Some(Role::Admin)),
            ("/admin/kill", Method::POST, Some(Role::Admin)),
            ("/admin/sessions/1/cancel", Method::POST, Some(Role::Admin)),
        ] {
            let route = place(path, ALL).ok().and_then(|place| place.by(&method));
            assert_eq!(route.map(Route::role), Some(role), "{method} {path}");
        }
    }

    #[test]
    fn parameters_are_decoded_and_unknown_ones_refused() {
        let query = |text| Query::read(text, &["database", "limit"]);
        let read = query("database=a%22+%C3%A9%3D&limit=3&").expect("right");
        assert_eq!(read.get("database"), Some("a\" \u{e9}="));
        assert_eq!(read.get("limit"), Some("3"));
        for wrong in [
            "x=1",
            "limit=1&limit=2",
            "database=%",
            "database=%f",
            "database=%zz",
            "database=%ff",
        ] {
            assert!(query(wrong).is_err(), "{wrong}");
        }
        assert!(Query::read("anything=1", &["*"]).is_ok());
    }

    #[test]
    fn a_page_has_a_limit() {
        let limit = |text| {
            let query = Query::read(text, Route::Sessions.parameters()).expect("right");
            wanted(&query).map(|wanted| wanted.limit)
        };
        assert_eq!(limit(""), Ok(PAGE));
        assert_eq!(limit("limit=1"), Ok(1));
        assert_eq!(limit("limit=10000"), Ok(PAGE_MAX));
        for wrong in ["limit=0", "limit=10001", "limit=x", "limit=", "state=x"] {
            assert!(limit(wrong).is_err(), "{wrong}");
        }
    }
}
