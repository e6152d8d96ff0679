//! Selection of the requests to trace, and their submit times.
//!
//! Reading a clock takes a tenth of a call. So only one request in [`SAMPLE_INTERVAL`] is traced, and the first
//! [`ALWAYS_SAMPLED`] of each channel, to include short-lived processes. Both sides derive this from the position in
//! the channel's ring (or queue). The request itself carries no trace data.
//!
//! ```text
//!  a channel's stamp word (the client writes it before the request, the service reads it afterwards)
//!   63            32 31                            0
//!  +----------------+-------------------------------+
//!  | position and 1 | low half of the clock, in ns  |    zero: no stamp yet
//!  +----------------+-------------------------------+
//! ```
//!
//! The stamp is an unverified statement of the client: an impossible time counts as unknown.

use rustix::time::{ClockId, clock_gettime};

/// Requests for each traced one: so many that traced ones do not show in the 99th percentile.
const SAMPLE_INTERVAL: u32 = 512;
/// First requests of each channel, which are all traced.
const ALWAYS_SAMPLED: u32 = 8;

const _: () = assert!(SAMPLE_INTERVAL.is_power_of_two());
// A window is full before the next request is stamped.
const _: () = assert!(SAMPLE_INTERVAL as usize > ddss_core::limits::RING_SLOTS);

/// Times of a traced request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TracedRequest {
    /// Submit time, if it is known.
    pub submitted_ns: Option<u64>,
    /// Time at which the service took the request.
    pub taken_ns: u64,
}

/// Returns the time of the trace clock: monotonic, and the same for every process of a machine.
pub fn clock_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// Returns true if the request at that position of its channel is traced.
#[inline(always)]
pub(crate) fn is_sampled(position: u32) -> bool {
    position.is_multiple_of(SAMPLE_INTERVAL) || position < ALWAYS_SAMPLED
}

/// Encodes a position and a time as stamp.
pub(crate) fn encode_stamp(position: u32, now_ns: u64) -> u64 {
    u64::from(position.wrapping_add(1)) << 32 | now_ns & 0xffff_ffff
}

/// Decodes a stamp for the request at a position, which was taken at `taken_ns`.
pub(crate) fn decode_stamp(stamp: u64, position: u32, taken_ns: u64) -> TracedRequest {
    let ago = (taken_ns as u32).wrapping_sub(stamp as u32);
    let known = (stamp >> 32) as u32 == position.wrapping_add(1) && stamp != 0 && ago < 1 << 31;
    TracedRequest { submitted_ns: known.then(|| taken_ns.saturating_sub(ago.into())), taken_ns }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stamp_is_decoded_for_its_own_request_only() {
        // If this failed, the time in the ring would be that of another request, or an hour.
        let now = 7 << 32 | 100;
        assert_eq!(decode_stamp(encode_stamp(128, now - 300), 128, now).submitted_ns, Some(now - 300), "across a wrap");
        assert_eq!(decode_stamp(encode_stamp(u32::MAX, now), u32::MAX, now).submitted_ns, Some(now));
        assert_eq!(decode_stamp(0, 0, now).submitted_ns, None, "no stamp yet");
        assert_eq!(decode_stamp(0, u32::MAX, now).submitted_ns, None);
        assert_eq!(decode_stamp(encode_stamp(128, now), 256, now).submitted_ns, None, "stamp of another request");
        assert_eq!(decode_stamp(encode_stamp(128, now + 5), 128, now).submitted_ns, None, "stamp from the future");
        assert_eq!(decode_stamp(encode_stamp(0, 50), 0, 100).submitted_ns, Some(50));
        assert!((0..8).all(is_sampled) && !is_sampled(9) && is_sampled(SAMPLE_INTERVAL) && !is_sampled(u32::MAX));
    }
}
