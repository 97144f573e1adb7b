//! What is known of passwords and of who may come: part of the snapshot that
//! all shards share, looked at once a login.

use super::Refused;
use crate::auth::{Method, Rules};
use crate::config::{AuthMethod, Config, Secret as Password, User, UserSecret};
use crate::random;
use crate::shard::{Found, Shard};
use protocol::auth::scram::{ITERATIONS_DEFAULT, Verifier, salted_password};
use protocol::auth::{Secret, md5};
use protocol::error::SqlState;
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::{Arc, OnceLock};
use zeroize::Zeroizing;

/// See the module's text.
pub struct Credentials {
    /// False: nobody is asked for anything.
    known_only: bool,
    users: HashMap<String, Arc<Known>>,
    rules: Option<Arc<Rules>>,
    method: AuthMethod,
    /// Users that are listed nowhere are asked for.
    asks: bool,
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
    /// Nothing more.
    None(Option<Arc<Known>>),
    /// Answer an MD5 challenge; nobody can, without a hash.
    Md5(Option<Arc<Known>>, Option<Zeroizing<String>>),
    /// SCRAM against this verifier, which for an unknown user nobody can satisfy.
    Scram(Option<Arc<Known>>, Arc<Verifier>),
    /// Say the password; for an unknown user none is right.
    Password(Option<Arc<Known>>),
    /// It is not let in, whatever it does.
    Unknown,
}

impl Credentials {
    /// What the configuration says.
    pub fn new(config: &Config) -> Self {
        Self::make(config, &HashMap::new(), random::array())
    }

    /// The same for a configuration that takes the place of this one's. Who has
    /// the same secret as before keeps what was made of it.
    pub fn after(&self, config: &Config) -> Self {
        Self::make(config, &self.users, self.mock_secret)
    }

    fn make(config: &Config, before: &HashMap<String, Arc<Known>>, mock_secret: [u8; 32]) -> Self {
        let known = |user: &User| match before.get(&user.name) {
            Some(known) if known.is_of(user.secret.as_ref()) => Arc::clone(known),
            _ => Arc::new(Known::new(user.secret.clone())),
        };
        let users = config.auth.users.iter();
        Self {
            known_only: config.auth.enabled,
            users: users
                .map(|(name, user)| (name.clone(), known(user)))
                .collect(),
            rules: config.auth.rules.clone(),
            method: config.auth.method,
            asks: config.auth.query.is_some(),
            mock_secret,
        }
    }

    /// The rules that decide, if there are any.
    pub(super) fn rules(&self) -> Option<Arc<Rules>> {
        self.rules.clone()
    }

    /// How clients prove who they are where there are no rules.
    pub(super) fn method(&self) -> AuthMethod {
        self.method
    }

    /// How this user proves who it is. Unknown users are asked the same as
    /// known ones. PBKDF2 runs beside the shard.
    pub(super) async fn proof(
        &self,
        shard: &Rc<Shard>,
        method: Method,
        group: Option<usize>,
        user: &[u8],
    ) -> Result<Proof, Refused> {
        if !self.known_only {
            return Ok(Proof::None(None));
        }
        let known = self.find(shard, group, user).await?;
        let secret = known.as_deref().and_then(|known| known.secret.as_ref());
        Ok(match (method, secret) {
            (Method::Trust | Method::Cert, _) if known.is_some() => Proof::None(known),
            (Method::Trust | Method::Cert | Method::Reject, _) => Proof::Unknown,
            (Method::Password, _) => Proof::Password(known),
            (Method::Md5, Some(UserSecret::Cleartext(password))) => {
                let hash = md5::hash_password(user, password.expose().as_bytes());
                Proof::Md5(known, Some(hash))
            }
            (Method::Md5, Some(UserSecret::Md5(hash))) => {
                let hash = Zeroizing::new(hash.expose().to_owned());
                Proof::Md5(known, Some(hash))
            }
            // As PostgreSQL does: the md5 method asks for SCRAM where only a
            // SCRAM secret is stored.
            (_, Some(UserSecret::Scram(_) | UserSecret::Cleartext(_))) => {
                let verifier = match &known {
                    Some(known) => known.verifier(shard).await,
                    None => None,
                };
                match verifier {
                    Some(verifier) => Proof::Scram(known, verifier),
                    None => Proof::Scram(None, self.mock(user)),
                }
            }
            (Method::Md5, None) => Proof::Md5(None, None),
            // A hash for MD5 cannot answer for SCRAM.
            (Method::Scram, Some(UserSecret::Md5(_)) | None) => Proof::Scram(None, self.mock(user)),
        })
    }

    /// A user that is listed, or that PostgreSQL knows.
    async fn find(
        &self,
        shard: &Rc<Shard>,
        group: Option<usize>,
        user: &[u8],
    ) -> Result<Option<Arc<Known>>, Refused> {
        let listed = std::str::from_utf8(user)
            .ok()
            .and_then(|name| self.users.get(name).cloned());
        if let Some(known) = listed {
            return Ok(Some(known));
        }
        let (Some(group), true) = (group, self.asks) else {
            return Ok(None);
        };
        match shard.look_up(group, user).await {
            Found::Known(known) => Ok(Some(known)),
            Found::Unknown => Ok(None),
            Found::Failed => Err(Refused::fatal(
                SqlState::CONNECTION_FAILURE,
                "the server cannot be asked for this user",
            )),
        }
    }

    fn mock(&self, user: &[u8]) -> Arc<Verifier> {
        Arc::new(Verifier::mock(user, &self.mock_secret))
    }
}

impl Known {
    /// Of a user with this secret.
    pub fn new(secret: Option<UserSecret>) -> Self {
        Self {
            secret,
            verifier: OnceLock::new(),
        }
    }

    fn is_of(&self, secret: Option<&UserSecret>) -> bool {
        let same = |a: &Password, b: &Password| a.expose() == b.expose();
        match (&self.secret, secret) {
            (None, None) => true,
            (Some(UserSecret::Cleartext(a)), Some(UserSecret::Cleartext(b)))
            | (Some(UserSecret::Md5(a)), Some(UserSecret::Md5(b)))
            | (Some(UserSecret::Scram(a)), Some(UserSecret::Scram(b))) => same(a, b),
            _ => false,
        }
    }

    /// The secret, where it will do as a password for a server.
    pub(super) fn password(&self) -> Option<Password> {
        match self.secret.as_ref()? {
            UserSecret::Cleartext(secret) | UserSecret::Md5(secret) => Some(secret.clone()),
            UserSecret::Scram(_) => None,
        }
    }

    /// Whether this is the password. PBKDF2 runs beside the shard.
    pub(super) async fn is_password(&self, shard: &Shard, user: &[u8], said: &[u8]) -> bool {
        match &self.secret {
            None => false,
            Some(UserSecret::Cleartext(password)) => {
                Secret::new(said) == Secret::new(password.expose().as_bytes())
            }
            Some(UserSecret::Md5(hash)) => {
                let mine = md5::hash_password(user, said);
                Secret::new(mine.as_bytes()) == Secret::new(hash.expose().as_bytes())
            }
            Some(UserSecret::Scram(text)) => {
                let Ok(verifier) = Verifier::parse(text.expose()) else {
                    return false;
                };
                let said = Secret::new(said);
                shard
                    .offload(move || {
                        let Verifier {
                            salt, iterations, ..
                        } = &verifier;
                        let salted =
                            Zeroizing::new(salted_password(said.expose(), salt, *iterations));
                        verifier.is_of(&salted)
                    })
                    .await
            }
        }
    }

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
