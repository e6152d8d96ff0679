//! Index from segment ids to slots: ids of this shard name their own slot, all other ids are looked up.

use ddss_core::SegmentId;
use foldhash::HashMap;

/// Slots of segments with an id of another slot: of another node's, or of this node's before it lost its memory.
#[derive(Debug)]
pub(crate) struct SegmentIndex {
    /// Bits that all ids of this shard share.
    own: SegmentId,
    slots: HashMap<SegmentId, u32>,
    /// Number of entries with an id of this shard.
    returned: usize,
}

impl SegmentIndex {
    pub(crate) fn new(own: SegmentId) -> Self {
        Self { own, slots: HashMap::default(), returned: 0 }
    }

    /// Returns true if this shard of this node gave the id.
    #[inline(always)]
    pub(crate) fn is_own(&self, id: SegmentId) -> bool {
        id.is_of(self.own)
    }

    /// Returns an id of this shard.
    pub(crate) fn own_id(&self, index: u32, generation: u32) -> SegmentId {
        SegmentId::new(self.own.home(), index, generation).on_shard(self.own.shard())
    }

    /// Returns the slot of a segment, if it is here.
    #[inline(always)]
    pub(crate) fn slot_of(&self, id: SegmentId) -> Option<u32> {
        if self.is_own(id) && self.returned == 0 { Some(id.index()) } else { self.adopted_slot_of(id) }
    }

    /// Returns the slot of a segment that may have an id of another slot.
    #[inline(never)]
    fn adopted_slot_of(&self, id: SegmentId) -> Option<u32> {
        let adopted = if self.slots.is_empty() { None } else { self.slots.get(&id).copied() };
        adopted.or_else(|| self.is_own(id).then(|| id.index()))
    }

    pub(crate) fn contains(&self, id: SegmentId) -> bool {
        self.slots.contains_key(&id)
    }

    pub(crate) fn insert(&mut self, id: SegmentId, slot: u32) {
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
    use ddss_core::NodeId;

    #[test]
    fn own_id_maps_to_own_slot_unless_adopted() {
        // If this broke, a home that lost its memory would look for its replica in the slot of another segment.
        let id = |node, slot, generation| SegmentId::new(NodeId(node), slot, generation);
        let mut index = SegmentIndex::new(id(3, 0, 0));
        assert_eq!((index.slot_of(id(3, 5, 9)), index.slot_of(id(2, 5, 9))), (Some(5), None));
        index.insert(id(3, 5, 9), 8);
        index.insert(id(2, 5, 9), 7);
        assert_eq!((index.slot_of(id(3, 5, 9)), index.slot_of(id(2, 5, 9))), (Some(8), Some(7)));
        assert_eq!(index.slot_of(id(3, 5, 10)), Some(5), "of another life");
        index.remove(id(3, 5, 10));
        index.remove(id(3, 5, 9));
        assert_eq!((index.slot_of(id(3, 5, 9)), index.slot_of(id(2, 5, 9))), (Some(5), Some(7)));
    }
}
