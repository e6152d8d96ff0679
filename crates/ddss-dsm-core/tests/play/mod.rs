//! Plays bytes to the engine of one rank: calls of its application, completions, and messages of a hostile peer.

use ddss_dsm_core::limits::LINE_BYTES;
use ddss_dsm_core::{
    Access, Action, CallId, Config, Engine, Event, LogShape, Memory, Ordering, Output, PageId, PageRange, Protocol,
    Rank, Request, Stamps, Tag, Tuning,
};

const PAGE_BYTES: u32 = 32;

/// Memory that accepts everything inside its bounds, and panics outside.
struct Bounded {
    pages: Vec<[u8; PAGE_BYTES as usize]>,
    lines: Vec<[u8; LINE_BYTES]>,
    words: Vec<u64>,
    log: Vec<u8>,
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
        self.lines[usize::from(slot)]
    }

    fn write_log(&mut self, offset: u64, bytes: &[u8]) {
        self.log[offset as usize..][..bytes.len()].copy_from_slice(bytes);
    }

    fn read_log(&mut self, _: Rank, offset: u64, into: &mut [u8]) {
        into.copy_from_slice(&self.log[offset as usize..][..into.len()]);
    }
}

fn config(flags: u8) -> Config {
    Config {
        rank: Rank::ZERO,
        ranks: 3,
        pages: 6,
        page_bytes: PAGE_BYTES,
        message_bytes: 128,
        protocol: Protocol::ALL[usize::from(flags & 3)],
        ordering: if flags & 4 == 0 { Ordering::Stamped } else { Ordering::Placed },
        stamps: if flags & 8 == 0 { Stamps::PerHome } else { Stamps::PerPage },
        log: LogShape { slots: 2, record_bytes: 24 },
        tuning: Tuning { runs_max: usize::from(flags >> 4 & 1), fetches: 2, retries_max: 1, ..Tuning::default() },
    }
}

fn request(kind: u8, argument: u8) -> Request {
    let pages = PageRange { first: PageId(u32::from(argument & 7)), pages: 1 + u32::from(argument >> 6) };
    match kind % 8 {
        0 => Request::Touch { pages, access: Access::Read },
        1 => Request::Touch { pages, access: Access::Write },
        2 => Request::Lock(argument.into()),
        3 => Request::Unlock(argument.into()),
        4 => Request::Barrier(u32::from(argument & 1)),
        5 => Request::Post(argument.into()),
        6 => Request::Wait(argument.into()),
        _ => Request::Add { counter: argument.into(), delta: 1 },
    }
}

/// Plays an input: the settings, then steps of a byte for the kind, a byte for the argument, and bytes of a message.
///
/// # Panics
/// If the engine does what it must not.
pub(crate) fn play(data: &[u8]) {
    let Some((flags, mut data)) = data.split_first() else { return };
    let mut engine = Engine::new(config(*flags)).expect("the settings are valid");
    let mut memory = Bounded {
        pages: vec![[0; PAGE_BYTES as usize]; 6],
        lines: vec![[0; LINE_BYTES]; 6],
        words: vec![0; 6],
        log: vec![0; 48],
    };
    let (mut out, mut next_call, mut now_us) = (Output::default(), 0, 0);
    let mut tags: Vec<Tag> = Vec::new();
    while let [kind, argument, rest @ ..] = data {
        data = rest;
        now_us += u64::from(*argument);
        match kind % 4 {
            0 => {
                next_call += 1;
                let event = Event::Call { call: CallId(next_call), request: request(kind >> 2, *argument) };
                engine.handle(event, now_us, &mut memory, &mut out);
            }
            1 if !tags.is_empty() => {
                let tag = tags.swap_remove(usize::from(*argument) % tags.len());
                engine.handle(Event::Done { tag, value: u64::from(kind >> 2) }, now_us, &mut memory, &mut out);
            }
            2 => engine.handle(Event::Tick, now_us, &mut memory, &mut out),
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
