//! Simulated network: ordered connections with delays and cuts, and the event queue.

use super::decisions::NodeMessage;
use crate::random::Random;
use ddss_core::{Header, Range, RecordPlace, RemoteWindow, SegmentId, Timestamp};
use ddss_engine::{FetchTarget, ServedGetId, StepId};
use std::collections::{BTreeMap, BTreeSet};

/// A remote read in flight.
#[derive(Clone, Debug)]
pub(crate) struct Fetch {
    pub(crate) step: StepId,
    pub(crate) window: RemoteWindow,
    pub(crate) line: u64,
    /// Place in the window of a table's record.
    pub(crate) record: Option<RecordPlace>,
    pub(crate) ranges: Vec<Range>,
    /// Rows of a table that are read together: the place and the bytes of each record.
    pub(crate) records: Vec<Range>,
    pub(crate) target: FetchTarget,
    pub(crate) header: Header,
    pub(crate) state_after: u64,
    pub(crate) bytes: Vec<u8>,
}

impl Fetch {
    /// Returns the place of the header of the segment or record that it reads.
    fn header_place(&self) -> u64 {
        self.window.base + self.record.map_or(0, |record| record.header)
    }

    /// Returns true between two reads of the adapter: after the header, or after complete ranges.
    pub(crate) fn is_between_reads(&self) -> bool {
        let mut end = 0;
        let read = self.bytes.len() as u64;
        read == 0
            || self.ranges.iter().any(|range| {
                end += u64::from(range.bytes);
                end == read
            })
    }

    /// Returns the offset of the next byte after `read` bytes, and the number of contiguous bytes from there.
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

/// Bytes that a sender writes into the receiver's staging memory before a message.
#[derive(Clone, Debug)]
pub(crate) enum Staged {
    /// Bytes of a client, which do not change before the end of its call.
    Bytes(u64, Vec<u8>),
    /// Bytes in the sender's pool at the time of arrival: the fabric may read memory that late.
    Pool { at: u64, from: u64, bytes: u32, hand: ServedGetId, life: u64 },
}

/// A scheduled event.
#[derive(Clone, Debug)]
pub(crate) enum Event {
    /// A client chooses its next call.
    Ask { node: usize, client: usize },
    /// The deadline of a client passes.
    GiveUp { node: usize, client: usize, request: u64 },
    /// A client dies and is replaced.
    Kill { node: usize, client: usize },
    /// A message arrives, after its staged bytes.
    Deliver { from: usize, to: usize, life: u64, staged: Option<Staged>, bytes: Vec<u8> },
    /// The home's adapter takes the next piece of a fetch: header, bytes in pieces, state.
    Read { from: usize, to: usize, life: u64, fetch: Box<Fetch>, piece: usize },
    /// The reply of a fetch arrives.
    Fetched { from: usize, to: usize, life: u64, fetch: Box<Fetch> },
    /// The connection between two nodes breaks.
    Cut { a: usize, b: usize },
    /// One of the two nodes notices the cut.
    Down { node: usize, peer: usize },
    /// The two nodes connect again.
    Up { a: usize, b: usize },
    /// A node writes a slice of a large commit.
    CommitSlice { node: usize, life: u64 },
    /// A sweep continues.
    SweepSlice { node: usize, life: u64, segment: SegmentId },
    /// A reservation of memory for an undo log ends.
    UndoReserved { node: usize, life: u64, segment: SegmentId, timestamp: Timestamp },
    /// Time passes for an engine.
    Tick { node: usize },
    /// A node crashes.
    Crash { node: usize },
    /// A node restarts, with or without its memory.
    Restart { node: usize, forgets: bool },
    /// A node pauses.
    Pause { node: usize, until_us: u64 },
    /// A node sends a heartbeat to the Raft stub.
    Beat { node: usize },
    /// The Raft stub receives a message of a node.
    AtCouncil { node: usize, life: u64, said: NodeMessage },
    /// A node receives decisions up to an index, and the end of its home lease (0: unchanged).
    FromCouncil { node: usize, life: u64, upto: usize, lease_until_us: u64 },
    /// The Raft stub checks for silent nodes.
    Watch,
    /// A partition separates some nodes from the others and from the Raft stub.
    Isolate { first: usize, second: Option<usize>, until_us: u64 },
    /// The partition ends.
    Heal,
}

impl Event {
    /// Returns the nodes that must be running for the event.
    pub(crate) fn needs(&self) -> [Option<usize>; 2] {
        match *self {
            Event::Ask { node, .. }
            | Event::Kill { node, .. }
            | Event::Down { node, .. }
            | Event::Beat { node }
            | Event::CommitSlice { node, .. }
            | Event::UndoReserved { node, .. }
            | Event::SweepSlice { node, .. }
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
    /// Arrival time of the last message from the lower to the higher node, and of the last one back.
    busy_until: [u64; 2],
}

/// Queue of scheduled events, and the connections.
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

    /// Takes the next piece of a remote read of the segment or record with that header. It may arrive now only if no
    /// earlier message on its connection is in flight. Returns the reader and the piece.
    pub(crate) fn take_read(&mut self, node: usize, header: u64) -> Option<(usize, u64, Box<Fetch>, usize)> {
        let mut behind = BTreeSet::new();
        let key = self.queue.iter().find_map(|(key, event)| match event {
            Event::Read { from, to, fetch, .. } if *to == node => {
                let is_next = behind.insert(*from);
                (is_next && fetch.header_place() == header).then_some(*key)
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

    /// Postpones an event, still before all events that were scheduled later.
    pub(crate) fn postpone(&mut self, key: (u64, u64), until_us: u64, event: Event) {
        self.queue.insert((until_us, key.1), event);
    }

    /// Returns the number of messages and reads in flight.
    #[cfg(test)]
    pub(crate) fn under_way(&self) -> usize {
        let is_one =
            |event: &&Event| matches!(event, Event::Deliver { .. } | Event::Read { .. } | Event::Fetched { .. });
        self.queue.values().filter(is_one).count()
    }

    fn link(&mut self, a: usize, b: usize) -> &mut Link {
        self.links.entry((a.min(b), a.max(b))).or_default()
    }

    /// Returns the generation of the connection, if it is up.
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

    /// Returns the arrival time at `to` of a message sent now from `from`: never before earlier messages.
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

    /// Keeps the target busy for this connection until a time.
    pub(crate) fn occupy(&mut self, from: usize, to: usize, until_us: u64) {
        let busy_until = &mut self.link(from, to).busy_until[usize::from(from > to)];
        *busy_until = until_us.max(*busy_until);
    }
}
