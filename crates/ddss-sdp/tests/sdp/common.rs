//! Streams, random numbers and a pattern of bytes.

use rand_core::{Rng, SeedableRng};
use rand_xoshiro::SplitMix64;

use ddss_sdp::{Addresses, FlowControl, Framing, Plan, StreamConfig, Terms, accept, connect, finish_connect};

/// A seeded generator.
pub(crate) struct Random(SplitMix64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(SplitMix64::seed_from_u64(seed))
    }

    /// Returns the next 64 bits.
    pub(crate) fn word(&mut self) -> u64 {
        self.0.next_u64()
    }

    /// Returns a number below `end`.
    pub(crate) fn below(&mut self, end: usize) -> usize {
        (self.word() % end as u64) as usize
    }
}

/// Returns byte `at` of the stream of `side`.
pub(crate) fn byte_at(side: usize, at: u64) -> u8 {
    (at.wrapping_mul(0x9e37_79b9) >> 13) as u8 ^ (side as u8).wrapping_mul(0x5a)
}

/// Returns `bytes` bytes of the stream of `side`.
pub(crate) fn pattern(side: usize, at: u64, bytes: usize) -> Vec<u8> {
    (at..at + bytes as u64).map(|at| byte_at(side, at)).collect()
}

/// Buffers that run out soon.
pub(crate) const SMALL: StreamConfig =
    StreamConfig { buffers: 6, buffer_bytes: 256, buffer_bytes_max: 1024, ring_bytes: 128 << 10, no_delay: true };

pub(crate) fn zero_copy_plan() -> Plan {
    Plan { zero_copy: true, ..Plan::basic() }
}

pub(crate) fn enhanced_plan() -> Plan {
    Plan {
        buffering: ddss_sdp::Buffering::Integrated,
        coalescing: ddss_sdp::Coalescing::Append,
        flow_control: FlowControl::Receiver,
        zero_copy: false,
    }
}

pub(crate) fn addresses() -> Addresses {
    Addresses { source: [10, 0, 0, 1].into(), destination: [10, 0, 0, 2].into(), port: 40_000 }
}

/// Returns the terms of both sides after a handshake.
pub(crate) fn terms(config: &StreamConfig, plan: Plan) -> [Terms; 2] {
    let hello = connect(config, plan, addresses()).unwrap();
    let (there, ack) = accept(config, plan, &hello).unwrap();
    [finish_connect(plan, &ack).unwrap(), there]
}

pub(crate) fn framing(markers: bool, crc: bool) -> Framing {
    Framing { markers, checksum: if crc { Some(crc32c::crc32c_append) } else { None } }
}

/// Encodes a frame of MPA word for word, with a marker before each 512 bytes of the stream.
pub(crate) fn plain_frame(position: usize, ulpdu: &[u8], markers: bool, crc: bool) -> Vec<u8> {
    let mut frame = (ulpdu.len() as u16).to_be_bytes().to_vec();
    frame.extend(ulpdu);
    frame.resize(frame.len().next_multiple_of(4), 0);
    let mut out: Vec<u8> = Vec::new();
    for word in frame.chunks(4).map(Some).chain([None]) {
        if markers && (position + out.len()).is_multiple_of(512) {
            let distance = out.len() as u16;
            out.extend([0, 0]);
            out.extend(distance.to_be_bytes());
        }
        out.extend(word.unwrap_or_default());
    }
    let sum = if crc { crc32c::crc32c(&out) } else { 0 };
    out.extend(sum.to_le_bytes());
    out
}
