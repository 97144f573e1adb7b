//! What is known of the clients' passwords: shared by all shards, read only.

use crate::config::{AuthMethod, Config, User, UserSecret};
use crate::random;
use crate::shard::Shard;
use protocol::auth::scram::{ITERATIONS_DEFAULT, Verifier};
use protocol::auth::{Secret, md5};
use std::collections::HashMap;
use std::sync::{Arc, OnceLock};
use zeroize::Zeroizing;

/// See the module's text.
pub struct Credentials {
    method: AuthMethod,
    /// False: every name is let in.
    known_only: bool,
    users: HashMap<String, Arc<Known>>,
    /// Gives unknown users a salt that stays the same while the process lives.
    mock_secret: [u8; 32],
}

/// What is known of one user.
pub struct Known {
    secret: Option<UserSecret>,
    /// Made of a clear-text password when it is first needed.
    verifier: OnceLock<Arc<Verifier>>,
}

/// What a client must do to prove who it is.
pub(super) enum Proof {
    /// Nothing.
    None,
    /// Answer an MD5 challenge; nobody can, without a hash.
    Md5(Option<Zeroizing<String>>),
    /// SCRAM against this verifier, which for an unknown user nobody can satisfy.
    Scram(Arc<Verifier>),
    /// It is not let in, whatever it does.
    Unknown,
}

impl Credentials {
    /// What the configuration says.
    pub fn new(config: &Config) -> Self {
        let known = |user: &User| {
            Arc::new(Known {
                secret: user.secret.clone(),
                verifier: OnceLock::new(),
            })
        };
        Self {
            method: config.auth.method,
            known_only: config.auth.enabled,
            users: config
                .auth
                .users
                .iter()
                .map(|(name, user)| (name.clone(), known(user)))
                .collect(),
            mock_secret: random::array(),
        }
    }

    /// How this user proves who it is. Unknown users are asked the same as
    /// known ones. PBKDF2 runs beside the shard.
    pub(super) async fn proof(&self, shard: &Shard, user: &[u8]) -> Proof {
        let known = std::str::from_utf8(user)
            .ok()
            .and_then(|name| self.users.get(name));
        match (self.method, known.and_then(|known| known.secret.as_ref())) {
            (AuthMethod::Trust, _) if known.is_some() || !self.known_only => Proof::None,
            (AuthMethod::Trust, _) => Proof::Unknown,
            (AuthMethod::Md5, Some(UserSecret::Cleartext(password))) => {
                Proof::Md5(Some(md5::hash_password(user, password.expose().as_bytes())))
            }
            (AuthMethod::Md5, Some(UserSecret::Md5(hash))) => {
                Proof::Md5(Some(Zeroizing::new(hash.expose().to_owned())))
            }
            // As PostgreSQL does: the md5 method asks for SCRAM where only a
            // SCRAM secret is stored.
            (_, Some(UserSecret::Scram(_) | UserSecret::Cleartext(_))) => match known {
                Some(known) => Proof::Scram(
                    known
                        .verifier(shard)
                        .await
                        .unwrap_or_else(|| self.mock(user)),
                ),
                None => Proof::Scram(self.mock(user)),
            },
            (AuthMethod::Md5, None) => Proof::Md5(None),
            // A hash for MD5 cannot answer for SCRAM.
            (AuthMethod::ScramSha256, Some(UserSecret::Md5(_)) | None) => {
                Proof::Scram(self.mock(user))
            }
        }
    }

    fn mock(&self, user: &[u8]) -> Arc<Verifier> {
        Arc::new(Verifier::mock(user, &self.mock_secret))
    }
}

impl Known {
    async fn verifier(&self, shard: &Shard) -> Option<Arc<Verifier>> {
        if let Some(verifier) = self.verifier.get() {
            return Some(Arc::clone(verifier));
        }
        let verifier = match self.secret.as_ref()? {
            UserSecret::Scram(text) => Verifier::parse(text.expose()).ok()?,
            UserSecret::Cleartext(password) => {
                let password = Secret::new(password.expose().as_bytes());
                let salt: [u8; 16] = random::array();
                shard
                    .offload(move || {
                        Verifier::from_password(password.expose(), &salt, ITERATIONS_DEFAULT)
                    })
                    .await
            }
            UserSecret::Md5(_) => return None,
        };
        // Two logins may race; one salt wins for good.
        Some(Arc::clone(self.verifier.get_or_init(|| Arc::new(verifier))))
    }
}
