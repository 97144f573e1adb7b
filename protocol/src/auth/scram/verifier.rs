//! What a server keeps instead of a password.

use std::fmt;

use zeroize::Zeroizing;

use crate::auth::scram::keys::{self, hmac};
use crate::auth::scram::message::{from_base64, from_base64_array, iterations, to_base64};
use crate::auth::scram::{
    ITERATIONS_DEFAULT, KEY_LEN, MECHANISM, SALT_LEN_MAX, SaslError, salted_password,
};

/// PostgreSQL's verifier, `SCRAM-SHA-256$<iterations>:<salt>$<stored key>:<server key>`.
#[derive(Clone)]
pub struct Verifier {
    /// How often the password is hashed.
    pub iterations: u32,
    /// What it is hashed with.
    pub salt: Vec<u8>,
    /// Hash of the client's key: what its proof is checked against.
    pub stored_key: Zeroizing<[u8; KEY_LEN]>,
    /// What the server signs with.
    pub server_key: Zeroizing<[u8; KEY_LEN]>,
    /// Stands for a user who does not exist: no proof will do.
    pub(super) mock: bool,
}

impl Verifier {
    /// Reads the form that `pg_authid.rolpassword` has.
    pub fn parse(text: &str) -> Result<Self, SaslError> {
        Self::parse_parts(text).ok_or(SaslError::Verifier)
    }

    /// Whether it is of the password of which this is the salted form.
    pub fn is_of(&self, salted: &[u8; KEY_LEN]) -> bool {
        let stored_key = keys::stored_key(&keys::client_key(salted));
        !self.mock && keys::equal(&*stored_key, &*self.stored_key)
    }

    fn parse_parts(text: &str) -> Option<Self> {
        let rest = text.strip_prefix(MECHANISM)?.strip_prefix('$')?;
        let (cost, keys) = rest.split_once('$')?;
        let (count, salt) = cost.split_once(':')?;
        let (stored, server) = keys.split_once(':')?;
        let salt = from_base64(salt).filter(|salt| (1..=SALT_LEN_MAX).contains(&salt.len()))?;
        Some(Self {
            iterations: iterations(count).ok()?,
            salt,
            stored_key: Zeroizing::new(from_base64_array(stored)?),
            server_key: Zeroizing::new(from_base64_array(server)?),
            mock: false,
        })
    }

    /// Derives the verifier of a password. As slow as [`salted_password`].
    pub fn from_password(password: &[u8], salt: &[u8], iterations: u32) -> Self {
        let salted = Zeroizing::new(salted_password(password, salt, iterations));
        Self {
            iterations,
            salt: salt.to_vec(),
            stored_key: keys::stored_key(&keys::client_key(&salted)),
            server_key: keys::server_key(&salted),
            mock: false,
        }
    }

    /// Stands for a user who does not exist: the exchange looks like any other, with a salt that
    /// stays the same for the same name as long as `secret` does, and never succeeds.
    pub fn mock(user: &[u8], secret: &[u8]) -> Self {
        let salt = hmac(secret, &[b"salt\0", user]);
        Self {
            iterations: ITERATIONS_DEFAULT,
            salt: salt.iter().copied().take(MOCK_SALT_LEN).collect(),
            stored_key: Zeroizing::new(hmac(secret, &[b"stored\0", user])),
            server_key: Zeroizing::new(hmac(secret, &[b"server\0", user])),
            mock: true,
        }
    }

    /// The same, with the number of iterations that the real users have.
    #[must_use]
    pub const fn with_iterations(mut self, iterations: u32) -> Self {
        self.iterations = iterations;
        self
    }
}

/// The form that `pg_authid.rolpassword` has.
impl fmt::Display for Verifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{MECHANISM}${}:{}${}:{}",
            self.iterations,
            to_base64(&self.salt),
            to_base64(&*self.stored_key),
            to_base64(&*self.server_key)
        )
    }
}

/// Without the keys, which are secrets.
impl fmt::Debug for Verifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Verifier")
            .field("iterations", &self.iterations)
            .finish_non_exhaustive()
    }
}

/// PostgreSQL's SCRAM_DEFAULT_SALT_LEN.
const MOCK_SALT_LEN: usize = 16;

#[cfg(test)]
mod tests {
    use super::*;

    /// What PostgreSQL 15 stored, for these passwords.
    const STORED: [(&str, &str); 4] = [
        (
            "pencil",
            "SCRAM-SHA-256$4096:ZIfYK61AqO9TJFG4IRSBOw==$\
             ZSuRz98o5kQjaEV+NZT+1b6kc33nsYMyX3RpPEAH3Bs=:\
             dOm+kYNL0h+vq32aZ/1GYVfZ8QF1Q9JFASkFdjyo73s=",
        ),
        (
            "I\u{AD}X",
            "SCRAM-SHA-256$4096:3sN/eArfHyiF00T3cy+fRw==$\
             HFan2m/6ndT+MavvMF1W/kf85VTn7/DN6+sHs+kI/a4=:\
             e8Q5+OkO3/h8W2MoA8LUS9Y0p+i9x7RKJ85GirIihTM=",
        ),
        (
            "\u{AA}\u{2168}",
            "SCRAM-SHA-256$4096:8jRyIt/GUpZhtDeaDTNRUQ==$\
             HCwVswLtrSRhAJE/EoYCLkoe7B5ydTzWHGh+lsjAVU8=:\
             /+h2tdhP/8/VjdIbfJI5d8xu6mv2Xx5Rk7gyabImIlA=",
        ),
        (
            "a\u{7}b",
            "SCRAM-SHA-256$4096:YWYwmH0wAB5Wt1y3rlykqA==$\
             TgqN/rNBd8ujr7e2hEcosuMWWT2+7CrIDAgptB27w5M=:\
             YLuc6K653SamA5iefC/Fmwh5y9EDAOeeKyDKgIkb7uA=",
        ),
    ];

    #[test]
    fn passwords_give_the_verifiers_that_postgresql_stores() {
        for (password, stored) in STORED {
            let verifier = Verifier::parse(stored).unwrap();
            assert_eq!(verifier.to_string(), stored);
            let derived =
                Verifier::from_password(password.as_bytes(), &verifier.salt, verifier.iterations);
            assert_eq!(derived.to_string(), stored, "{password:?}");
        }
    }

    #[test]
    fn what_is_no_verifier_is_refused() {
        let (_, good) = STORED[0];
        for (from, to) in [
            ("SCRAM-SHA-256", "SCRAM-SHA-1"),
            ("$4096:", "$0:"),
            ("$4096:", "$-1:"),
            ("$4096:", "$+1:"),
            ("$4096:", "$:"),
            ("$4096:", "$4294967296:"),
            ("ZIfYK61AqO9TJFG4IRSBOw==", ""),
            ("ZIfYK61AqO9TJFG4IRSBOw==", "!"),
            ("ZSuRz98o5kQjaEV+NZT+1b6kc33nsYMyX3RpPEAH3Bs=", "ZSuR"),
            ("dOm+kYNL0h+vq32aZ/1GYVfZ8QF1Q9JFASkFdjyo73s=", ""),
            ("=:dOm", "=dOm"),
        ] {
            let bad = good.replace(from, to);
            assert_ne!(bad, good);
            assert_eq!(
                Verifier::parse(&bad).err(),
                Some(SaslError::Verifier),
                "{bad}"
            );
        }
        assert!(Verifier::parse("").is_err());
        assert!(Verifier::parse(&format!("{good} ")).is_err());
    }

    #[test]
    fn a_salt_is_1_to_256_bytes_long() {
        for (len, good) in [(0, false), (1, true), (256, true), (257, false)] {
            let salt = to_base64(&vec![7; len]);
            let key = to_base64(&[0; KEY_LEN]);
            let text = format!("SCRAM-SHA-256$1:{salt}${key}:{key}");
            assert_eq!(Verifier::parse(&text).is_ok(), good, "{len}");
        }
    }

    #[test]
    fn a_mock_looks_real_and_stays_the_same_for_the_same_name() {
        let mock = Verifier::mock(b"nobody", b"secret");
        assert_eq!((mock.salt.len(), mock.iterations), (16, 4096));
        assert_eq!(mock.salt, Verifier::mock(b"nobody", b"secret").salt);
        assert_ne!(mock.salt, Verifier::mock(b"nobody2", b"secret").salt);
        assert_ne!(mock.salt, Verifier::mock(b"nobody", b"secret2").salt);
        assert_eq!(mock.with_iterations(10_000).iterations, 10_000);
    }

    #[test]
    fn the_keys_are_never_printed() {
        let verifier = Verifier::parse(STORED[0].1).unwrap();
        assert_eq!(format!("{verifier:?}"), "Verifier { iterations: 4096, .. }");
    }
}
