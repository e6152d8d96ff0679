//! Memory of the read cache: copies are reserved, invalidated and evicted.

use crate::fault_injection::planted;
use crate::remote::handler::Remote;
use crate::state::read_cache::CachedSegment;
use ddss_core::{NodeId, SegmentId, Timestamp, Version};

impl Remote<'_> {
    /// Reserves space for a copy, if need be by evicting the oldest one.
    pub(crate) fn reserve_cached_copy(&mut self, bytes: u64) -> Option<CachedSegment> {
        if self.read_cache.is_full() {
            let oldest = self.read_cache.oldest()?;
            self.evict_cached(oldest);
        }
        let at = self.segments.allocate_blocks(bytes)?;
        let (version, timestamp) = (Version(0), Timestamp(0));
        Some(CachedSegment { at, bytes, version, timestamp, read_start_us: 0, is_filling: true, is_invalidated: false })
    }

    /// Drops a copy whose fill failed, after the fabric stopped writing to it.
    pub(crate) fn drop_cache_fill(&mut self, segment: SegmentId) {
        if self.read_cache.get(segment).is_some_and(|copy| copy.is_filling) {
            self.evict_cached(segment);
        }
    }

    /// Invalidates the cached copy of a segment that a local client changed or that is gone.
    pub(crate) fn invalidate_cached(&mut self, segment: SegmentId) {
        if planted!(self.segments, UnspoiltCopy) {
            return;
        }
        if !self.read_cache.invalidate_fill(segment) {
            self.evict_cached(segment);
        }
    }

    /// Invalidates all cached copies of segments of one home.
    pub(crate) fn invalidate_cached_of(&mut self, home: NodeId) {
        for segment in self.read_cache.of_home(home) {
            self.invalidate_cached(segment);
        }
    }

    pub(crate) fn evict_cached(&mut self, segment: SegmentId) {
        if let Some(copy) = self.read_cache.remove(segment) {
            self.segments.free_blocks(copy.at, copy.bytes);
        }
    }
}
