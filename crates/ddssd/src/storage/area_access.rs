//! Who may map which area: told by the progress thread when it opens one, asked at the door by the reception.

use ddss_core::{Audience, Principal};
use ddss_ipc::{AreaAccess, Credentials, SharedMemory};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

/// Who may read an area, and where it is.
type Place = (Audience, PathBuf);

/// The audience of each area, and where it is. Clones share it; neither changes while a daemon runs.
#[derive(Clone, Debug, Default)]
pub(crate) struct AreaAudiences(Arc<Mutex<Vec<Option<Place>>>>);

impl AreaAudiences {
    /// An area is there.
    pub(crate) fn tell(&self, area: usize, audience: Audience, path: PathBuf) {
        let mut audiences = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if audiences.len() <= area {
            audiences.resize(area + 1, None);
        }
        audiences[area] = Some((audience, path));
    }

    /// Where an area is, for one who may look at it.
    fn shown(&self, area: usize, who: Principal) -> Option<PathBuf> {
        let audiences = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (audience, path) = audiences.get(area)?.as_ref()?;
        audience.includes(who).then(|| path.clone())
    }

    /// What the reception asks.
    pub(crate) fn views(&self) -> AreaAccess {
        let audiences = self.clone();
        AreaAccess::new(move |area, who: &Credentials| {
            let path = audiences.shown(area as usize, Principal { uid: who.uid, gid: who.gid })?;
            SharedMemory::open_to_read(&path).ok()
        })
    }
}
