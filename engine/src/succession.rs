//! Where a process stands among those that serve at the same addresses one after another: what it has from the one
//! before, and what it has ready for the one after.

use crate::config::{Config, ListenAddr};
use crate::control::{Control, Event, Inheritance, Kin, beside, inherit};
use crate::lifecycle::StartError;
use crate::listeners::{self, Inherited};
use crate::net;
use crate::reload::Operator;
use crossbeam_channel::{Receiver, Sender, unbounded};
use std::fs::Permissions;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

/// See the module's text.
pub struct Succession {
    /// The control socket, if there is to be one.
    path: Option<PathBuf>,
    /// Where cancel requests for clients of this process come to it in any case; the listener, until a shard has it.
    own: Option<(PathBuf, Option<OwnedFd>)>,
    /// The process before.
    inheritance: Option<Inheritance>,
    /// The processes before and after.
    pub kin: Arc<Kin>,
    /// What the control socket has happen.
    pub events: Receiver<Event>,
    sender: Sender<Event>,
    control: OnceLock<Arc<Control>>,
}

impl Succession {
    /// Takes over from whoever has the control socket, without its noticing yet.
    pub fn begin(config: &Config) -> Result<Self, StartError> {
        let (sender, events) = unbounded();
        let mut succession = Self {
            path: config.control.clone(),
            own: None,
            inheritance: None,
            kin: Arc::default(),
            events,
            sender,
            control: OnceLock::new(),
        };
        let Some(path) = &succession.path else {
            return Ok(succession);
        };
        let failed = |error| StartError::Control(path.clone(), error);
        let own = beside(path, &std::process::id().to_string());
        let listener = private(&own).map_err(failed)?;
        let inheritance = inherit(path, &own).inspect_err(|_| {
            let _ = std::fs::remove_file(&own);
        });
        let inheritance = inheritance.map_err(failed)?;
        if let Some(inheritance) = &inheritance {
            tracing::info!("taking over from another process");
            // Requests for its clients come to us from the first moment on.
            for socket in &inheritance.before {
                succession.kin.add_before(socket.clone());
            }
        }
        succession.own = Some((own, Some(listener)));
        succession.inheritance = inheritance;
        Ok(succession)
    }

    /// The sockets that listen already.
    pub fn sockets(&mut self) -> Vec<Inherited> {
        let mut sockets = listeners::activated();
        if let Some(inheritance) = &mut self.inheritance {
            sockets.append(&mut inheritance.sockets);
        }
        sockets
    }

    /// Whether another process may take over from this one.
    pub fn is_wanted(&self) -> bool {
        self.path.is_some()
    }

    /// The private listener, for the first shard.
    pub fn own_listener(&mut self, shard: usize) -> Option<OwnedFd> {
        let (_, listener) = self.own.as_mut()?;
        listener.take_if(|_| shard == 0)
    }

    /// All shards serve: the process before may go, and the one after may come. `spare`: the sockets for it.
    pub fn announce(
        &mut self,
        operator: &Arc<Operator>,
        spare: Vec<Inherited>,
    ) -> Result<(), StartError> {
        let (Some(path), Some((own, _))) = (&self.path, &self.own) else {
            return Ok(());
        };
        let control = Arc::new(Control::new(
            Arc::clone(operator),
            spare,
            own.clone(),
            Arc::clone(&self.kin),
            self.sender.clone(),
        ));
        control
            .listen(path)
            .map_err(|error| StartError::Control(path.clone(), error))?;
        // Made once, here.
        let _ = self.control.set(control);
        if let Some(inheritance) = self.inheritance.take() {
            if let Err(error) = inheritance.is_ready() {
                tracing::warn!(%error, "the process before this one did not hear that it may go");
            }
            operator.accept_anew();
        }
        Ok(())
    }

    /// This process stops: nobody takes over its listeners any more.
    pub fn let_go(&self) {
        if let Some(control) = self.control.get()
            && let Ok(mut sockets) = control.sockets.try_lock()
        {
            sockets.clear();
        }
    }

    /// Whether the files of this process are another's now.
    pub fn is_over(&self) -> bool {
        let control = self.control.get();
        control.is_some_and(|control| control.is_taken_over())
    }
}

impl Drop for Succession {
    fn drop(&mut self) {
        if let Some((own, _)) = &self.own {
            let _ = std::fs::remove_file(own);
        }
        if let Some(path) = self.path.as_ref().filter(|_| self.control.get().is_some())
            && !self.is_over()
        {
            let _ = std::fs::remove_file(path);
        }
    }
}

fn private(path: &Path) -> io::Result<OwnedFd> {
    let listener = net::listen(&ListenAddr::Unix(path.to_owned()))?;
    std::fs::set_permissions(path, Permissions::from_mode(0o600))?;
    Ok(listener)
}
