//! Access rights to memory areas: recorded by the progress thread when it opens an area, checked by the acceptor when
//! a client maps one.

use ddss_core::{Audience, Principal};
use ddss_ipc::{AreaAccess, Credentials, SharedMemory};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

/// Audience and path of an area.
type OpenArea = (Audience, PathBuf);

/// Audience and path of each area. Clones share them; neither changes while a daemon runs.
#[derive(Clone, Debug, Default)]
pub(crate) struct AreaAudiences(Arc<Mutex<Vec<Option<OpenArea>>>>);

impl AreaAudiences {
    /// Records an area.
    pub(crate) fn record(&self, area: usize, audience: Audience, path: PathBuf) {
        let mut audiences = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if audiences.len() <= area {
            audiences.resize(area + 1, None);
        }
        audiences[area] = Some((audience, path));
    }

    /// Returns the path of an area if the principal may read it.
    fn path_for(&self, area: usize, principal: Principal) -> Option<PathBuf> {
        let audiences = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (audience, path) = audiences.get(area)?.as_ref()?;
        audience.includes(principal).then(|| path.clone())
    }

    /// Returns the access check for the acceptor.
    pub(crate) fn access_check(&self) -> AreaAccess {
        let audiences = self.clone();
        AreaAccess::new(move |area, credentials: &Credentials| {
            let path = audiences.path_for(area as usize, Principal { uid: credentials.uid, gid: credentials.gid })?;
            SharedMemory::open_to_read(&path).ok()
        })
    }
}
