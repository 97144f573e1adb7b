//! The server's end.

use std::fmt;

use zeroize::{Zeroize, Zeroizing};

use crate::auth::scram::binding::{self, ChannelBinding};
use crate::auth::scram::keys::{self, Key, equal, hmac, xor};
use crate::auth::scram::message::{
    Attributes, check_nonce, from_base64, from_base64_array, text, to_base64,
};
use crate::auth::scram::{KEY_LEN, SaslError, Verifier};

/// Waits for client-first.
#[derive(Debug)]
pub struct ScramServer<'v> {
    verifier: &'v Verifier,
    server_nonce: &'v str,
    binding: ChannelBinding<'v>,
}

impl<'v> ScramServer<'v> {
    /// Begins an exchange without channel binding. The nonce must be fresh and random.
    pub const fn new(verifier: &'v Verifier, server_nonce: &'v str) -> Self {
        Self {
            verifier,
            server_nonce,
            binding: ChannelBinding::Unavailable,
        }
    }

    /// Says what this connection can be bound to, and by which mechanism the client came.
    #[must_use]
    pub const fn with_binding(mut self, binding: ChannelBinding<'v>) -> Self {
        self.binding = binding;
        self
    }

    /// Takes client-first, gives server-first.
    pub fn client_first(self, message: &[u8]) -> Result<(Vec<u8>, AwaitFinal), SaslError> {
        let message = text(message)?;
        let (gs2_header, bare) = split_gs2(message)?;
        let binding_input = self.check_binding(gs2_header)?;
        let mut attributes = Attributes::new(bare);
        // The name is that of the startup message; PostgreSQL ignores this one, and so do we.
        attributes.expect('n')?;
        let client_nonce = check_nonce(attributes.expect('r')?)?;
        attributes.ignore_extensions()?;

        let nonce = format!("{client_nonce}{}", self.server_nonce);
        let server_first = format!(
            "r={nonce},s={},i={}",
            to_base64(&self.verifier.salt),
            self.verifier.iterations
        );
        let next = AwaitFinal {
            auth_message: format!("{bare},{server_first},"),
            nonce,
            binding_input,
            stored_key: self.verifier.stored_key.clone(),
            server_key: self.verifier.server_key.clone(),
            mock: self.verifier.mock,
        };
        Ok((server_first.into_bytes(), next))
    }

    /// What the client's `c=` attribute must hold: its GS2 header and the binding data.
    fn check_binding(&self, gs2_header: &str) -> Result<Vec<u8>, SaslError> {
        let mut input = gs2_header.as_bytes().to_vec();
        match (self.binding, gs2_header) {
            (_, binding::GS2_NOT_SUPPORTED)
            | (ChannelBinding::Unavailable, binding::GS2_NOT_OFFERED)
                if !self.binding.is_chosen() =>
            {
                Ok(input)
            }
            // RFC 5802 section 6: it could have bound, we did offer, somebody between took it out.
            (ChannelBinding::Unused, binding::GS2_NOT_OFFERED) => Err(SaslError::Downgrade),
            (ChannelBinding::TlsServerEndPoint(hash), binding::GS2_BOUND) => {
                input.extend_from_slice(hash);
                Ok(input)
            }
            // As PostgreSQL: who has chosen the bound mechanism must bind.
            (ChannelBinding::TlsServerEndPoint(_), _) if !gs2_header.starts_with('p') => {
                Err(SaslError::Malformed)
            }
            _ => Err(SaslError::BindingUnsupported),
        }
    }
}

/// Waits for client-final.
pub struct AwaitFinal {
    /// client-first-bare, server-first, and the commas: client-final without proof is missing.
    auth_message: String,
    nonce: String,
    binding_input: Vec<u8>,
    stored_key: Key,
    server_key: Key,
    mock: bool,
}

impl AwaitFinal {
    /// Takes client-final, gives server-final and the proof that the client knows the password.
    pub fn client_final(mut self, message: &[u8]) -> Result<(Vec<u8>, Proof), SaslError> {
        let message = text(message)?;
        let (without_proof, proof) = message.rsplit_once(",p=").ok_or(SaslError::Malformed)?;
        let mut attributes = Attributes::new(without_proof);
        let binding_input = attributes.expect('c')?;
        let nonce = attributes.expect('r')?;
        attributes.ignore_extensions()?;
        if !equal(nonce.as_bytes(), self.nonce.as_bytes()) {
            return Err(SaslError::Nonce);
        }
        let binding_input = from_base64(binding_input).ok_or(SaslError::Malformed)?;
        if !equal(&binding_input, &self.binding_input) {
            // As PostgreSQL: without a channel to bind to, it is just wrong.
            let bound = self.binding_input.starts_with(b"p=");
            return Err(if bound {
                SaslError::ChannelBinding
            } else {
                SaslError::Malformed
            });
        }
        let proof = from_base64_array(proof).ok_or(SaslError::Malformed)?;
        self.auth_message.push_str(without_proof);
        self.verify(&proof)
    }

    fn verify(&self, proof: &[u8; KEY_LEN]) -> Result<(Vec<u8>, Proof), SaslError> {
        let auth_message = self.auth_message.as_bytes();
        let client_signature = Zeroizing::new(hmac(&*self.stored_key, &[auth_message]));
        let proof = Proof {
            client_key: xor(proof, &client_signature),
        };
        let right = equal(&*keys::stored_key(&proof.client_key), &*self.stored_key);
        if !right || self.mock {
            return Err(SaslError::Proof);
        }
        let signature = hmac(&*self.server_key, &[auth_message]);
        Ok((format!("v={}", to_base64(&signature)).into_bytes(), proof))
    }
}

/// Without the keys, which are secrets.
impl fmt::Debug for AwaitFinal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AwaitFinal").finish_non_exhaustive()
    }
}

/// A client has proven that it knows the password.
pub struct Proof {
    /// The client's key: with it one can log in elsewhere as this user, where the same verifier is
    /// known.
    pub client_key: [u8; KEY_LEN],
}

impl Drop for Proof {
    fn drop(&mut self) {
        self.client_key.zeroize();
    }
}

/// Without the key, which is a secret.
impl fmt::Debug for Proof {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Proof").finish_non_exhaustive()
    }
}

/// Splits client-first into its GS2 header, with both commas, and the rest.
fn split_gs2(message: &str) -> Result<(&str, &str), SaslError> {
    let (flag, rest) = message.split_once(',').ok_or(SaslError::Malformed)?;
    let (identity, bare) = rest.split_once(',').ok_or(SaslError::Malformed)?;
    if !matches!(flag, "n" | "y") && !flag.starts_with("p=") {
        return Err(SaslError::Malformed);
    }
    if !identity.is_empty() {
        return Err(SaslError::AuthorizationIdentity);
    }
    let header = message.strip_suffix(bare).ok_or(SaslError::Malformed)?;
    Ok((header, bare))
}

#[cfg(test)]
mod tests {
    use std::sync::LazyLock;

    use super::*;

    const CLIENT_FIRST: &[u8] = b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO";
    const CLIENT_FINAL: &[u8] = b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,\
        p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=";
    const SERVER_NONCE: &str = "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0";

    static VERIFIER: LazyLock<Verifier> = LazyLock::new(|| {
        let salt = from_base64("W22ZaJ0SNY7soEsUEjb6gQ==").unwrap();
        Verifier::from_password(b"pencil", &salt, 4096)
    });

    fn first(message: &[u8]) -> Result<(Vec<u8>, AwaitFinal), SaslError> {
        ScramServer::new(&VERIFIER, SERVER_NONCE).client_first(message)
    }

    fn after_first() -> AwaitFinal {
        first(CLIENT_FIRST).unwrap().1
    }

    fn bound(binding: ChannelBinding<'_>, message: &[u8]) -> Option<SaslError> {
        ScramServer::new(&VERIFIER, SERVER_NONCE)
            .with_binding(binding)
            .client_first(message)
            .err()
    }

    #[test]
    fn speaks_the_example_of_rfc_7677_section_3() {
        let (server_first, next) = first(CLIENT_FIRST).unwrap();
        assert_eq!(
            server_first,
            b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
        );
        let (server_final, proof) = next.client_final(CLIENT_FINAL).unwrap();
        assert_eq!(
            server_final,
            b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="
        );
        assert_eq!(*keys::stored_key(&proof.client_key), *VERIFIER.stored_key);
    }

    #[test]
    fn malformed_first_messages_are_refused() {
        for (message, error) in [
            (&b""[..], SaslError::Malformed),
            (b"n", SaslError::Malformed),
            (b"n,,", SaslError::Malformed),
            (b"n,,n=user", SaslError::Malformed),
            (b"n,,r=abc,n=user", SaslError::Malformed),
            (b"x,,n=,r=abc", SaslError::Malformed),
            (b"n,a=admin,n=,r=abc", SaslError::AuthorizationIdentity),
            (b"n,,m=x,n=,r=abc", SaslError::Extension),
            (b"n,,n=,r=", SaslError::Nonce),
            (b"n,,n=,r=a b", SaslError::Nonce),
            (b"p=tls-unique,,n=,r=abc", SaslError::BindingUnsupported),
            (
                b"p=tls-server-end-point,,n=,r=abc",
                SaslError::BindingUnsupported,
            ),
        ] {
            assert_eq!(
                first(message).err(),
                Some(error),
                "{}",
                message.escape_ascii()
            );
        }
        assert!(first(b"n,,n=,r=abc,x=extension").is_ok());
        assert!(first(b"y,,n=,r=abc").is_ok());
    }

    #[test]
    fn messages_are_at_most_1024_bytes_long() {
        let mut message = CLIENT_FIRST.to_vec();
        message.extend_from_slice(b",x=");
        message.resize(1024, b'x');
        assert!(first(&message).is_ok());
        message.push(b'x');
        assert_eq!(first(&message).err(), Some(SaslError::TooLong));
        let refused = after_first().client_final(&[b'a'; 1025]);
        assert_eq!(refused.err(), Some(SaslError::TooLong));
    }

    #[test]
    fn malformed_last_messages_are_refused() {
        let final_message = std::str::from_utf8(CLIENT_FINAL).unwrap();
        for (from, to, error) in [
            (",p=", ",q=", SaslError::Malformed),
            ("c=biws", "c=!", SaslError::Malformed),
            ("c=biws", "c=eSws", SaslError::Malformed),
            ("c=biws", "c=biwsAAAA", SaslError::Malformed),
            ("c=biws,", "", SaslError::Malformed),
            ("r=rOpr", "r=rOpR", SaslError::Nonce),
            ("$k0", "$k", SaslError::Nonce),
            ("$k0", "$k0x", SaslError::Nonce),
            ("p=dHzb", "p=dHzc", SaslError::Proof),
            ("p=dHzb", "p=", SaslError::Malformed),
            ("dVQ=", "dVQ=AAAA", SaslError::Malformed),
            ("$k0,", "$k0,x=1,", SaslError::Proof),
        ] {
            let message = final_message.replace(from, to);
            assert_ne!(message, final_message);
            let refused = after_first().client_final(message.as_bytes());
            assert_eq!(refused.err(), Some(error), "{message}");
        }
    }

    #[test]
    fn a_mock_user_gets_the_same_messages_and_never_in() {
        let mut mock = Verifier::mock(b"nobody", b"secret");
        let (server_first, next) = ScramServer::new(&mock, SERVER_NONCE)
            .client_first(CLIENT_FIRST)
            .unwrap();
        assert_eq!(server_first.len(), first(CLIENT_FIRST).unwrap().0.len());
        assert_eq!(
            next.client_final(CLIENT_FINAL).err(),
            Some(SaslError::Proof)
        );

        mock = Verifier {
            mock: true,
            ..VERIFIER.clone()
        };
        let (_, next) = ScramServer::new(&mock, SERVER_NONCE)
            .client_first(CLIENT_FIRST)
            .unwrap();
        assert_eq!(
            next.client_final(CLIENT_FINAL).err(),
            Some(SaslError::Proof)
        );
    }

    #[test]
    fn the_binding_flag_must_fit_what_was_offered_and_chosen() {
        let plus = ChannelBinding::TlsServerEndPoint(b"hash");
        let unused = ChannelBinding::Unused;
        let unavailable = ChannelBinding::Unavailable;
        for (binding, flag, expected) in [
            (unavailable, "n", None),
            (unavailable, "y", None),
            (
                unavailable,
                "p=tls-server-end-point",
                Some(SaslError::BindingUnsupported),
            ),
            (unused, "n", None),
            (unused, "y", Some(SaslError::Downgrade)),
            (
                unused,
                "p=tls-server-end-point",
                Some(SaslError::BindingUnsupported),
            ),
            (plus, "n", Some(SaslError::Malformed)),
            (plus, "y", Some(SaslError::Malformed)),
            (plus, "p=tls-server-end-point", None),
            (plus, "p=tls-unique", Some(SaslError::BindingUnsupported)),
        ] {
            let message = format!("{flag},,n=,r=abc");
            assert_eq!(
                bound(binding, message.as_bytes()),
                expected,
                "{binding:?} {flag}"
            );
        }
    }

    #[test]
    fn secrets_are_never_printed() {
        assert_eq!(format!("{:?}", after_first()), "AwaitFinal { .. }");
        let (_, proof) = after_first().client_final(CLIENT_FINAL).unwrap();
        assert_eq!(format!("{proof:?}"), "Proof { .. }");
    }
}
