//! Memory of a rank, as its engine uses it.

use super::areas::Layout;
use super::home_frames::HomeFrames;
use crate::sys::{Frames, MemoryFile, ViewAddress};
use ddss_dsm_core::limits::{LINE_BYTES, WORD_BYTES};
use ddss_dsm_core::{Access, Area, Config, LocalPlace, Memory, PageId, Rank};
use std::io;
use std::sync::Arc;

/// Memory of a rank. The application sees no more of it than the cache frames of open pages.
#[derive(Debug)]
pub(crate) struct RankMemory {
    pub(super) file: MemoryFile,
    pub(super) layout: Layout,
    pub(super) frames: Arc<Frames>,
    ranks: u32,
    pages: u32,
}

impl RankMemory {
    /// Makes the memory, with a mapping for use by page faults if the application wants one.
    pub(crate) fn create(config: &Config, view: Option<ViewAddress>) -> io::Result<Self> {
        let layout = Layout::new(config);
        let file = MemoryFile::create("ddss-dsm", layout.bytes)?;
        let first = layout.local(LocalPlace::Cache(PageId(0)));
        let mut frames = Frames::new(&file, first, config.page_bytes, config.pages);
        if let Some(address) = view {
            frames.map_view(&file, address)?;
        }
        let frames = Arc::new(frames);
        Ok(Self { file, layout, frames, ranks: config.ranks as u32, pages: config.pages })
    }

    /// Returns the cache frames, for views of the application.
    pub(crate) fn frames(&self) -> Arc<Frames> {
        self.frames.clone()
    }

    /// Returns the home frames, for checkpoints.
    pub(crate) fn home_frames(&self) -> io::Result<HomeFrames> {
        let file = self.file.descriptor().try_clone_to_owned()?;
        let span = self.layout.shared(Area::HomeFrames);
        Ok(HomeFrames { file, offset: span.offset, page_bytes: self.layout.page_bytes, pages: self.pages })
    }

    fn cache(&self, page: PageId) -> u64 {
        self.layout.local(LocalPlace::Cache(page))
    }

    pub(super) fn home(&self, page: PageId) -> u64 {
        self.layout.shared(Area::HomeFrames).offset + page.offset(self.layout.page_bytes)
    }

    fn line(&self, page: PageId) -> u64 {
        self.layout.shared(Area::Lines).offset + u64::from(page.0) * LINE_BYTES as u64
    }

    fn page_bytes(&self) -> usize {
        self.layout.page_bytes as usize
    }
}

impl Memory for RankMemory {
    fn set_access(&mut self, page: PageId, access: Access) {
        self.frames.set_access(page.0, access);
    }

    fn read_cache(&mut self, page: PageId, into: &mut [u8]) {
        self.file.read(self.cache(page), into);
    }

    fn fill_from_home(&mut self, page: PageId) {
        self.file.copy(self.home(page), self.cache(page), self.page_bytes());
    }

    fn fill_from_landing(&mut self, page: PageId, slot: u16) {
        self.file.copy(self.layout.landing(slot), self.cache(page), self.page_bytes());
    }

    fn write_home(&mut self, page: PageId, offset: u32, bytes: &[u8]) {
        self.file.write(self.home(page) + u64::from(offset), bytes);
    }

    fn claim_home(&mut self, page: PageId, word: u64) -> u64 {
        let words = self.layout.shared(Area::HomeWords).offset;
        self.file.claim(words + u64::from(page.0 / self.ranks) * WORD_BYTES, word)
    }

    fn read_stamps(&mut self, page: PageId) -> [u8; LINE_BYTES] {
        let mut line = [0; LINE_BYTES];
        self.file.read(self.line(page), &mut line);
        line
    }

    fn write_stamp(&mut self, page: PageId, rank: Rank, interval: u32) {
        self.file.write(self.line(page) + 4 * rank.index() as u64, &interval.to_le_bytes());
    }

    fn read_line(&mut self, slot: u16) -> [u8; LINE_BYTES] {
        let mut line = [0; LINE_BYTES];
        self.file.read(self.layout.local(LocalPlace::Line(slot)), &mut line);
        line
    }

    fn write_log(&mut self, offset: u64, bytes: &[u8]) {
        self.file.write(self.layout.shared(Area::Log).offset + offset, bytes);
    }

    fn read_log(&mut self, rank: Rank, offset: u64, into: &mut [u8]) {
        self.file.read(self.layout.local(LocalPlace::Log { rank, offset }), into);
    }
}
