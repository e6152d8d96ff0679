//! Who may map which area: told by the progress thread when it opens one, asked at the door by the reception.

use crate::memory::NodeMemory;
use ddss_core::{Audience, Identity};
use ddss_ipc::{Credentials, SharedMemory, Views};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

/// The audience of each area. Clones share it; an area's audience never changes while a daemon runs.
#[derive(Clone, Debug, Default)]
pub(crate) struct Audiences(Arc<Mutex<Vec<Option<Audience>>>>);

impl Audiences {
    /// An area is there.
    pub(crate) fn tell(&self, area: usize, audience: Audience) {
        let mut audiences = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if audiences.len() <= area {
            audiences.resize(area + 1, None);
        }
        audiences[area] = Some(audience);
    }

    fn includes(&self, area: usize, who: Identity) -> bool {
        let audiences = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        audiences.get(area).copied().flatten().is_some_and(|audience| audience.includes(who))
    }

    /// What the reception asks.
    pub(crate) fn views(&self, folder: &Path) -> Views {
        let (audiences, folder) = (self.clone(), folder.to_owned());
        Views::new(move |area, who: &Credentials| {
            let area = area as usize;
            if !audiences.includes(area, Identity { uid: who.uid, gid: who.gid }) {
                return None;
            }
            SharedMemory::open_to_read(&NodeMemory::area_path(&folder, area)).ok()
        })
    }
}
