//! Pool bytes on their way to other nodes, until the fabric has taken them.

use crate::ids::ServedGetId;
use ddss_core::limits::OPERATIONS_MAX;

/// All bytes on their way out: pool offset, length, and number of users.
#[derive(Debug, Default)]
pub(crate) struct GetBuffers {
    places: Vec<Option<(u64, u64, u8)>>,
    free: Vec<u32>,
}

impl GetBuffers {
    pub(crate) fn insert(&mut self, at: u64, bytes: u64, uses: u8) -> Option<ServedGetId> {
        assert!(uses > 0, "an entry has users");
        if let Some(place) = self.free.pop() {
            assert!(self.places[place as usize].is_none(), "a free entry has no users");
            self.places[place as usize] = Some((at, bytes, uses));
            return Some(ServedGetId::new(place));
        }
        if self.places.len() == OPERATIONS_MAX {
            return None;
        }
        self.places.push(Some((at, bytes, uses)));
        Some(ServedGetId::new(self.places.len() as u32 - 1))
    }

    /// Removes one user; the last one frees the entry.
    pub(crate) fn remove(&mut self, served_get: ServedGetId) -> Option<(u64, u64)> {
        let place = self.places.get_mut(served_get.index())?;
        let (at, bytes, uses) = place.as_mut()?;
        assert!(*uses > 0, "an entry in use has users");
        *uses -= 1;
        let taken = (*at, *bytes);
        if *uses > 0 {
            return None;
        }
        *place = None;
        self.free.push(served_get.index() as u32);
        Some(taken)
    }
}
