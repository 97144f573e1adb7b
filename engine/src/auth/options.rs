//! What follows the method in a line of `pg_hba.conf`.

use super::hba::{CertName, ClientCert, Method};
use super::words::Word;

/// The options of a rule.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Options {
    pub(super) map: Option<String>,
    pub(super) client_cert: Option<ClientCert>,
    pub(super) cert_name: CertName,
}

/// `overTls`: the rule is a `hostssl`.
pub(super) fn read(
    fields: &[Vec<Word>],
    method: Method,
    over_tls: bool,
) -> Result<Options, String> {
    let mut options = Options::default();
    for word in fields.iter().flatten() {
        let Some((name, value)) = word.text.split_once('=') else {
            return Err(format!(
                "expected an option as name=value, got {:?}",
                word.text
            ));
        };
        match name {
            "map" if method == Method::Cert => options.map = Some(value.to_owned()),
            "map" => return Err("expected map= only with the method cert".to_owned()),
            "clientcert" | "clientname" if !over_tls => {
                return Err(format!("expected {name}= only in a hostssl line"));
            }
            "clientcert" => {
                options.client_cert = Some(match value {
                    "verify-full" => ClientCert::VerifyFull,
                    "verify-ca" if method == Method::Cert => {
                        return Err("expected clientcert=verify-full or nothing with the method cert, which compares the names".to_owned());
                    }
                    "verify-ca" => ClientCert::VerifyCa,
                    _ => {
                        return Err(format!(
                            "expected clientcert=verify-ca or verify-full, got {value:?}"
                        ));
                    }
                });
            }
            "clientname" => {
                options.cert_name = match value {
                    "CN" => CertName::CommonName,
                    "DN" => CertName::Dn,
                    _ => return Err(format!("expected clientname=CN or DN, got {value:?}")),
                };
            }
            _ => {
                return Err(format!(
                    "expected the option map, clientcert or clientname, got {name:?}"
                ));
            }
        }
    }
    Ok(options)
}
