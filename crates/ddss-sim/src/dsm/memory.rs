//! Memory of one simulated rank: what peers access, what lands here, and the view of its threads.

use ddss_dsm_core::limits::{LINE_BYTES, WORD_BYTES};
use ddss_dsm_core::{Access, Area, Config, LocalPlace, Memory, PageId, Rank};

/// A write of a thread that can happen while the engine copies the page.
#[derive(Clone, Debug)]
pub(crate) struct RacingWrite {
    pub(crate) thread: usize,
    pub(crate) page: PageId,
    pub(crate) offset: usize,
    pub(crate) bytes: Vec<u8>,
}

/// Memory of a rank.
#[derive(Clone, Debug)]
pub(crate) struct SimMemory {
    page_bytes: usize,
    ranks: usize,
    /// Memory that peers access, by area.
    home: Vec<u8>,
    words: Vec<u8>,
    lines: Vec<u8>,
    log: Vec<u8>,
    landing: Vec<u8>,
    /// Memory that only this rank accesses.
    cache: Vec<u8>,
    access: Vec<Access>,
    landing_lines: Vec<u8>,
    log_images: Vec<Vec<u8>>,
    /// Writes that may happen during the current event, and the threads whose writes did.
    pub(crate) racing: Vec<RacingWrite>,
    pub(crate) raced: Vec<usize>,
}

impl SimMemory {
    pub(crate) fn new(config: &Config) -> Self {
        let (pages, page_bytes) = (config.pages as usize, config.page_bytes as usize);
        let log_bytes = config.log.bytes() as usize;
        let fetches = usize::from(config.tuning.fetches);
        Self {
            page_bytes,
            ranks: config.ranks,
            home: vec![0; pages * page_bytes],
            words: vec![0; pages.div_ceil(config.ranks) * WORD_BYTES as usize],
            lines: vec![0; pages * LINE_BYTES],
            log: vec![0; log_bytes],
            landing: vec![0; fetches * page_bytes],
            cache: vec![0; pages * page_bytes],
            access: vec![Access::None; pages],
            landing_lines: vec![0; fetches * LINE_BYTES],
            log_images: vec![vec![0; log_bytes]; config.ranks],
            racing: Vec::new(),
            raced: Vec::new(),
        }
    }

    fn area(&mut self, area: Area) -> &mut Vec<u8> {
        match area {
            Area::HomeFrames => &mut self.home,
            Area::HomeWords => &mut self.words,
            Area::Lines => &mut self.lines,
            Area::Log => &mut self.log,
            Area::Landing => &mut self.landing,
        }
    }

    /// Returns bytes that a peer reads.
    pub(crate) fn read(&mut self, area: Area, offset: u64, bytes: usize) -> &[u8] {
        &self.area(area)[offset as usize..][..bytes]
    }

    /// Places bytes that a peer writes.
    pub(crate) fn write(&mut self, area: Area, offset: u64, bytes: &[u8]) {
        self.area(area)[offset as usize..][..bytes.len()].copy_from_slice(bytes);
    }

    /// Swaps a home word if it is 0, and returns the value before.
    pub(crate) fn swap(&mut self, offset: u64, word: u64) -> u64 {
        let place = &mut self.words[offset as usize..][..WORD_BYTES as usize];
        let before = u64::from_le_bytes(place.try_into().expect("a word has eight bytes"));
        if before == 0 {
            place.copy_from_slice(&word.to_le_bytes());
        }
        before
    }

    /// Places bytes that this rank has read.
    pub(crate) fn land(&mut self, place: LocalPlace, bytes: &[u8]) {
        let (target, offset) = match place {
            LocalPlace::Cache(page) => (&mut self.cache, page.0 as usize * self.page_bytes),
            LocalPlace::Line(slot) => (&mut self.landing_lines, usize::from(slot) * LINE_BYTES),
            LocalPlace::Log { rank, offset } => (&mut self.log_images[rank.index()], offset as usize),
            LocalPlace::Discard => return,
        };
        target[offset..][..bytes.len()].copy_from_slice(bytes);
    }

    /// Returns true if threads may access a page.
    pub(crate) fn may_access(&self, page: PageId, access: Access) -> bool {
        self.access[page.0 as usize] >= access
    }

    /// Returns what a thread reads, or `None` at a page that is not mapped.
    pub(crate) fn load(&self, address: usize, bytes: usize) -> Option<&[u8]> {
        (self.access[address / self.page_bytes] >= Access::Read).then(|| &self.cache[address..][..bytes])
    }

    /// Stores what a thread writes. Returns false at a page that it may not write.
    pub(crate) fn store(&mut self, address: usize, bytes: &[u8]) -> bool {
        let may_write = self.access[address / self.page_bytes] == Access::Write;
        if may_write {
            self.cache[address..][..bytes.len()].copy_from_slice(bytes);
        }
        may_write
    }

    fn frame(&self, page: PageId) -> std::ops::Range<usize> {
        let start = page.0 as usize * self.page_bytes;
        start..start + self.page_bytes
    }
}

impl Memory for SimMemory {
    fn set_access(&mut self, page: PageId, access: Access) {
        self.access[page.0 as usize] = access;
    }

    fn read_cache(&mut self, page: PageId, into: &mut [u8]) {
        into.copy_from_slice(&self.cache[self.frame(page)]);
        // A thread that may write does so right behind the copy.
        let may_write = self.access[page.0 as usize] == Access::Write;
        while let Some(at) = self.racing.iter().position(|write| may_write && write.page == page) {
            let write = self.racing.swap_remove(at);
            let address = page.0 as usize * self.page_bytes + write.offset;
            self.store(address, &write.bytes);
            self.raced.push(write.thread);
        }
    }

    fn fill_from_home(&mut self, page: PageId) {
        let frame = self.frame(page);
        self.cache[frame.clone()].copy_from_slice(&self.home[frame]);
    }

    fn fill_from_landing(&mut self, page: PageId, slot: u16) {
        let frame = self.frame(page);
        self.cache[frame].copy_from_slice(&self.landing[usize::from(slot) * self.page_bytes..][..self.page_bytes]);
    }

    fn write_home(&mut self, page: PageId, offset: u32, bytes: &[u8]) {
        let start = self.frame(page).start + offset as usize;
        self.home[start..start + bytes.len()].copy_from_slice(bytes);
    }

    fn claim_home(&mut self, page: PageId, word: u64) -> u64 {
        self.swap(u64::from(page.0) / self.ranks as u64 * WORD_BYTES, word)
    }

    fn read_stamps(&mut self, page: PageId) -> [u8; LINE_BYTES] {
        let line = &self.lines[page.0 as usize * LINE_BYTES..][..LINE_BYTES];
        line.try_into().expect("a line has its length")
    }

    fn write_stamp(&mut self, page: PageId, rank: Rank, interval: u32) {
        let place = page.0 as usize * LINE_BYTES + 4 * rank.index();
        self.lines[place..place + 4].copy_from_slice(&interval.to_le_bytes());
    }

    fn read_line(&mut self, slot: u16) -> [u8; LINE_BYTES] {
        let line = &self.landing_lines[usize::from(slot) * LINE_BYTES..][..LINE_BYTES];
        line.try_into().expect("a line has its length")
    }

    fn write_log(&mut self, offset: u64, bytes: &[u8]) {
        self.log[offset as usize..][..bytes.len()].copy_from_slice(bytes);
    }

    fn read_log(&mut self, rank: Rank, offset: u64, into: &mut [u8]) {
        into.copy_from_slice(&self.log_images[rank.index()][offset as usize..][..into.len()]);
    }
}
