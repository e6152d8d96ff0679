//! Cached copies of remote Temporal segments.

use ddss_core::limits::CACHED_SEGMENTS_MAX;
use ddss_core::{NodeId, SegmentId, Timestamp, Version};
use std::collections::BTreeMap;

/// One cached copy.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CachedSegment {
    /// Pool offset of its bytes.
    pub(crate) at: u64,
    pub(crate) bytes: u64,
    pub(crate) version: Version,
    pub(crate) timestamp: Timestamp,
    /// Start of its reads.
    pub(crate) read_start_us: u64,
    /// Its bytes are being read.
    pub(crate) is_filling: bool,
    /// Invalidated while its bytes are being read: only the request that started the read gets them.
    pub(crate) is_invalidated: bool,
}

/// All cached copies.
#[derive(Debug, Default)]
pub(crate) struct ReadCache(BTreeMap<SegmentId, CachedSegment>);

impl ReadCache {
    #[inline]
    pub(crate) fn has_entries(&self) -> bool {
        !self.0.is_empty()
    }

    /// Returns true if a new copy needs the room of another one.
    pub(crate) fn is_full(&self) -> bool {
        self.0.len() >= CACHED_SEGMENTS_MAX
    }

    pub(crate) fn get(&self, segment: SegmentId) -> Option<&CachedSegment> {
        self.0.get(&segment)
    }

    /// Adds a copy whose bytes are being read, or replaces the copy that lies in the same place.
    pub(crate) fn begin_fill(&mut self, segment: SegmentId, copy: CachedSegment) {
        assert!(copy.is_filling && !copy.is_invalidated, "a copy is filled before it is used");
        let old = self.0.insert(segment, copy);
        assert!(old.is_none_or(|old| !old.is_filling && old.at == copy.at), "one read at a time fills a copy");
    }

    /// Ends the fill of a copy; returns it.
    pub(crate) fn end_fill(&mut self, segment: SegmentId, stamp: (Version, Timestamp)) -> Option<CachedSegment> {
        let copy = self.0.get_mut(&segment)?;
        assert!(copy.is_filling, "a copy is filled once");
        (copy.version, copy.timestamp) = stamp;
        copy.is_filling = false;
        Some(*copy)
    }

    /// Invalidates a copy that is being filled; `false` if there is none.
    pub(crate) fn invalidate_fill(&mut self, segment: SegmentId) -> bool {
        let filling = self.0.get_mut(&segment).filter(|copy| copy.is_filling);
        filling.is_some_and(|copy| {
            copy.is_invalidated = true;
            copy.is_invalidated
        })
    }

    pub(crate) fn remove(&mut self, segment: SegmentId) -> Option<CachedSegment> {
        self.0.remove(&segment)
    }

    /// Returns the copy with the oldest bytes among those that are not being filled.
    pub(crate) fn oldest(&self) -> Option<SegmentId> {
        let idle = self.0.iter().filter(|(_, copy)| !copy.is_filling);
        idle.min_by_key(|(id, copy)| (copy.read_start_us, **id)).map(|(&id, _)| id)
    }

    /// Returns the segments of one home.
    pub(crate) fn of_home(&self, home: NodeId) -> Vec<SegmentId> {
        self.0.keys().copied().filter(|id| id.home() == home).collect()
    }
}
