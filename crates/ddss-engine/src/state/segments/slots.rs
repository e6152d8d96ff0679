//! Slots of the segments of one shard: a segment keeps its slot, and a free slot is used again as late as possible.

use crate::state::segments::segment::Segment;
use crate::state::segments::segment_index::SegmentIndex;
use ddss_core::SegmentId;
use ddss_core::limits::SEGMENTS_PER_NODE_MAX;
use std::collections::VecDeque;

#[derive(Debug, Default)]
struct Slot {
    generation: u32,
    segment: Option<Box<Segment>>,
}

/// All slots of a shard, with the index of segments that have an id of another slot.
#[derive(Debug)]
pub(crate) struct SlotTable {
    first_generation: u32,
    slots: Vec<Slot>,
    /// Free slots. The one that is free for longest is used first, so that an id returns as late as possible.
    free: VecDeque<u32>,
    index: SegmentIndex,
}

impl SlotTable {
    /// Creates an empty table. All ids of the shard share the bits of `own`.
    pub(crate) fn new(own: SegmentId, first_generation: u32) -> Self {
        Self { first_generation, slots: Vec::new(), free: VecDeque::new(), index: SegmentIndex::new(own) }
    }

    /// Returns the segment in the slot that an id names.
    #[inline(always)]
    pub(crate) fn get(&self, id: SegmentId) -> Option<&Segment> {
        self.slots.get(self.index.slot_of(id)? as usize)?.segment.as_deref()
    }

    /// Returns that segment, to change it.
    #[inline(always)]
    pub(crate) fn get_mut(&mut self, id: SegmentId) -> Option<&mut Segment> {
        self.slots.get_mut(self.index.slot_of(id)? as usize)?.segment.as_deref_mut()
    }

    /// Returns all segments.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Segment> {
        self.slots.iter().filter_map(|slot| slot.segment.as_deref())
    }

    /// Returns all segments, to change them.
    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Segment> {
        self.slots.iter_mut().filter_map(|slot| slot.segment.as_deref_mut())
    }

    /// Returns true if a segment has an id of another slot.
    pub(crate) fn is_adopted(&self, id: SegmentId) -> bool {
        self.index.contains(id)
    }

    /// Returns true if this shard of this node gave the id.
    pub(crate) fn is_own(&self, id: SegmentId) -> bool {
        self.index.is_own(id)
    }

    /// Returns the index of the slot that an id names.
    pub(crate) fn index_of(&self, id: SegmentId) -> Option<u32> {
        self.index.slot_of(id)
    }

    /// Returns slot and generation under which a segment is recorded.
    pub(crate) fn own_id_of(&self, id: SegmentId) -> Option<SegmentId> {
        let index = self.index.slot_of(id)?;
        Some(self.index.own_id(index, self.slots.get(index as usize)?.generation))
    }

    /// Returns the id of the segment in a slot, or the last one of a free slot.
    pub(crate) fn id_at(&self, index: u32) -> SegmentId {
        let slot = &self.slots[index as usize];
        slot.segment.as_ref().map_or(self.index.own_id(index, slot.generation), |segment| segment.id)
    }

    /// Returns the segment that is recorded under that slot and generation.
    pub(crate) fn at(&self, slot: SegmentId) -> Option<&Segment> {
        let place = self.slots.get(slot.index() as usize).filter(|place| place.generation == slot.generation())?;
        place.segment.as_deref()
    }

    /// Returns that segment, to change it.
    pub(crate) fn at_mut(&mut self, slot: SegmentId) -> Option<&mut Segment> {
        let place = self.slots.get_mut(slot.index() as usize).filter(|place| place.generation == slot.generation())?;
        place.segment.as_deref_mut()
    }

    /// Returns true if no slot is left.
    pub(crate) fn is_full(&self) -> bool {
        self.free.is_empty() && self.slots.len() == SEGMENTS_PER_NODE_MAX
    }

    /// Takes a free slot for a new segment, or for a replica of `copy_of`; returns it with its new generation.
    pub(crate) fn take_free(&mut self, copy_of: Option<SegmentId>) -> SegmentId {
        let index = self.free.pop_front().unwrap_or_else(|| {
            self.slots.push(Slot { generation: self.first_generation, segment: None });
            (self.slots.len() - 1) as u32
        });
        let slot = &mut self.slots[index as usize];
        slot.generation = SegmentId::next_generation(slot.generation);
        if copy_of == Some(self.index.own_id(index, slot.generation)) {
            // The slot's own id equals that of the replica: the record has to show that it is one.
            slot.generation = SegmentId::next_generation(slot.generation);
        }
        self.index.own_id(index, slot.generation)
    }

    /// Puts a segment into its slot.
    pub(crate) fn insert(&mut self, slot: SegmentId, segment: Segment) {
        let (id, index) = (segment.id, slot.index());
        self.slots[index as usize] = Slot { generation: slot.generation(), segment: Some(Box::new(segment)) };
        if id != slot {
            self.index.insert(id, index);
        }
    }

    /// Takes a segment out; its slot becomes free with [`give_back`](Self::give_back).
    pub(crate) fn remove(&mut self, id: SegmentId) -> Option<(u32, Box<Segment>)> {
        let index = self.index.slot_of(id)?;
        let segment = self.slots.get_mut(index as usize)?.segment.take()?;
        self.index.remove(segment.id);
        Some((index, segment))
    }

    /// Frees a slot whose memory no reader uses any more.
    pub(crate) fn give_back(&mut self, index: u32) {
        self.free.push_back(index);
    }

    /// Takes the slot of a segment of the daemon's previous run.
    pub(crate) fn reserve(&mut self, slot: SegmentId) {
        self.make_room_for(slot);
        // Free slots are in order of their index until the first segment is made.
        if let Ok(place) = self.free.binary_search(&slot.index()) {
            self.free.remove(place);
        }
    }

    /// Returns true if a slot has a segment.
    pub(crate) fn is_in_use(&self, index: u32) -> bool {
        self.slots.get(index as usize).is_some_and(|slot| slot.segment.is_some())
    }

    /// Restores the last id of a free slot.
    pub(crate) fn restore_free(&mut self, last: SegmentId) {
        self.make_room_for(last);
        let slot = &mut self.slots[last.index() as usize];
        slot.generation = slot.generation.max(last.generation());
    }

    fn make_room_for(&mut self, id: SegmentId) {
        while self.slots.len() <= id.index() as usize {
            self.free.push_back(self.slots.len() as u32);
            self.slots.push(Slot { generation: self.first_generation, segment: None });
        }
    }
}
