//! Where a target listens, and as whom to log in.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use anyhow::{Context, Result, bail};

/// The parts of a connection string that a benchmark needs.
#[derive(Clone, PartialEq, Eq)]
pub struct Dsn {
    /// Host name, address, or the directory of a unix socket.
    pub host: String,
    /// Port; also part of a unix socket's name.
    pub port: u16,
    /// Role.
    pub user: String,
    /// Password, for targets that ask for one.
    pub password: Option<String>,
    /// Database.
    pub database: String,
    /// The CA of the target's certificate, for one that is to be reached by TLS.
    pub ca: Option<PathBuf>,
}

impl Dsn {
    /// A target of this program's own making.
    pub fn local(port: u16) -> Self {
        Self {
            host: "127.0.0.1".to_owned(),
            port,
            user: SUPERUSER.to_owned(),
            password: None,
            database: DATABASE.to_owned(),
            ca: None,
        }
    }

    /// The form that libpq's programs take in place of a database name, without the
    /// password: it would show in the list of processes.
    pub fn conninfo(&self) -> String {
        let quote = |value: &str| format!("'{}'", value.replace('\\', r"\\").replace('\'', r"\'"));
        // libpq prefers TLS where it is offered, and only then looks at the certificate.
        let security = match &self.ca {
            Some(ca) => format!(
                "sslmode=verify-ca sslrootcert={}",
                quote(&ca.display().to_string())
            ),
            None => "sslmode=disable".to_owned(),
        };
        format!(
            "host={} port={} user={} dbname={} {security}",
            quote(&self.host),
            self.port,
            quote(&self.user),
            quote(&self.database),
        )
    }

    fn defaults() -> Self {
        Self::local(5432)
    }

    fn set(&mut self, key: &str, value: String) -> Result<()> {
        match key {
            "host" | "hostaddr" => self.host = value,
            "port" => self.port = value.parse().context("the port is not a number")?,
            "user" => self.user = value,
            "password" => self.password = Some(value),
            "dbname" => self.database = value,
            // What a benchmark on this machine need not know, like sslmode=disable.
            _ => {}
        }
        Ok(())
    }

    fn from_url(rest: &str) -> Result<Self> {
        let mut dsn = Self::defaults();
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (authority, database) = rest.split_once('/').unwrap_or((rest, ""));
        let (login, place) = authority.rsplit_once('@').unwrap_or(("", authority));
        let (user, password) = login.split_once(':').unwrap_or((login, ""));
        // An IPv6 address stands in brackets, since it is made of colons.
        let (host, port) = match place.strip_prefix('[').and_then(|p| p.split_once(']')) {
            Some((host, port)) => (host, port.strip_prefix(':').unwrap_or("")),
            None => place.split_once(':').unwrap_or((place, "")),
        };
        for (key, value) in [
            ("user", user),
            ("password", password),
            ("host", host),
            ("port", port),
            ("dbname", database),
        ] {
            if !value.is_empty() {
                dsn.set(key, percent_decode(value)?)?;
            }
        }
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let (key, value) = pair.split_once('=').context("a parameter without =")?;
            dsn.set(key, percent_decode(value)?)?;
        }
        Ok(dsn)
    }

    fn from_pairs(text: &str) -> Result<Self> {
        let mut dsn = Self::defaults();
        let mut rest = text.trim();
        while !rest.is_empty() {
            let (key, after) = rest.split_once('=').context("a word without =")?;
            let (value, after) = pair_value(after.trim_start())?;
            dsn.set(key.trim(), value)?;
            rest = after.trim_start();
        }
        Ok(dsn)
    }
}

impl FromStr for Dsn {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Self> {
        let url = ["postgres://", "postgresql://"]
            .iter()
            .find_map(|scheme| text.strip_prefix(scheme));
        let dsn = match url {
            Some(rest) => Self::from_url(rest),
            None => Self::from_pairs(text),
        };
        dsn.context(
            "a connection string is postgres://user@host:port/database or host=… port=… user=… dbname=…",
        )
    }
}

/// Without the password: this form goes into messages and reports.
impl fmt::Debug for Dsn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}@{}:{}/{}",
            self.user, self.host, self.port, self.database
        )
    }
}

/// One value of the key=value form, quoted or not, and what follows it.
fn pair_value(text: &str) -> Result<(String, &str)> {
    let quoted = text.starts_with('\'');
    let mut value = String::new();
    let mut chars = text.char_indices().skip(usize::from(quoted));
    while let Some((at, c)) = chars.next() {
        match c {
            '\\' => value.extend(chars.next().map(|(_, c)| c)),
            '\'' if quoted => return Ok((value, &text[at + 1..])),
            c if !quoted && c.is_whitespace() => return Ok((value, &text[at..])),
            c => value.push(c),
        }
    }
    if quoted {
        bail!("a quote that is never closed");
    }
    Ok((value, ""))
}

fn percent_decode(text: &str) -> Result<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, tail @ ..] = rest {
        rest = tail;
        if *first != b'%' {
            bytes.push(*first);
            continue;
        }
        let digits = tail.get(..2).and_then(|two| std::str::from_utf8(two).ok());
        let digits = digits.context("a % without two digits")?;
        bytes.push(u8::from_str_radix(digits, 16).context("a % without two hexadecimal digits")?);
        rest = &tail[2..];
    }
    String::from_utf8(bytes).context("not UTF-8")
}

/// The role and the database of the throwaway cluster; `shared/spikes/pooler.rs` knows no others.
pub const SUPERUSER: &str = "postgres";
/// The database that pgbench fills.
pub const DATABASE: &str = "bench";

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> Dsn {
        text.parse().expect("parses")
    }

    #[test]
    fn both_forms_mean_the_same() {
        let expected = Dsn {
            host: "127.0.0.1".into(),
            port: 6543,
            user: "al".into(),
            password: Some("p w".into()),
            database: "shop".into(),
            ca: None,
        };
        assert_eq!(
            parsed("postgres://al:p%20w@127.0.0.1:6543/shop?sslmode=disable"),
            expected
        );
        assert_eq!(
            parsed("host=127.0.0.1 port = 6543 user=al password='p w' dbname=shop"),
            expected
        );
    }

    #[test]
    fn what_is_left_out_has_libpqs_port_and_our_names() {
        assert_eq!(parsed("postgres://"), Dsn::local(5432));
        assert_eq!(parsed(""), Dsn::local(5432));
        assert_eq!(parsed("postgres://[::1]:7/x").host, "::1");
        assert_eq!(parsed("postgresql://%2Ftmp%2Fpg/x").host, "/tmp/pg");
    }

    #[test]
    fn nonsense_is_refused() {
        for text in [
            "host",
            "port=x",
            "host='a",
            "postgres://h:99999/",
            "postgres://%4/",
            "postgres://h/?x",
        ] {
            assert!(text.parse::<Dsn>().is_err(), "{text}");
        }
    }

    #[test]
    fn conninfo_survives_quotes_and_hides_the_password() {
        let mut dsn = Dsn::local(1);
        dsn.database = r"it's \ x".into();
        dsn.password = Some("secret".into());
        let text = dsn.conninfo();
        assert!(!text.contains("secret") && !format!("{dsn:?}").contains("secret"));
        dsn.password = None;
        assert_eq!(parsed(&text), dsn);
    }
}
