//! Segments by name.

use crate::engine::state::replication::Replicas;
use crate::engine::state::segments::{Segment, Segments};
use crate::model::segment::Name;
use crate::peer::message::SegmentInfo;
use crate::{OpenedSegment, SegmentId};
use std::ops::Bound;

impl Segments {
    /// Returns the segment of that name; a replica has none.
    pub(crate) fn by_name(&self, name: &Name) -> Option<SegmentId> {
        self.names
            .get(name.as_str())
            .map(|&index| self.id_of(index))
            .filter(|&id| self.get(id).is_ok_and(|segment| !segment.is_replica()))
    }

    /// Returns true if the name is taken, also by a segment in creation.
    pub(crate) fn is_taken(&self, name: &Name) -> bool {
        self.names.contains_key(name.as_str())
    }

    /// Returns all names, also those in creation, each with whether another node was the first home.
    pub(crate) fn names(&self) -> Vec<(Name, bool)> {
        let names = self.names.iter().filter_map(|(name, &index)| Some((Name::new(name).ok()?, index)));
        names.map(|(name, index)| (name, self.is_adopted(self.id_of(index)))).collect()
    }

    /// Returns the segment or replica of that name.
    pub(crate) fn named(&self, name: &Name) -> Option<SegmentId> {
        self.names.get(name.as_str()).map(|&index| self.id_of(index))
    }

    /// Returns the segments whose names come after that one, in order.
    pub(crate) fn after(&self, name: &str) -> impl Iterator<Item = (SegmentId, &Segment)> + '_ {
        let from = (Bound::Excluded(name), Bound::Unbounded);
        let indices = self.names.range::<str, _>(from).map(|(_, &index)| index);
        indices.filter_map(|index| {
            let id = self.id_of(index);
            Some((id, self.get(id).ok().filter(|segment| !segment.is_replica())?))
        })
    }

    /// Returns the segment of exactly that name.
    pub(crate) fn exact(&self, name: &str) -> Option<(SegmentId, &Segment)> {
        let &index = self.names.get(name)?;
        let id = self.id_of(index);
        Some((id, self.get(id).ok().filter(|segment| !segment.is_replica())?))
    }

    /// Returns true if a segment here occupies the name; a spare replica does not.
    pub(crate) fn has_name(&self, name: &Name, replicas: &Replicas) -> bool {
        self.named(name).is_some_and(|id| !self.is_spare(id, replicas))
    }

    /// Returns true if this node has a replica of the segment that may not take over.
    pub(crate) fn is_spare(&self, id: SegmentId, replicas: &Replicas) -> bool {
        let may_take_over =
            replicas.assignment(id).is_some_and(|assignment| assignment.paired && assignment.replica == self.node);
        self.get(id).is_ok_and(Segment::is_replica) && !may_take_over
    }

    /// Returns what a client of this node learns when it opens a segment.
    pub(crate) fn opened(&self, info: &SegmentInfo) -> OpenedSegment {
        let at = self.get(info.segment).ok();
        // A replicated segment is read through its home's engine, which knows whether it is still the home.
        let at = at.filter(|segment| segment.replication.is_none()).map(|segment| segment.at);
        OpenedSegment { segment: info.segment, bytes: info.bytes, at, model: info.model, row_bytes: info.row_bytes }
    }
}
