//! The roads between the nodes: in order, late, and cut with everything that is on them.

use crate::random::Random;
use ddss_core::engine::StepId;
use ddss_core::{ArenaRange, ClientId, Header, RemoteWindow};
use std::collections::BTreeMap;

/// A read of another node's segment, on its way.
#[derive(Clone, Debug)]
pub(crate) struct Fetch {
    pub(crate) step: StepId,
    pub(crate) window: RemoteWindow,
    pub(crate) offset: u64,
    pub(crate) client: ClientId,
    pub(crate) into: ArenaRange,
    pub(crate) header: Header,
    pub(crate) state_after: u64,
    pub(crate) bytes: Vec<u8>,
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
    Deliver { from: usize, to: usize, life: u64, staged: Option<(u64, Vec<u8>)>, bytes: Vec<u8> },
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

    pub(crate) fn next(&mut self) -> Option<(u64, Event)> {
        self.queue.pop_first().map(|((time_us, _), event)| (time_us, event))
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
    pub(crate) fn arrival(&mut self, now_us: u64, from: usize, to: usize, random: &mut Random) -> u64 {
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
