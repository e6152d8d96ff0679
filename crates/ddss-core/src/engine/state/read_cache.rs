//! Cached copies of remote Temporal segments.

use crate::{SegmentId, Timestamp, Version};
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
pub(crate) struct ReadCache(pub(crate) BTreeMap<SegmentId, CachedSegment>);

impl ReadCache {
    #[inline]
    pub(crate) fn has_entries(&self) -> bool {
        !self.0.is_empty()
    }
}
