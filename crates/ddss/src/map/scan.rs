//! Windows of a pass over all buckets of a map.

use crate::map::bucket::Bucket;
use ddss_core::BucketLink;
use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

/// Buckets of one window.
const WINDOW_BUCKETS: u64 = 128;

/// Copies of a window's buckets, and of those around it.
///
/// Places are numbers of buckets plus the number of all buckets, so that the place before bucket 0 is that of the last one.
#[derive(Debug)]
pub(crate) struct Scan {
    pub(crate) buckets: u64,
    pub(crate) link_offsets: Arc<[u64]>,
    /// Maximum distance of an entry from its bucket.
    reach: u64,
    window: Range<u64>,
    end: u64,
    /// From `reach` places before the window on.
    images: VecDeque<Bucket>,
}

impl Scan {
    /// Begins before some of the buckets of a map.
    pub(crate) fn new(buckets: u64, link_offsets: Arc<[u64]>, range: Range<u64>) -> Self {
        let end = buckets + range.end.min(buckets);
        let begin = buckets + range.start.min(buckets);
        let reach = link_offsets.iter().copied().max().unwrap_or(0);
        Self { buckets, link_offsets, reach, window: begin..begin, end, images: VecDeque::new() }
    }

    /// Returns the next window, and the buckets that have to be read for it.
    pub(crate) fn next(&self) -> (Range<u64>, Vec<u64>) {
        let window = self.window.end..(self.window.end + WINDOW_BUCKETS).min(self.end);
        let known = self.window.start - self.reach + self.images.len() as u64;
        let missing = known..if window.is_empty() { known } else { window.end + self.reach };
        (window, missing.map(|place| place % self.buckets).collect())
    }

    pub(crate) fn accept(&mut self, window: Range<u64>, images: Vec<Bucket>) {
        self.images.drain(..((window.start - self.window.start) as usize).min(self.images.len()));
        self.images.extend(images);
        self.window = window;
    }

    /// Returns the place that a link of the bucket at a place leads to.
    pub(crate) fn target(&self, place: u64, link: &BucketLink) -> u64 {
        place + link.step.checked_sub(1).and_then(|at| self.link_offsets.get(at)).copied().unwrap_or(0)
    }

    pub(crate) fn image(&self, place: u64) -> &Bucket {
        &self.images[(place + self.reach - self.window.start) as usize]
    }

    /// Returns the places of the window.
    pub(crate) fn places(&self) -> Range<u64> {
        self.window.clone()
    }

    pub(crate) fn bucket(&self, place: u64) -> u64 {
        place % self.buckets
    }
}
