//! Reading certificates and keys, with words for an operator about what is
//! wrong with them.

use rustls::RootCertStore;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use std::path::Path;

/// Which of the files a problem is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Which {
    /// Our certificate, and what leads from it to a CA.
    Cert,
    /// Its key.
    Key,
    /// The CAs by which we judge the other end.
    Ca,
}

/// What is wrong with a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// The file.
    pub which: Which,
    /// In words.
    pub text: String,
}

impl Problem {
    pub(super) fn new(which: Which, text: impl Into<String>) -> Self {
        Self {
            which,
            text: text.into(),
        }
    }
}

pub(super) fn certificates(
    path: &Path,
    which: Which,
) -> Result<Vec<CertificateDer<'static>>, Problem> {
    let text = read(path, which)?;
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&text).collect();
    match found {
        Ok(found) if !found.is_empty() => Ok(found),
        Ok(_) => Err(Problem::new(
            which,
            format!(
                "expected a PEM certificate in {}, found none",
                path.display()
            ),
        )),
        Err(error) => Err(Problem::new(
            which,
            format!("expected PEM certificates in {}: {error}", path.display()),
        )),
    }
}

pub(super) fn key(path: &Path) -> Result<PrivateKeyDer<'static>, Problem> {
    let text = zeroize::Zeroizing::new(read(path, Which::Key)?);
    PrivateKeyDer::from_pem_slice(&text).map_err(|error| {
        let text = format!(
            "expected a PEM key without a passphrase in {}: {error}",
            path.display()
        );
        Problem::new(Which::Key, text)
    })
}

pub(super) fn roots(path: &Path) -> Result<(RootCertStore, Vec<CertificateDer<'static>>), Problem> {
    let certificates = certificates(path, Which::Ca)?;
    let mut roots = RootCertStore::empty();
    for certificate in &certificates {
        roots.add(certificate.clone()).map_err(|error| {
            let text = format!("expected CA certificates in {}: {error}", path.display());
            Problem::new(Which::Ca, text)
        })?;
    }
    Ok((roots, certificates))
}

fn read(path: &Path, which: Which) -> Result<Vec<u8>, Problem> {
    std::fs::read(path)
        .map_err(|error| Problem::new(which, format!("cannot read {}: {error}", path.display())))
}
