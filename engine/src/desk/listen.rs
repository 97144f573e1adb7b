//! Where operators ask.

use crate::config::{Admin, ListenAddr};
use crate::lifecycle::StartError;
use crate::net;
use admin::thread::Listening;
use std::net::SocketAddr;

/// Where operators ask: bound before anything is started, as all addresses.
pub fn listen(config: &Admin) -> Result<Vec<Listening>, StartError> {
    let mut all: Vec<Listening> = Vec::new();
    let mut listen = |key, address: SocketAddr, metrics, admin| {
        let failed = |error| StartError::Admin(key, error);
        let listener = net::listen(&ListenAddr::Tcp(address)).map_err(failed)?;
        tracing::info!(%address, metrics, admin, "operators may ask");
        all.push(Listening {
            listener: listener.into(),
            metrics,
            admin,
        });
        Ok(())
    };
    match (config.metrics, config.api) {
        (Some(metrics), Some(api)) if metrics == api => listen("admin.listen", api, true, true)?,
        (metrics, api) => {
            if let Some(address) = metrics {
                listen("metrics.listen", address, true, false)?;
            }
            if let Some(address) = api {
                listen("admin.listen", address, false, true)?;
            }
        }
    }
    Ok(all)
}
