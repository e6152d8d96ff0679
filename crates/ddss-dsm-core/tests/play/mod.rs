//! Plays bytes to the engine of one rank: calls of its application, completions, and messages of a hostile peer, which also
//! changes all memory that peers write or that reads bring here.

use ddss_dsm_core::limits::{INTERVAL_MAX, LINE_BYTES};
use ddss_dsm_core::{
    Access, Action, CallId, Config, Engine, Event, LogShape, Memory, Ordering, Output, PageId, PageRange, Protocol,
    Rank, Request, Stamps, Tag, Tuning,
};

const PAGE_BYTES: u32 = 32;
const RECORD_BYTES: usize = 24;
const LOG_BYTES: usize = 2 * RECORD_BYTES;

/// Memory that accepts everything inside its bounds, and panics outside.
pub(crate) struct Bounded {
    pages: Vec<[u8; PAGE_BYTES as usize]>,
    lines: Vec<[u8; LINE_BYTES]>,
    /// Version lines of peers, as they landed here.
    landing_lines: Vec<[u8; LINE_BYTES]>,
    pub(crate) words: Vec<u64>,
    log: Vec<u8>,
    /// Image of a peer's log.
    peer_log: Vec<u8>,
}

impl Bounded {
    pub(crate) fn new() -> Self {
        Self {
            pages: vec![[0; PAGE_BYTES as usize]; 6],
            lines: vec![[0; LINE_BYTES]; 6],
            landing_lines: vec![[0; LINE_BYTES]; 2],
            words: vec![0; 6],
            log: vec![0; LOG_BYTES],
            peer_log: vec![0; LOG_BYTES],
        }
    }

    /// Changes memory as a hostile peer can.
    fn change(&mut self, kind: u8, argument: u8) {
        let (at, value) = (usize::from(argument & 7), argument >> 3);
        match kind % 4 {
            0 => self.words[at % 6] = word(value).into(),
            1 => {
                let place = self.landing_lines[at % 2].as_chunks_mut::<4>().0;
                place[at / 2 % 4] = word(value).to_le_bytes();
            }
            2 => self.peer_log[RECORD_BYTES * (at % 2)..][..RECORD_BYTES].copy_from_slice(&record(at as u32, value)),
            _ => self.peer_log[at * 6] = argument,
        }
    }
}

/// Returns one of the numbers that matter.
pub(crate) const fn word(value: u8) -> u32 {
    match value % 8 {
        7 => u32::MAX,
        6 => INTERVAL_MAX,
        small => small as u32,
    }
}

/// Returns a record of a log, with its checksum.
fn record(interval: u32, value: u8) -> [u8; RECORD_BYTES] {
    let ranges = if value & 16 == 0 { 1 } else { u32::MAX };
    let fields = [interval, ranges, 0, 0, word(value), 1 + u32::from(value >> 3 & 1)];
    let mut bytes = [0; RECORD_BYTES];
    bytes.as_chunks_mut::<4>().0.iter_mut().zip(fields).for_each(|(place, field)| *place = field.to_le_bytes());
    let summed = bytes[..8].iter().chain(&bytes[12..if ranges == 1 { 24 } else { 16 }]);
    let sum = summed.fold(0x811c_9dc5_u32, |sum, byte| (sum ^ u32::from(*byte)).wrapping_mul(0x0100_0193));
    bytes[8..12].copy_from_slice(&sum.to_le_bytes());
    bytes
}

impl Memory for Bounded {
    fn set_access(&mut self, page: PageId, _: Access) {
        assert!((page.0 as usize) < self.pages.len());
    }

    fn read_cache(&mut self, page: PageId, into: &mut [u8]) {
        // Each copy differs from the one before, so that every page has a diff.
        self.pages[page.0 as usize][5] ^= 1;
        into.copy_from_slice(&self.pages[page.0 as usize]);
    }

    fn fill_from_home(&mut self, page: PageId) {
        assert!((page.0 as usize) < self.pages.len());
    }

    fn fill_from_landing(&mut self, page: PageId, slot: u16) {
        assert!((page.0 as usize) < self.pages.len() && slot < 2);
    }

    fn write_home(&mut self, page: PageId, offset: u32, bytes: &[u8]) {
        self.pages[page.0 as usize][offset as usize..][..bytes.len()].copy_from_slice(bytes);
    }

    fn claim_home(&mut self, page: PageId, word: u64) -> u64 {
        let place = &mut self.words[page.0 as usize];
        if *place == 0 { std::mem::replace(place, word) } else { *place }
    }

    fn read_stamps(&mut self, page: PageId) -> [u8; LINE_BYTES] {
        self.lines[page.0 as usize]
    }

    fn write_stamp(&mut self, page: PageId, rank: Rank, interval: u32) {
        self.lines[page.0 as usize][4 * rank.index()..][..4].copy_from_slice(&interval.to_le_bytes());
    }

    fn read_line(&mut self, slot: u16) -> [u8; LINE_BYTES] {
        self.landing_lines[usize::from(slot)]
    }

    fn write_log(&mut self, offset: u64, bytes: &[u8]) {
        self.log[offset as usize..][..bytes.len()].copy_from_slice(bytes);
    }

    fn read_log(&mut self, _: Rank, offset: u64, into: &mut [u8]) {
        into.copy_from_slice(&self.peer_log[offset as usize..][..into.len()]);
    }
}

pub(crate) fn config(flags: u8) -> Config {
    Config {
        rank: Rank::ZERO,
        ranks: 3,
        pages: 6,
        page_bytes: PAGE_BYTES,
        message_bytes: 128,
        protocol: Protocol::ALL[usize::from(flags & 3)],
        ordering: if flags & 4 == 0 { Ordering::Stamped } else { Ordering::Placed },
        stamps: if flags & 8 == 0 { Stamps::PerHome } else { Stamps::PerPage },
        log: LogShape { slots: 2, record_bytes: RECORD_BYTES as u32 },
        tuning: Tuning { runs_max: usize::from(flags >> 4 & 1), fetches: 2, retries_max: 1, ..Tuning::default() },
    }
}

fn request(kind: u8, argument: u8) -> Request {
    let pages = PageRange { first: PageId(u32::from(argument & 7)), pages: 1 + u32::from(argument >> 6) };
    // Few indices, so that answers of peers meet a call.
    let index = u32::from(argument & 3);
    match kind % 9 {
        0 => Request::Touch { pages, access: Access::Read },
        1 => Request::Touch { pages, access: Access::Write },
        2 => Request::Lock(index),
        3 => Request::Unlock(index),
        4 => Request::Barrier(index),
        5 => Request::Post(index),
        6 => Request::Wait(index),
        7 => Request::Add { counter: index, delta: 1 },
        _ => Request::Place,
    }
}

/// Plays an input: the settings, then steps of a byte for the kind, a byte for the argument, and bytes of a message.
///
/// # Panics
/// If the engine does what it must not.
pub(crate) fn play(data: &[u8]) {
    let Some((flags, mut data)) = data.split_first() else { return };
    let mut engine = Engine::new(config(*flags)).expect("the settings are valid");
    let mut memory = Bounded::new();
    let (mut out, mut next_call, mut now_us) = (Output::default(), 0, 0);
    let mut tags: Vec<Tag> = Vec::new();
    while let [kind, argument, rest @ ..] = data {
        data = rest;
        now_us += u64::from(*argument);
        match kind % 8 {
            0 | 4 => {
                next_call += 1;
                let event = Event::Call { call: CallId(next_call), request: request(kind >> 3, *argument) };
                engine.handle(event, now_us, &mut memory, &mut out);
            }
            1 | 5 if !tags.is_empty() => {
                let tag = tags.swap_remove(usize::from(*argument) % tags.len());
                engine.handle(Event::Done { tag, value: u64::from(kind >> 2) }, now_us, &mut memory, &mut out);
            }
            2 => engine.handle(Event::Tick, now_us, &mut memory, &mut out),
            6 => memory.change(kind >> 3, *argument),
            _ => {
                let (bytes, rest) = data.split_at(data.len().min(usize::from(*argument)));
                data = rest;
                let from = Rank::new(1 + usize::from(kind >> 7)).expect("a rank of the space");
                engine.handle(Event::Message { from, bytes }, now_us, &mut memory, &mut out);
            }
        }
        for action in out.actions() {
            match action {
                Action::Read { tag, .. } | Action::Swap { tag, .. } => tags.push(*tag),
                Action::Send { to, message } => assert!(to.index() < 3 && out.payload(message).len() <= 128),
                _ => {}
            }
        }
        out.clear();
    }
}
