//! Which requests are followed on their way, and when they set out.
//!
//! Reading a clock takes as long as a tenth of a call, so only one request in [`EVERY`] is followed, and the first
//! [`FIRST`] of each lane, so that a short-lived process is seen as well. Both sides know which these are: by the position
//! in the lane's ring (or queue). Nothing about it stands in a request.
//!
//! ```text
//!  a lane's stamp word (the client writes it before the request, the service reads it after that)
//!   63            32 31                            0
//!  +----------------+-------------------------------+
//!  | position and 1 | low half of the clock, in ns  |    zero: nothing was stamped yet
//!  +----------------+-------------------------------+
//! ```
//!
//! What stands there is the client's word, and worth as much: a time that cannot be is taken for none.

use rustix::time::{ClockId, clock_gettime};

/// One request in so many is followed: few enough that those that are do not show in the 99th percentile.
const EVERY: u32 = 512;
/// So many of each lane's first ones are.
const FIRST: u32 = 8;

const _: () = assert!(EVERY.is_power_of_two());
// A window is full before the next one that is stamped comes by.
const _: () = assert!(EVERY as usize > ddss_core::limits::RING_SLOTS);

/// A request that is followed, as it came into the service's hands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TracedRequest {
    /// When its client sent it, if that is known.
    pub submitted_ns: Option<u64>,
    /// When it was taken.
    pub taken_ns: u64,
}

/// The clock by which both sides follow requests: it never goes back, and is the same for every process of a machine.
pub fn clock_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// Whether the request at that position of its lane is followed.
#[inline(always)]
pub(crate) fn is_followed(position: u32) -> bool {
    position.is_multiple_of(EVERY) || position < FIRST
}

/// What the client writes for it.
pub(crate) fn stamp(position: u32, now_ns: u64) -> u64 {
    u64::from(position.wrapping_add(1)) << 32 | now_ns & 0xffff_ffff
}

/// What that says about the request at a position, which was taken at `taken_ns`.
pub(crate) fn followed(stamp: u64, position: u32, taken_ns: u64) -> TracedRequest {
    let ago = (taken_ns as u32).wrapping_sub(stamp as u32);
    let known = (stamp >> 32) as u32 == position.wrapping_add(1) && stamp != 0 && ago < 1 << 31;
    TracedRequest { submitted_ns: known.then(|| taken_ns.saturating_sub(ago.into())), taken_ns }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_followed_from_where_it_set_out() {
        // If this broke, a client's time in the ring would be told of another request, or as an hour.
        let now = 7 << 32 | 100;
        assert_eq!(followed(stamp(128, now - 300), 128, now).submitted_ns, Some(now - 300), "across a wrap");
        assert_eq!(followed(stamp(u32::MAX, now), u32::MAX, now).submitted_ns, Some(now));
        assert_eq!(followed(0, 0, now).submitted_ns, None, "nobody has stamped");
        assert_eq!(followed(0, u32::MAX, now).submitted_ns, None);
        assert_eq!(followed(stamp(128, now), 256, now).submitted_ns, None, "another one's");
        assert_eq!(followed(stamp(128, now + 5), 128, now).submitted_ns, None, "it says that it comes from the future");
        assert_eq!(followed(stamp(0, 50), 0, 100).submitted_ns, Some(50));
        assert!((0..8).all(is_followed) && !is_followed(9) && is_followed(EVERY) && !is_followed(u32::MAX));
    }
}
