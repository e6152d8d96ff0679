//! Where segments are: those of this plane in the slot that their id names, all others wherever there was one.

use crate::SegmentId;
use std::collections::HashMap;

/// The slots of segments that are here under an id of another slot: of another node's, or of this node's before it lost
/// its memory.
#[derive(Debug)]
pub(crate) struct Adopted {
    /// The first id that there could be: the part that all ids of this plane share.
    own: SegmentId,
    slots: HashMap<SegmentId, u16>,
    /// How many of those have an id of this plane.
    returned: usize,
}

impl Adopted {
    pub(crate) fn new(own: SegmentId) -> Self {
        Self { own, slots: HashMap::new(), returned: 0 }
    }

    /// Whether this plane of this node gave the id.
    pub(crate) fn is_own(&self, id: SegmentId) -> bool {
        id.is_of(self.own)
    }

    /// The slot of a segment, if it is here.
    pub(crate) fn slot_of(&self, id: SegmentId) -> Option<u16> {
        if self.is_own(id) && self.returned == 0 {
            return Some(id.index());
        }
        let adopted = if self.slots.is_empty() { None } else { self.slots.get(&id).copied() };
        adopted.or_else(|| self.is_own(id).then(|| id.index()))
    }

    pub(crate) fn contains(&self, id: SegmentId) -> bool {
        self.slots.contains_key(&id)
    }

    pub(crate) fn insert(&mut self, id: SegmentId, slot: u16) {
        if self.slots.insert(id, slot).is_none() {
            self.returned += usize::from(self.is_own(id));
        }
    }

    pub(crate) fn remove(&mut self, id: SegmentId) {
        if self.slots.remove(&id).is_some() {
            self.returned -= usize::from(self.is_own(id));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::NodeId;

    #[test]
    fn an_id_of_this_plane_is_found_in_its_own_slot_or_where_it_came_back() {
        // If this broke, a home that lost its memory would look for its copy in a slot where another segment is.
        let id = |node, index, generation| SegmentId::new(NodeId(node), index, generation);
        let mut adopted = Adopted::new(id(3, 0, 0));
        assert_eq!((adopted.slot_of(id(3, 5, 9)), adopted.slot_of(id(2, 5, 9))), (Some(5), None));
        adopted.insert(id(3, 5, 9), 8);
        adopted.insert(id(2, 5, 9), 7);
        assert_eq!((adopted.slot_of(id(3, 5, 9)), adopted.slot_of(id(2, 5, 9))), (Some(8), Some(7)));
        assert_eq!(adopted.slot_of(id(3, 5, 10)), Some(5), "of another life");
        adopted.remove(id(3, 5, 10));
        adopted.remove(id(3, 5, 9));
        assert_eq!((adopted.slot_of(id(3, 5, 9)), adopted.slot_of(id(2, 5, 9))), (Some(5), Some(7)));
    }
}
