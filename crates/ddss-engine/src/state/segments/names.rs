//! Segments by name, and the watch of their names.

use crate::state::replication::Replicas;
use crate::state::segments::names_watch::Watched;
use crate::state::segments::{Segment, Segments};
use ddss_core::{Name, OpenedSegment, SegmentId, SegmentInfo, Version};
use std::ops::Bound;

impl Segments {
    /// Returns the segment of that name; a replica has none.
    pub(crate) fn by_name(&self, name: &Name) -> Option<SegmentId> {
        self.names
            .get(name.as_str())
            .map(|&index| self.id_of(index))
            .filter(|&id| self.get(id).is_ok_and(|segment| !segment.is_replica()))
    }

    /// Returns all names, also those in creation, each with its segment.
    pub(crate) fn names(&self) -> impl Iterator<Item = (Name, SegmentId)> {
        self.names.iter().filter_map(|(name, &index)| Some((Name::new(name).ok()?, self.id_of(index))))
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

impl Segments {
    /// Returns true if the id stands for the names here.
    pub(crate) fn is_names(&self, id: SegmentId) -> bool {
        id == self.names_watch.id
    }

    /// Returns the id that stands for the names here, and its version.
    pub(crate) fn names_version(&self) -> (SegmentId, Version) {
        (self.names_watch.id, self.names_watch.version)
    }

    /// Returns true if names may have changed since that version.
    pub(crate) fn have_names_changed(&self, since: Version) -> bool {
        self.names_watch.has_changed(since)
    }

    /// Advances the version of the names.
    pub(crate) fn advance_names(&mut self) {
        self.names_watch.version.0 += 1;
    }

    /// Returns what may be watched under that id: a live segment, or the names here.
    pub(crate) fn watched(&mut self, id: SegmentId) -> Option<Watched<'_>> {
        if self.is_names(id) {
            return Some(self.names_watch.watched());
        }
        let segment = self.get_mut(id).ok()?;
        let is_replicated = segment.replication.is_some();
        let (is_marked_busy, due_us) = (&mut segment.is_marked_busy, &mut segment.due_us);
        Some(Watched { lock_queue: &mut segment.lock_queue, is_marked_busy, due_us, is_replicated })
    }
}
