//! Requests without an immediate reply, until they are answered: their subject and the time of each step.

use ddss_core::limits::{ARENA_SLOT_BYTES, OPERATIONS_MAX};
use ddss_core::status::Kind;
use ddss_core::{ChannelId, ClientId, Entry, SegmentId};
use std::hash::{BuildHasher, Hasher, RandomState};

/// Subject of a request, parsed from its unvalidated entry. It is used only after the request has succeeded.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct RequestSubject {
    pub(super) kind: Kind,
    /// 0 for none.
    pub(super) segment: u64,
    pub(super) bytes: u64,
}

impl RequestSubject {
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

/// Times of a traced request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct StepTimes {
    pub(super) submitted_ns: Option<u64>,
    pub(super) taken_ns: u64,
    pub(super) posted_ns: u64,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct InflightRequest {
    pub(super) subject: RequestSubject,
    pub(super) times: Option<StepTimes>,
}

#[derive(Clone, Copy, Debug)]
struct Slot {
    channel: ChannelId,
    request: u64,
    inflight: InflightRequest,
    /// The next slot of the same bucket, or the next free one.
    next: u32,
}

/// All in-flight requests, in a hash table with chains. The last freed slot is reused first, so that a few requests
/// stay in a few cache lines.
#[derive(Debug)]
pub(super) struct InflightRequests {
    buckets: Box<[u32]>,
    slots: Vec<Slot>,
    free: u32,
    count: usize,
    traced: usize,
    /// Random seed: clients cannot choose ids that all fall into one bucket.
    seed: u64,
}

impl InflightRequests {
    /// Requests that wait for other nodes, and as many that wait for locks and versions. Requests beyond this number
    /// are executed as well, but not tracked.
    const MAX: usize = 2 * OPERATIONS_MAX;
    const BUCKETS: usize = 4096;
    const END: u32 = u32::MAX;

    pub(super) fn new() -> Self {
        Self {
            buckets: vec![Self::END; Self::BUCKETS].into_boxed_slice(),
            // Allocated now, so that the data path never allocates.
            slots: Vec::with_capacity(Self::MAX),
            free: Self::END,
            count: 0,
            traced: 0,
            seed: RandomState::new().build_hasher().finish(),
        }
    }

    fn bucket(&self, channel: ChannelId, request: u64) -> usize {
        let caller = u64::from(channel.client.index) << 8 | u64::from(channel.index);
        let mixed = u128::from(request ^ self.seed) * u128::from((caller ^ self.seed.rotate_left(32)) | 1);
        (mixed as u64 ^ (mixed >> 64) as u64) as usize % Self::BUCKETS
    }

    /// Returns true if a traced request is in flight.
    #[inline]
    pub(super) fn has_traced(&self) -> bool {
        self.traced > 0
    }

    /// Adds a request. Returns false if there is no room, or if its id is in use.
    pub(super) fn begin(&mut self, channel: ChannelId, request: u64, inflight: InflightRequest) -> bool {
        // A client that gives one id to two requests cannot tell their replies apart either.
        let unique = self.end(channel, request).is_none();
        let bucket = self.bucket(channel, request);
        let slot = Slot { channel, request, inflight, next: self.buckets[bucket] };
        let index = match self.slots.get(self.free as usize) {
            Some(free) => {
                let index = self.free;
                self.free = free.next;
                self.slots[index as usize] = slot;
                index
            }
            None if self.slots.len() < Self::MAX => {
                self.slots.push(slot);
                (self.slots.len() - 1) as u32
            }
            None => return false,
        };
        self.buckets[bucket] = index;
        self.count += 1;
        self.traced += usize::from(inflight.times.is_some());
        unique
    }

    /// Removes a request.
    pub(super) fn end(&mut self, channel: ChannelId, request: u64) -> Option<InflightRequest> {
        let bucket = self.bucket(channel, request);
        let (mut before, mut index) = (None, self.buckets[bucket]);
        while let Some(&Slot { channel: its_channel, request: its, inflight, next }) = self.slots.get(index as usize) {
            if (its_channel, its) != (channel, request) {
                (before, index) = (Some(index), next);
                continue;
            }
            match before {
                Some(before) => self.slots[before as usize].next = next,
                None => self.buckets[bucket] = next,
            }
            self.slots[index as usize].next = self.free;
            self.free = index;
            self.count -= 1;
            self.traced -= usize::from(inflight.times.is_some());
            return Some(inflight);
        }
        None
    }

    /// Removes all requests of a client that is gone.
    pub(super) fn remove_client(&mut self, client: ClientId) {
        for bucket in 0..if self.count > 0 { Self::BUCKETS } else { 0 } {
            let mut index = self.buckets[bucket];
            while let Some(&Slot { channel, request, next, .. }) = self.slots.get(index as usize) {
                if channel.client == client {
                    self.end(channel, request);
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

    const fn channel(client: u32, index: u8) -> ChannelId {
        ChannelId { client: ClientId { index: client, generation: 1 }, index }
    }

    #[test]
    fn request_subject_is_parsed_from_entry() {
        // If this broke, puts would be counted as gets, or bytes that nothing moved would be counted.
        let segment = SegmentId::from_bits(77);
        let of = |operation| RequestSubject::of(&Request::new(RequestId(1), operation).encode());
        assert_eq!(of(Operation::Null), RequestSubject { kind: Kind::Null, segment: 0, bytes: 0 });
        let from = Payload::Inline { bytes: [0; 16], length: 9 };
        let put = Operation::Put { segment, offset: 1 << 40, from, conditions: PutConditions::default() };
        assert_eq!(of(put), RequestSubject { kind: Kind::Put, segment: 77, bytes: 9 });
        let list = ArenaRange { slot: 0, bytes: ARENA_SLOT_BYTES as u32 + 100 };
        let many = Operation::PutMany { segment, list, ranges: 2, conditions: PutConditions::default() };
        assert_eq!(of(many), RequestSubject { kind: Kind::PutMany, segment: 77, bytes: 100 });
        assert_eq!(of(Operation::Open { name: list }).segment_id(), None);
        assert_eq!(RequestSubject::of(&[u64::MAX; 8]).kind, Kind::Unknown);
    }

    #[test]
    fn inflight_requests_are_bounded_and_removed_with_client() {
        // If this broke, a client could exhaust the daemon's memory with requests that never end.
        let subject = RequestSubject { kind: Kind::Await, segment: 1, bytes: 0 };
        let times = Some(StepTimes { submitted_ns: None, taken_ns: 1, posted_ns: 2 });
        let mut requests = InflightRequests::new();
        let capacity = requests.slots.capacity();
        for request in 0..InflightRequests::MAX as u64 {
            let times = times.filter(|_| request % 100 == 0);
            assert!(requests.begin(channel(1 + request as u32 % 2, 0), request, InflightRequest { subject, times }));
        }
        assert!(!requests.begin(channel(3, 0), 5, InflightRequest { subject, times }));
        assert!(requests.has_traced());
        assert_eq!(requests.slots.capacity(), capacity, "it has taken memory in between");
        assert!(requests.end(channel(1, 0), 0).is_some() && requests.end(channel(1, 0), 0).is_none());
        [1, 2].iter().for_each(|&client| requests.remove_client(channel(client, 0).client));
        assert!(requests.count == 0 && !requests.has_traced());
        assert!(requests.begin(channel(1, 0), 7, InflightRequest { subject, times }));
        assert!(!requests.begin(channel(1, 0), 7, InflightRequest { subject, times: None }), "one number for two");
        assert!(!requests.has_traced());
    }
}
