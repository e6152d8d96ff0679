//! The roads between the nodes: in order, late, and cut with everything that is on them.

use super::raft_stub::Said;
use crate::random::Random;
use ddss_core::engine::{FetchTarget, ServedGetId, StepId};
use ddss_core::{Header, Range, RemoteWindow};
use std::collections::{BTreeMap, BTreeSet};

/// A read of another node's segment, on its way.
#[derive(Clone, Debug)]
pub(crate) struct Fetch {
    pub(crate) step: StepId,
    pub(crate) window: RemoteWindow,
    pub(crate) line: u64,
    pub(crate) ranges: Vec<Range>,
    pub(crate) target: FetchTarget,
    pub(crate) header: Header,
    pub(crate) state_after: u64,
    pub(crate) bytes: Vec<u8>,
}

impl Fetch {
    /// Whether the adapter is between two reads: it has the header, or all of some ranges.
    pub(crate) fn is_between(&self) -> bool {
        let mut end = 0;
        let read = self.bytes.len() as u64;
        read == 0
            || self.ranges.iter().any(|range| {
                end += u64::from(range.bytes);
                end == read
            })
    }

    /// Where the next byte is in the segment when so many were read, and how many there are from there in one piece.
    pub(crate) fn place_of(&self, mut read: u64) -> (u64, usize) {
        for range in &self.ranges {
            let bytes = u64::from(range.bytes);
            if read < bytes {
                return (range.offset + read, (bytes - read) as usize);
            }
            read -= bytes;
        }
        (0, 0)
    }
}

/// Bytes that are written into the receiver's staging memory before a message.
#[derive(Clone, Debug)]
pub(crate) enum Staged {
    /// A client's: they do not change before the end of its call.
    Bytes(u64, Vec<u8>),
    /// From the sender's pool, as it is when they arrive: the fabric takes them out of memory as late as it can.
    Pool { at: u64, from: u64, bytes: u32, hand: ServedGetId, life: u64 },
}

/// Something that will happen.
#[derive(Clone, Debug)]
pub(crate) enum Event {
    /// A client thinks of something to do.
    Ask { node: usize, client: usize },
    /// A client stops waiting.
    GiveUp { node: usize, client: usize, request: u64 },
    /// A client dies, and another takes its place.
    Kill { node: usize, client: usize },
    /// A message, with what was written into staging memory before it.
    Deliver { from: usize, to: usize, life: u64, staged: Option<Staged>, bytes: Vec<u8> },
    /// The home's adapter takes the next piece of a fetch: header, bytes in pieces, state.
    Read { from: usize, to: usize, life: u64, fetch: Box<Fetch>, piece: usize },
    /// A fetch is back.
    Fetched { from: usize, to: usize, life: u64, fetch: Box<Fetch> },
    /// The connection between two nodes breaks.
    Cut { a: usize, b: usize },
    /// One of them notices.
    Down { node: usize, peer: usize },
    /// They are connected again.
    Up { a: usize, b: usize },
    /// Time passes for an engine.
    Tick { node: usize },
    /// A node dies with all that it had.
    Crash { node: usize },
    /// It is started again, with or without what it had in memory.
    Restart { node: usize, forgets: bool },
    /// It does nothing for a while.
    Pause { node: usize, until_us: u64 },
    /// A node says to the council that it is there.
    Beat { node: usize },
    /// The council hears a node.
    AtCouncil { node: usize, life: u64, said: Said },
    /// A node hears the council: so much of its news, and until when it may serve (0: nothing about that).
    FromCouncil { node: usize, life: u64, upto: usize, lease_until_us: u64 },
    /// The council looks who is there.
    Watch,
    /// Some nodes are cut off from the others, the council included.
    Isolate { first: usize, second: Option<usize>, until_us: u64 },
    /// All are together again.
    Heal,
}

impl Event {
    /// The nodes that have to be awake for it.
    pub(crate) fn needs(&self) -> [Option<usize>; 2] {
        match *self {
            Event::Ask { node, .. }
            | Event::Kill { node, .. }
            | Event::Down { node, .. }
            | Event::Beat { node }
            | Event::FromCouncil { node, .. }
            | Event::Tick { node } => [Some(node), None],
            Event::Deliver { to, .. } | Event::Read { to, .. } | Event::Fetched { to, .. } => [Some(to), None],
            Event::Up { a, b } => [Some(a), Some(b)],
            Event::GiveUp { .. }
            | Event::Cut { .. }
            | Event::Crash { .. }
            | Event::Restart { .. }
            | Event::AtCouncil { .. }
            | Event::Watch
            | Event::Isolate { .. }
            | Event::Heal
            | Event::Pause { .. } => [None, None],
        }
    }
}

#[derive(Debug, Default)]
struct Link {
    life: u64,
    up: bool,
    /// When the last thing sent from the lower to the higher node, and back, arrives.
    busy_until: [u64; 2],
}

/// All that will happen, in order.
#[derive(Debug, Default)]
pub(crate) struct Network {
    queue: BTreeMap<(u64, u64), Event>,
    count: u64,
    links: BTreeMap<(usize, usize), Link>,
}

impl Network {
    pub(crate) fn at(&mut self, time_us: u64, event: Event) {
        self.count += 1;
        self.queue.insert((time_us, self.count), event);
    }

    pub(crate) fn next(&mut self) -> Option<((u64, u64), Event)> {
        self.queue.pop_first()
    }

    /// The next piece of a read of that memory that is on its way to that node, if it may come this moment: nothing
    /// that was sent before it on its connection is on its way as well. From whom, and what.
    pub(crate) fn take_read(&mut self, node: usize, base: u64) -> Option<(usize, u64, Box<Fetch>, usize)> {
        let mut behind = BTreeSet::new();
        let key = self.queue.iter().find_map(|(key, event)| match event {
            Event::Read { from, to, fetch, .. } if *to == node => {
                let is_next = behind.insert(*from);
                (is_next && fetch.window.base == base).then_some(*key)
            }
            Event::Deliver { from, to, .. } if *to == node => {
                behind.insert(*from);
                None
            }
            _ => None,
        })?;
        match self.queue.remove(&key)? {
            Event::Read { from, life, fetch, piece, .. } => Some((from, life, fetch, piece)),
            _ => None,
        }
    }

    /// What was due has to wait until then, still before everything that was planned later.
    pub(crate) fn put_off(&mut self, key: (u64, u64), until_us: u64, event: Event) {
        self.queue.insert((until_us, key.1), event);
    }

    /// Messages and reads that are on their way from node to node.
    #[cfg(test)]
    pub(crate) fn under_way(&self) -> usize {
        let is_one =
            |event: &&Event| matches!(event, Event::Deliver { .. } | Event::Read { .. } | Event::Fetched { .. });
        self.queue.values().filter(is_one).count()
    }

    fn link(&mut self, a: usize, b: usize) -> &mut Link {
        self.links.entry((a.min(b), a.max(b))).or_default()
    }

    /// The life of the connection, if there is one.
    pub(crate) fn life(&mut self, a: usize, b: usize) -> Option<u64> {
        let link = self.link(a, b);
        link.up.then_some(link.life)
    }

    pub(crate) fn connect(&mut self, a: usize, b: usize) {
        self.link(a, b).up = true;
    }

    /// Breaks the connection; `false` if there was none.
    pub(crate) fn cut(&mut self, a: usize, b: usize) -> bool {
        let link = self.link(a, b);
        link.life += 1;
        std::mem::replace(&mut link.up, false)
    }

    /// When something sent now from `from` arrives at `to`: never before what was sent earlier.
    pub(crate) fn arrival(
        &mut self,
        now_us: u64,
        hop_us: Option<u64>,
        from: usize,
        to: usize,
        random: &mut Random,
    ) -> u64 {
        if let Some(hop_us) = hop_us {
            return now_us + hop_us;
        }
        let longest = if random.one_in(50) { 3000 } else { 40 };
        let delay = 1 + random.below(longest);
        let busy_until = &mut self.link(from, to).busy_until[usize::from(from > to)];
        *busy_until = (now_us + delay).max(*busy_until + 1);
        *busy_until
    }

    /// The target is at work for the connection until then.
    pub(crate) fn occupy(&mut self, from: usize, to: usize, until_us: u64) {
        let busy_until = &mut self.link(from, to).busy_until[usize::from(from > to)];
        *busy_until = until_us.max(*busy_until);
    }
}
