//! Rows of the status page: clients, segments, peers, sampled requests.
//!
//! ```text
//!   0        8                              BYTES - 8    BYTES
//!  +--------+------------------------------+-----------+
//!  | before | fields                       |   after   |
//!  +--------+------------------------------+-----------+
//! ```
//!
//! The writer increments `after`, writes the fields, and then sets `before` to the same value. A reader copies from front
//! to back, as the kernel does, and has a whole row if both are equal. If the writer began before the reader was done,
//! `after` differs; if the writer had not finished, `before` differs.

use super::counters::{Kind, Location, Step};
use crate::{ClientId, NodeId, Outcome, SegmentId};
use std::net::{Ipv6Addr, SocketAddr};

/// Words of the longest row.
pub(super) const WORDS_MAX: usize = 16;

/// Row of the status page.
pub trait Row: Sized {
    /// Number of fields.
    const FIELDS: usize;
    /// Bytes of the row.
    const BYTES: usize = (Self::FIELDS + 2) * size_of::<u64>();

    /// Returns the fields; unused ones are zero, so that no old content of a row remains.
    fn fields(&self) -> [u64; WORDS_MAX];
    /// Makes a row from its fields, if it is in use.
    fn from_fields(fields: &[u64]) -> Option<Self>;

    /// Writes the row through `load` and `store`, with offsets from the row's first byte. `store` must preserve the
    /// order of its calls.
    fn write(&self, load: impl FnOnce(usize) -> u64, store: impl FnMut(usize, u64)) {
        write_fields(Self::FIELDS, &self.fields(), load, store);
    }

    /// Writes an unused row.
    fn erase(load: impl FnOnce(usize) -> u64, store: impl FnMut(usize, u64)) {
        write_fields(Self::FIELDS, &[0; WORDS_MAX], load, store);
    }
}

fn write_fields(
    count: usize,
    fields: &[u64; WORDS_MAX],
    load: impl FnOnce(usize) -> u64,
    mut store: impl FnMut(usize, u64),
) {
    let next = load(0).wrapping_add(1);
    store((count + 1) * 8, next);
    for (index, field) in fields[..count].iter().enumerate() {
        store((index + 1) * 8, *field);
    }
    store(0, next);
}

const fn pair(low: u32, high: u32) -> u64 {
    low as u64 | (high as u64) << 32
}

/// Attached client.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ClientRow {
    /// Id of the client.
    pub client: ClientId,
    /// Its process id.
    pub pid: u32,
    /// Its user id.
    pub uid: u32,
    /// Its group id.
    pub gid: u32,
    /// IPC strategy: 1 `mq`, 2 `rmq`, 3 `rcq`, 4 `auto`.
    pub strategy: u8,
    /// Number of channels.
    pub channels: u8,
    /// Time of its attachment, in microseconds since 1970.
    pub attached_us: u64,
    /// Bytes of its arena.
    pub arena_bytes: u64,
    /// Requests that ended.
    pub operations: u64,
    /// Requests that failed or whose outcome is unknown.
    pub failed: u64,
    /// Bytes read by its gets.
    pub bytes_got: u64,
    /// Bytes written by its puts.
    pub bytes_put: u64,
    /// Requests in progress that were not answered at once.
    pub under_way: u64,
}

impl ClientRow {
    /// Returns the name of the IPC strategy.
    pub fn strategy_name(&self) -> &'static str {
        match self.strategy {
            1 => "mq",
            2 => "rmq",
            3 => "rcq",
            4 => "auto",
            _ => "?",
        }
    }
}

impl Row for ClientRow {
    const FIELDS: usize = 14;

    fn fields(&self) -> [u64; WORDS_MAX] {
        let mut fields = [0; WORDS_MAX];
        let kinds = u32::from_le_bytes([self.strategy, self.channels, 1, 0]);
        fields[..11].copy_from_slice(&[
            pair(self.client.index, self.client.generation),
            pair(self.pid, self.uid),
            pair(self.gid, kinds),
            self.attached_us,
            self.arena_bytes,
            self.operations,
            self.failed,
            self.bytes_got,
            self.bytes_put,
            self.under_way,
            0,
        ]);
        fields
    }

    fn from_fields(fields: &[u64]) -> Option<Self> {
        let &[
            client,
            process,
            group,
            attached_us,
            arena_bytes,
            operations,
            failed,
            bytes_got,
            bytes_put,
            under_way,
            ..,
        ] = fields
        else {
            return None;
        };
        let [strategy, channels, present, _] = ((group >> 32) as u32).to_le_bytes();
        let client = ClientId { index: client as u32, generation: (client >> 32) as u32 };
        (present == 1).then_some(Self {
            client,
            pid: process as u32,
            uid: (process >> 32) as u32,
            gid: group as u32,
            strategy,
            channels,
            attached_us,
            arena_bytes,
            operations,
            failed,
            bytes_got,
            bytes_put,
            under_way,
        })
    }
}

/// Use of a segment by the clients of this node, wherever its home is. The daemon does not see local reads.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SegmentRow {
    /// Id of the segment; the name is not disclosed here.
    pub segment: SegmentId,
    /// Successful gets.
    pub gets: u64,
    /// Successful puts and atomics.
    pub puts: u64,
    /// Other successful calls.
    pub others: u64,
    /// Bytes of the gets.
    pub bytes_got: u64,
    /// Bytes of the puts.
    pub bytes_put: u64,
}

impl SegmentRow {
    /// Returns the number of all calls.
    pub fn calls(&self) -> u64 {
        self.gets.saturating_add(self.puts).saturating_add(self.others)
    }
}

impl Row for SegmentRow {
    const FIELDS: usize = 6;

    fn fields(&self) -> [u64; WORDS_MAX] {
        let mut fields = [0; WORDS_MAX];
        let Self { segment, gets, puts, others, bytes_got, bytes_put } = *self;
        fields[..6].copy_from_slice(&[segment.to_bits(), gets, puts, others, bytes_got, bytes_put]);
        fields
    }

    fn from_fields(fields: &[u64]) -> Option<Self> {
        let &[segment, gets, puts, others, bytes_got, bytes_put, ..] = fields else { return None };
        let row = Self { segment: SegmentId::from_bits(segment), gets, puts, others, bytes_got, bytes_put };
        (segment != 0).then_some(row)
    }
}

/// Another node of the cluster.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PeerRow {
    /// Id of the node.
    pub node: NodeId,
    /// True if it is connected.
    pub connected: bool,
    /// Messages that wait for send space.
    pub waiting: u32,
    /// Windows that it has over segments of this node.
    pub windows: u32,
    /// Time since which it is known or connected, in microseconds since 1970.
    pub since_us: u64,
    /// Its address.
    pub address: SocketAddr,
}

impl Row for PeerRow {
    const FIELDS: usize = 6;

    fn fields(&self) -> [u64; WORDS_MAX] {
        let ip = match self.address.ip() {
            std::net::IpAddr::V4(ip) => ip.to_ipv6_mapped(),
            std::net::IpAddr::V6(ip) => ip,
        };
        let bits = ip.to_bits();
        let mut fields = [0; WORDS_MAX];
        fields[..6].copy_from_slice(&[
            pair(self.node.0.into(), u32::from(self.connected) | u32::from(self.address.port()) << 16),
            pair(self.waiting, self.windows),
            self.since_us,
            bits as u64,
            (bits >> 64) as u64,
            0,
        ]);
        fields
    }

    fn from_fields(fields: &[u64]) -> Option<Self> {
        let &[node, counts, since_us, low, high, ..] = fields else { return None };
        let ip = Ipv6Addr::from_bits(u128::from(low) | u128::from(high) << 64);
        let ip = ip.to_canonical();
        (node as u16 != 0).then_some(Self {
            node: NodeId(node as u16),
            connected: node >> 32 & 1 != 0,
            waiting: counts as u32,
            windows: (counts >> 32) as u32,
            since_us,
            address: SocketAddr::new(ip, (node >> 48) as u16),
        })
    }
}

/// Request that was sampled.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SampleRow {
    /// Sequence number of the sample.
    pub number: u64,
    /// End of the request, in microseconds since 1970.
    pub ended_us: u64,
    /// Kind of request.
    pub kind: Kind,
    /// Path on which it was answered.
    pub location: Location,
    /// Outcome of the request.
    pub outcome: Outcome,
    /// Channel of the request.
    pub channel: u8,
    /// Client of the request.
    pub client: ClientId,
    /// The client's id of the request.
    pub request: u64,
    /// Segment of the request, if any.
    pub segment: Option<SegmentId>,
    /// Bytes to transfer, also of a failed request.
    pub bytes: u64,
    /// Duration of each step in nanoseconds; `None` if there was no such step or it is unknown.
    pub steps_ns: [Option<u64>; Step::COUNT],
}

impl SampleRow {
    /// Encoding of a missing step.
    const NONE: u64 = u64::MAX;

    /// Returns the duration of a step.
    pub fn step_ns(&self, step: Step) -> Option<u64> {
        self.steps_ns[step.index()]
    }
}

impl Row for SampleRow {
    const FIELDS: usize = 14;

    fn fields(&self) -> [u64; WORDS_MAX] {
        let [end, failure] = self.outcome.to_bytes();
        let how = [self.kind.index() as u8, self.location.index() as u8, end, failure, self.channel, 1, 0, 0];
        let mut fields = [0; WORDS_MAX];
        fields[..7].copy_from_slice(&[
            self.number,
            self.ended_us,
            u64::from_le_bytes(how),
            pair(self.client.index, self.client.generation),
            self.request,
            self.segment.map_or(0, SegmentId::to_bits),
            self.bytes,
        ]);
        for (field, step) in fields[7..].iter_mut().zip(self.steps_ns) {
            *field = step.unwrap_or(Self::NONE);
        }
        fields
    }

    fn from_fields(fields: &[u64]) -> Option<Self> {
        let &[number, ended_us, how, client, request, segment, bytes, ref steps @ ..] = fields else { return None };
        let [kind, location, end, failure, channel, present, ..] = how.to_le_bytes();
        let location = *Location::ALL.get(usize::from(location))?;
        (present == 1).then_some(Self {
            number,
            ended_us,
            kind: Kind::of(kind),
            location,
            outcome: Outcome::from_bytes([end, failure]),
            channel,
            client: ClientId { index: client as u32, generation: (client >> 32) as u32 },
            request,
            segment: (segment != 0).then_some(SegmentId::from_bits(segment)),
            bytes,
            steps_ns: std::array::from_fn(|step| steps.get(step).copied().filter(|&ns| ns != Self::NONE)),
        })
    }
}

const _: () = assert!(ClientRow::FIELDS <= WORDS_MAX && SampleRow::FIELDS <= WORDS_MAX);
const _: () = assert!(SampleRow::FIELDS >= 7 + Step::COUNT);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Failure;

    fn there_and_back<R: Row>(row: &R) -> Option<R> {
        let mut words = vec![5; R::BYTES / 8];
        let first = words[0];
        row.write(|_| first, |at, word| words[at / 8] = word);
        assert_eq!((words[0], words[words.len() - 1]), (6, 6));
        let back = R::from_fields(&words[1..words.len() - 1]);
        R::erase(|_| 6, |at, word| words[at / 8] = word);
        assert!(R::from_fields(&words[1..words.len() - 1]).is_none(), "an erased row is nobody");
        back
    }

    #[test]
    fn row_round_trips() {
        // If this broke, one client's work would be reported as another's.
        let client = ClientId { index: 3, generation: 9 };
        let row = ClientRow {
            client,
            pid: 77,
            uid: u32::MAX,
            gid: 8,
            strategy: 4,
            channels: 64,
            attached_us: 1,
            arena_bytes: 2,
            operations: 3,
            failed: 4,
            bytes_got: 5,
            bytes_put: 6,
            under_way: 7,
        };
        assert_eq!(there_and_back(&row), Some(row));
        let segment = SegmentId::new(NodeId(1), 2, 3);
        let row = SegmentRow { segment, gets: 1, puts: 2, others: 3, bytes_got: 4, bytes_put: 5 };
        assert_eq!(there_and_back(&row), Some(row));
        for address in ["10.1.2.3:65535", "[fe80::1]:7400"] {
            let address = address.parse().unwrap();
            let row = PeerRow { node: NodeId(1024), connected: true, waiting: 7, windows: 8, since_us: 9, address };
            assert_eq!(there_and_back(&row), Some(row));
        }
        let row = SampleRow {
            number: 1,
            ended_us: 2,
            kind: Kind::PutMany,
            location: Location::Away,
            outcome: Outcome::Indeterminate(Failure::NodeDown),
            channel: 63,
            client,
            request: 5,
            segment: Some(segment),
            bytes: 6,
            steps_ns: [Some(1), Some(2), None, None, Some(0)],
        };
        assert_eq!(there_and_back(&row), Some(row));
    }
}
