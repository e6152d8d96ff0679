//! Requests that were not answered at once, until they are: what they were about, and when they passed by where.

use ddss_core::limits::{ARENA_SLOT_BYTES, OPERATIONS_MAX};
use ddss_core::status::Kind;
use ddss_core::{ChannelId, ClientId, Entry, SegmentId};
use std::hash::{BuildHasher, Hasher, RandomState};

/// What a request is about, taken from its entry without believing it: whoever uses it waits until the request has
/// come to a good end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Asked {
    pub(super) kind: Kind,
    /// 0 for none.
    pub(super) segment: u64,
    pub(super) bytes: u64,
}

impl Asked {
    #[inline]
    pub(super) fn of(entry: &Entry) -> Self {
        let kind = Kind::of((entry[0] >> 32) as u8);
        let segment = match kind {
            Kind::Unknown | Kind::Null | Kind::Allocate | Kind::Open | Kind::List => 0,
            _ => entry[2],
        };
        let bytes = match kind {
            Kind::Get | Kind::Put => entry[4] & 0xffff_ffff,
            Kind::GetMany | Kind::PutMany => (entry[4] & 0xffff_ffff).saturating_sub(ARENA_SLOT_BYTES as u64),
            Kind::Atomic => 8,
            _ => 0,
        };
        Self { kind, segment, bytes }
    }

    pub(super) fn segment_id(&self) -> Option<SegmentId> {
        (self.segment != 0).then_some(SegmentId::from_bits(self.segment))
    }
}

/// When a request that is followed was where.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Way {
    pub(super) submitted_ns: Option<u64>,
    pub(super) taken_ns: u64,
    pub(super) posted_ns: u64,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct InflightRequest {
    pub(super) asked: Asked,
    pub(super) way: Option<Way>,
}

#[derive(Clone, Copy, Debug)]
struct Node {
    lane: ChannelId,
    request: u64,
    flight: InflightRequest,
    /// The next one under the same head, or the next free one.
    next: u32,
}

/// All of them: short chains under many heads. The node that was freed last is used next, so that a few requests under
/// way stay in a few lines of cache, however many there may be.
#[derive(Debug)]
pub(super) struct InflightRequests {
    heads: Box<[u32]>,
    nodes: Vec<Node>,
    free: u32,
    count: usize,
    followed: usize,
    /// Nobody can choose numbers that all fall under one head.
    seed: u64,
}

impl InflightRequests {
    /// Those that wait for other nodes, and as many that wait behind locks and for versions. There may be more: they are
    /// carried out as well, and not followed.
    const MAX: usize = 2 * OPERATIONS_MAX;
    const HEADS: usize = 4096;
    const END: u32 = u32::MAX;

    pub(super) fn new() -> Self {
        Self {
            heads: vec![Self::END; Self::HEADS].into_boxed_slice(),
            // Taken now, so that nothing is taken later.
            nodes: Vec::with_capacity(Self::MAX),
            free: Self::END,
            count: 0,
            followed: 0,
            seed: RandomState::new().build_hasher().finish(),
        }
    }

    fn head(&self, lane: ChannelId, request: u64) -> usize {
        let who = u64::from(lane.client.index) << 8 | u64::from(lane.index);
        let mixed = u128::from(request ^ self.seed) * u128::from((who ^ self.seed.rotate_left(32)) | 1);
        (mixed as u64 ^ (mixed >> 64) as u64) as usize % Self::HEADS
    }

    /// Whether any of those under way is followed.
    #[inline]
    pub(super) fn follows(&self) -> bool {
        self.followed > 0
    }

    /// One is under way; `false` if there is no room to note it.
    pub(super) fn begin(&mut self, lane: ChannelId, request: u64, flight: InflightRequest) -> bool {
        // Where a client gave one number to two requests it will not know either which of them has ended.
        let unique = self.end(lane, request).is_none();
        let head = self.head(lane, request);
        let node = Node { lane, request, flight, next: self.heads[head] };
        let index = match self.nodes.get(self.free as usize) {
            Some(free) => {
                let index = self.free;
                self.free = free.next;
                self.nodes[index as usize] = node;
                index
            }
            None if self.nodes.len() < Self::MAX => {
                self.nodes.push(node);
                (self.nodes.len() - 1) as u32
            }
            None => return false,
        };
        self.heads[head] = index;
        self.count += 1;
        self.followed += usize::from(flight.way.is_some());
        unique
    }

    /// One has ended.
    pub(super) fn end(&mut self, lane: ChannelId, request: u64) -> Option<InflightRequest> {
        let head = self.head(lane, request);
        let (mut before, mut index) = (None, self.heads[head]);
        while let Some(&Node { lane: its_lane, request: its, flight, next }) = self.nodes.get(index as usize) {
            if (its_lane, its) != (lane, request) {
                (before, index) = (Some(index), next);
                continue;
            }
            match before {
                Some(before) => self.nodes[before as usize].next = next,
                None => self.heads[head] = next,
            }
            self.nodes[index as usize].next = self.free;
            self.free = index;
            self.count -= 1;
            self.followed -= usize::from(flight.way.is_some());
            return Some(flight);
        }
        None
    }

    /// Nobody waits any more for those of a client that is gone.
    pub(super) fn forget(&mut self, client: ClientId) {
        for head in 0..if self.count > 0 { Self::HEADS } else { 0 } {
            let mut index = self.heads[head];
            while let Some(&Node { lane, request, next, .. }) = self.nodes.get(index as usize) {
                if lane.client == client {
                    self.end(lane, request);
                }
                index = next;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ddss_core::{ArenaRange, Operation, Payload, PutConditions, Request, RequestId};

    const fn lane(client: u32, index: u8) -> ChannelId {
        ChannelId { client: ClientId { index: client, generation: 1 }, index }
    }

    #[test]
    fn a_request_is_known_by_its_entry() {
        // If this broke, puts would be counted as gets, or bytes that nobody moved.
        let segment = SegmentId::from_bits(77);
        let of = |operation| Asked::of(&Request::new(RequestId(1), operation).encode());
        assert_eq!(of(Operation::Null), Asked { kind: Kind::Null, segment: 0, bytes: 0 });
        let from = Payload::Inline { bytes: [0; 16], length: 9 };
        let put = Operation::Put { segment, offset: 1 << 40, from, terms: PutConditions::default() };
        assert_eq!(of(put), Asked { kind: Kind::Put, segment: 77, bytes: 9 });
        let list = ArenaRange { slot: 0, bytes: ARENA_SLOT_BYTES as u32 + 100 };
        let many = Operation::PutMany { segment, list, ranges: 2, terms: PutConditions::default() };
        assert_eq!(of(many), Asked { kind: Kind::PutMany, segment: 77, bytes: 100 });
        assert_eq!(of(Operation::Open { name: list }).segment_id(), None);
        assert_eq!(Asked::of(&[u64::MAX; 8]).kind, Kind::Unknown);
    }

    #[test]
    fn what_is_under_way_is_bounded_and_goes_with_its_client() {
        // If this broke, a client could make the daemon take memory by asking for what never ends.
        let asked = Asked { kind: Kind::Await, segment: 1, bytes: 0 };
        let way = Some(Way { submitted_ns: None, taken_ns: 1, posted_ns: 2 });
        let mut flights = InflightRequests::new();
        let capacity = flights.nodes.capacity();
        for request in 0..InflightRequests::MAX as u64 {
            let way = way.filter(|_| request % 100 == 0);
            assert!(flights.begin(lane(1 + request as u32 % 2, 0), request, InflightRequest { asked, way }));
        }
        assert!(!flights.begin(lane(3, 0), 5, InflightRequest { asked, way }));
        assert!(flights.follows());
        assert_eq!(flights.nodes.capacity(), capacity, "it has taken memory on the way");
        assert!(flights.end(lane(1, 0), 0).is_some() && flights.end(lane(1, 0), 0).is_none());
        [1, 2].iter().for_each(|&client| flights.forget(lane(client, 0).client));
        assert!(flights.count == 0 && !flights.follows());
        assert!(flights.begin(lane(1, 0), 7, InflightRequest { asked, way }));
        assert!(!flights.begin(lane(1, 0), 7, InflightRequest { asked, way: None }), "one number for two");
        assert!(!flights.follows());
    }
}
