//! Layout of a rank's memory: one file, in which every area begins at a system page.

use ddss_dsm_core::limits::{LINE_BYTES, WORD_BYTES};
use ddss_dsm_core::{Area, Config, LocalPlace};

/// Alignment of areas, for registration.
const SYSTEM_PAGE: u64 = 4096;

/// A part of the file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Span {
    pub(crate) offset: u64,
    pub(crate) bytes: u64,
}

/// Areas that peers access, in the order in which their windows are told.
pub(crate) const SHARED: [Area; 5] = [Area::HomeFrames, Area::HomeWords, Area::Lines, Area::Log, Area::Landing];

/// Places of all areas in the file of a rank.
#[derive(Clone, Debug)]
pub(crate) struct Layout {
    pub(crate) page_bytes: u32,
    shared: [Span; SHARED.len()],
    cache: Span,
    landing_lines: Span,
    log_images: Span,
    discard: Span,
    staging: Span,
    log_bytes: u64,
    /// Bytes of the file.
    pub(crate) bytes: u64,
}

impl Layout {
    /// Pages that wait in the staging memory for the fabric.
    pub(crate) const STAGING_SLOTS: u16 = 256;

    pub(crate) fn new(config: &Config) -> Self {
        let mut end = 0;
        let mut next = |bytes: u64| {
            let span = Span { offset: end, bytes: bytes.next_multiple_of(SYSTEM_PAGE).max(SYSTEM_PAGE) };
            end += span.bytes;
            span
        };
        let (pages, page_bytes) = (u64::from(config.pages), u64::from(config.page_bytes));
        let fetches = u64::from(config.tuning.fetches);
        let shared = SHARED.map(|area| {
            next(match area {
                Area::HomeFrames => pages * page_bytes,
                Area::HomeWords => pages.div_ceil(config.ranks as u64) * WORD_BYTES,
                Area::Lines => pages * LINE_BYTES as u64,
                Area::Log => config.log.bytes(),
                Area::Landing => fetches * page_bytes,
            })
        });
        let cache = next(pages * page_bytes);
        let landing_lines = next(fetches * LINE_BYTES as u64);
        let log_images = next(config.log.bytes() * config.ranks as u64);
        let discard = next(8);
        let staging = next(u64::from(Self::STAGING_SLOTS) * page_bytes);
        let (page_bytes, log_bytes) = (config.page_bytes, config.log.bytes());
        Self { page_bytes, shared, cache, landing_lines, log_images, discard, staging, log_bytes, bytes: end }
    }

    pub(crate) fn shared(&self, area: Area) -> Span {
        self.shared[area as usize]
    }

    /// Returns the offset of a place in the file.
    pub(crate) fn local(&self, place: LocalPlace) -> u64 {
        match place {
            LocalPlace::Cache(page) => self.cache.offset + page.offset(self.page_bytes),
            LocalPlace::Line(slot) => self.landing_lines.offset + u64::from(slot) * LINE_BYTES as u64,
            LocalPlace::Log { rank, offset } => self.log_images.offset + rank.index() as u64 * self.log_bytes + offset,
            LocalPlace::Discard => self.discard.offset,
        }
    }

    pub(crate) fn landing(&self, slot: u16) -> u64 {
        self.shared(Area::Landing).offset + u64::from(slot) * u64::from(self.page_bytes)
    }

    pub(crate) fn staging(&self, slot: u16) -> u64 {
        self.staging.offset + u64::from(slot) * u64::from(self.page_bytes)
    }
}
