//! Vectored access: several ranges of one segment in one call, all of one version, all or nothing.

use crate::async_client::AsyncSegment;
use crate::calls::calls;
use crate::error::Error;
use crate::location::SegmentLocation;
use crate::plan::{CallPlan, Decoder, Outgoing, PlannedCall, Reply, list_bytes};
use crate::segment::Segment;
use crate::value::{Stamp, Value};
use ddss_core::limits::{ARENA_SLOT_BYTES, RANGES_MAX};
use ddss_core::{ArenaRange, BadArgument, Failure, Operation, PutConditions, Ranges, Version};
use std::ops::Range;

impl SegmentLocation {
    /// Checks the number of ranges, each range and their total size.
    pub(crate) fn check_many(
        &self,
        action: &'static str,
        ranges: impl Iterator<Item = (u64, u128)> + Clone,
    ) -> Result<Ranges, Error> {
        let failed = |failure| Error::Failed { action, target: self.name.to_string(), failure };
        for (offset, end) in ranges.clone() {
            self.check(action, offset, end)?;
        }
        let count = ranges.clone().count();
        if !(1..=RANGES_MAX).contains(&count) {
            let most = format_args!("1 to {RANGES_MAX}: make several calls");
            let failure = if count == 0 { Failure::Malformed } else { Failure::TooLarge };
            return Err(Error::argument(action, &self.name)(BadArgument::new(
                "number of ranges",
                count,
                most,
                failure,
            )));
        }
        // A range that is too long for its field is too long in total.
        let bytes = |(offset, end): (u64, u128)| u32::try_from(end - u128::from(offset)).unwrap_or(u32::MAX);
        let ranges = ranges.map(|range| ddss_core::Range { offset: range.0, bytes: bytes(range) });
        Ranges::new(ranges).map_err(failed)
    }

    /// Plans a get of ranges. The bytes lie one behind the other, after the slot of their table.
    fn plan_get_many<'a>(
        &'a self,
        table: &'a [u8],
        ranges: &Ranges,
        version: Option<Version>,
        mut take: impl FnMut(&Reply<'_>, usize) + Send,
    ) -> PlannedCall<'a, impl Decoder<Stamp>> {
        self.plan_get_ranges(table, ranges, version).returns(move |completion, reply| {
            take(reply, ARENA_SLOT_BYTES);
            Stamp::of(completion)
        })
    }

    pub(crate) fn plan_get_ranges<'a>(
        &'a self,
        table: &'a [u8],
        ranges: &Ranges,
        version: Option<Version>,
    ) -> CallPlan<'a> {
        let (list, count, options) = (ArenaRange::NOWHERE, ranges.as_slice().len() as u8, self.read_options(version));
        let operation = Operation::GetMany { segment: self.id, list, ranges: count, options };
        self.plan("get", operation).sends(Outgoing::Bytes(table)).receives(list_bytes(ranges))
    }

    /// Plans a put of ranges.
    fn plan_put_many<'a>(
        &'a self,
        ranges: &'a Ranges,
        parts: &'a [(u64, &'a [u8])],
        conditions: PutConditions,
    ) -> PlannedCall<'a, impl Decoder<Stamp>> {
        let (list, count) = (ArenaRange::NOWHERE, ranges.as_slice().len() as u8);
        let operation = Operation::PutMany { segment: self.id, list, ranges: count, conditions };
        let plan = self.plan("put", operation).sends(Outgoing::Parts(ranges, parts));
        plan.returns(|completion, _| Stamp::of(completion))
    }
}

/// Returns the bounds of parts to read.
fn bounds_of<'a>(parts: &'a [(u64, &mut [u8])]) -> impl Iterator<Item = (u64, u128)> + Clone + use<'a> {
    parts.iter().map(|(offset, into)| (*offset, u128::from(*offset) + into.len() as u128))
}

/// Copies a reply's bytes into the parts.
fn fill(parts: &mut [(u64, &mut [u8])], reply: &Reply<'_>, mut at: usize) {
    for (_, into) in parts {
        reply.read(at, into);
        at += into.len();
    }
}

/// Splits the bytes into one value for each range.
pub(crate) fn split(ranges: &Ranges, bytes: &[u8], stamp: Stamp) -> Vec<Value> {
    let mut left = bytes;
    let part = |range: &ddss_core::Range| {
        let (part, rest) = left.split_at(range.bytes as usize);
        left = rest;
        Value::new(part.to_vec(), stamp)
    };
    ranges.as_slice().iter().map(part).collect()
}

impl Segment {
    /// Maximum number of ranges in one call.
    pub const RANGES_MAX: usize = RANGES_MAX;

    /// Reads several ranges like [`get_many_into`](Self::get_many_into), and runs `meanwhile` while the bytes are in
    /// transit. A scan can thus process one piece while the next one arrives.
    ///
    /// `meanwhile` runs exactly once, whatever the get's outcome, and has no deadline. Its own calls use another
    /// channel of the client; with only [one](crate::ClientBuilder::channels) they fail as busy.
    ///
    /// A task does not need this method: it joins the get with its own work.
    ///
    /// ```
    /// # let node = ddssd::EphemeralNode::start()?;
    /// # let client = ddss::Client::builder().folder(node.folder()).connect()?;
    /// # let table = client.allocate("table", ddss::Spec::new(3 * 4096))?;
    /// let (mut sum, mut here, mut next) = (0, [0; 4096], [0; 4096]);
    /// table.get_into(0, &mut here)?;
    /// for offset in [4096, 2 * 4096] {
    ///     let work = || sum += here.iter().map(|&byte| u64::from(byte)).sum::<u64>();
    ///     let (got, ()) = table.get_many_into_while(&mut [(offset, &mut next)], work);
    ///     got?;
    ///     std::mem::swap(&mut here, &mut next);
    /// }
    /// # assert_eq!(sum, 0);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn get_many_into_while<T>(
        &self,
        parts: &mut [(u64, &mut [u8])],
        meanwhile: impl FnOnce() -> T,
    ) -> (Result<Stamp, Error>, T) {
        let mut done = None;
        let mut once = Some(|| done = Some(meanwhile()));
        let got = self.get_parts(parts, &mut once);
        // The get did not go out.
        if let Some(run) = once {
            run();
        }
        (got, done.expect("it ran"))
    }

    fn get_parts(&self, parts: &mut [(u64, &mut [u8])], meanwhile: &mut Option<impl FnOnce()>) -> Result<Stamp, Error> {
        let ranges = self.location().check_many("get", bounds_of(parts))?;
        let table = ranges.encode();
        let plan = self.location().plan_get_many(&table, &ranges, None, |reply, at| fill(parts, reply, at));
        self.client().run_while(self.time(), plan, meanwhile)
    }
}

calls! {
    impl Segment, AsyncSegment {
        /// Reads several ranges, all of one version.
        ///
        /// ```
        /// # let node = ddssd::EphemeralNode::start()?;
        /// # let client = ddss::Client::builder().folder(node.folder()).connect()?;
        /// # let table = client.allocate("table", ddss::Spec::new(4096))?;
        /// let [head, tail] = table.get_many(&[0..8, 4000..4096])?.try_into().expect("as many values as ranges");
        /// assert_eq!(head.version(), tail.version());
        /// # Ok::<(), Box<dyn std::error::Error>>(())
        /// ```
        pub async fn get_many(&self, ranges: &[Range<u64>]) -> Result<Vec<Value>, Error> {
            wait!(self.get_many_with(ranges, None))
        }

        /// Reads several ranges of an earlier committed version: [`get_at`](Segment::get_at).
        pub async fn get_many_at(&self, version: Version, ranges: &[Range<u64>]) -> Result<Vec<Value>, Error> {
            wait!(self.get_many_with(ranges, Some(version)))
        }

        pub(crate) async fn get_many_with(&self, ranges: &[Range<u64>], version: Option<Version>)
            -> Result<Vec<Value>, Error>
        {
            let ends = ranges.iter().map(|range| (range.start, u128::from(range.end)));
            let ranges = self.location().check_many("get", ends)?;
            let (table, mut bytes) = (ranges.encode(), vec![0; ranges.sum() as usize]);
            let take = |reply: &Reply<'_>, at| reply.read(at, &mut bytes);
            let plan = self.location().plan_get_many(&table, &ranges, version, take);
            let stamp = wait!(self.client().run(self.time(), plan))?;
            Ok(split(&ranges, &bytes, stamp))
        }

        /// Reads several ranges, all of one version, each directly into its destination: [`get_many`](Self::get_many)
        /// without a buffer of its own.
        ///
        /// ```
        /// # let node = ddssd::EphemeralNode::start()?;
        /// # let client = ddss::Client::builder().folder(node.folder()).connect()?;
        /// # let table = client.allocate("table", ddss::Spec::new(4096))?;
        /// let (mut head, mut tail) = ([0; 8], [0; 96]);
        /// let stamp = table.get_many_into(&mut [(0, &mut head), (4000, &mut tail)])?;
        /// println!("both are of {}", stamp.version);
        /// # Ok::<(), Box<dyn std::error::Error>>(())
        /// ```
        pub async fn get_many_into(&self, parts: &mut [(u64, &mut [u8])]) -> Result<Stamp, Error> {
            let ranges = self.location().check_many("get", bounds_of(parts))?;
            let table = ranges.encode();
            let plan = self.location().plan_get_many(&table, &ranges, None, |reply, at| fill(parts, reply, at));
            wait!(self.client().run(self.time(), plan))
        }

        /// Writes several ranges as one version: every get sees all of them or none. Where ranges overlap, the later
        /// one wins.
        pub async fn put_many(&self, parts: &[(u64, &[u8])]) -> Result<Stamp, Error> {
            wait!(self.put_many_with(parts, self.location().put_conditions(None, None)))
        }

        /// Writes several ranges if the segment still has that version: [`put_if`](Segment::put_if).
        pub async fn put_many_if(&self, version: Version, parts: &[(u64, &[u8])]) -> Result<Stamp, Error> {
            wait!(self.put_many_with(parts, self.location().put_conditions(Some(version), None)))
        }

        pub(crate) async fn put_many_with(&self, parts: &[(u64, &[u8])], conditions: PutConditions)
            -> Result<Stamp, Error>
        {
            let ends = parts.iter().map(|&(offset, bytes)| (offset, u128::from(offset) + bytes.len() as u128));
            let ranges = self.location().check_many("put", ends)?;
            wait!(self.client().run(self.time(), self.location().plan_put_many(&ranges, parts, conditions)))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::TestNode;
    use crate::{Client, Spec};
    use ddss_core::Failure;
    use std::panic::{AssertUnwindSafe, catch_unwind};

    const BYTES: usize = 100_000;

    fn filled(client: &Client) -> Segment {
        let table = client.allocate("table", Spec::new(2 * BYTES as u64)).unwrap();
        table.put_many(&[(0, &[1; BYTES]), (BYTES as u64, &[2; BYTES])]).unwrap();
        table
    }

    #[test]
    fn overlapped_work_runs_exactly_once() {
        // If this broke, a scan that overlaps work and transfer would miss a piece, or process one twice.
        let node = TestNode::start();
        let table = filled(&node.client());
        let (mut left, mut right, mut runs) = (vec![0; BYTES], vec![0; BYTES], 0);
        let mut parts = [(0, &mut left[..]), (BYTES as u64, &mut right[..])];
        let (got, word) = table.get_many_into_while(&mut parts, || {
            runs += 1;
            "done"
        });
        assert_eq!((got.unwrap().version, word, runs), (Version(1), "done", 1));
        assert!(left == [1; BYTES] && right == [2; BYTES]);
        // The closure also runs where no request was sent, or the call fails.
        let outside = (2 * BYTES as u64, &mut left[..]);
        let (got, ()) = table.get_many_into_while(&mut [outside], || runs += 1);
        assert!(matches!(got, Err(Error::OutOfRange { .. })) && runs == 2);
        table.clone().release().unwrap();
        let (got, ()) = table.get_many_into_while(&mut [(0, &mut left)], || runs += 1);
        assert_eq!((got.unwrap_err().failure(), runs), (Some(Failure::NotFound), 3));
    }

    #[test]
    fn client_can_be_used_during_overlapped_work() {
        // If this broke, a lookup in the middle of a scan would wait for itself.
        let node = TestNode::start();
        let client = node.client();
        let table = filled(&client);
        let (mut left, mut right) = (vec![0; BYTES], vec![0; BYTES]);
        let (got, inner) = table.get_many_into_while(&mut [(0, &mut left)], || {
            table.get_many_into_while(&mut [(BYTES as u64, &mut right)], || client.ping())
        });
        assert_eq!((got.unwrap().version, inner.0.unwrap().version), (Version(1), Version(1)));
        inner.1.unwrap();
        assert!(left == [1; BYTES] && right == [2; BYTES]);
    }

    #[test]
    fn nested_call_is_busy_when_client_has_one_channel() {
        // If this broke, such a client would hang, or two calls would share exclusive memory.
        let node = TestNode::start();
        let table = filled(&node.client());
        let one = node.one_channel_client();
        let table = one.open(table.name()).unwrap();
        let mut left = vec![0; BYTES];
        let (got, inner) = table.get_many_into_while(&mut [(0, &mut left)], || one.ping());
        assert!(matches!(inner.unwrap_err().failure(), Some(Failure::Busy(_))));
        assert!(got.is_ok() && left == [1; BYTES]);
        one.ping().unwrap();
    }

    #[test]
    fn memory_in_use_is_not_reused_after_panic_in_overlapped_work() {
        // If this broke, the bytes of an abandoned get would land in the buffer of another call.
        let node = TestNode::start();
        let client = node.client();
        let table = filled(&client);
        for turn in 0..200 {
            // Alternates between the channel's own memory and the shared part of the arena.
            let mut into = vec![0; if turn % 2 == 0 { 1000 } else { BYTES }];
            let panicked = catch_unwind(AssertUnwindSafe(|| {
                table.get_many_into_while(&mut [(0, &mut into)], || std::panic::resume_unwind(Box::new("meanwhile")))
            }));
            assert!(panicked.is_err() && into.iter().all(|&byte| byte == 0), "it was not waited for");
            let mut after = vec![0; 1000];
            table.get_many_into(&mut [(BYTES as u64, &mut after)]).unwrap();
            assert_eq!(after, [2; 1000]);
        }
    }

    #[test]
    fn get_fails_when_daemon_ends_during_overlapped_work() {
        // If this broke, a scan would hang, or take stale bytes for its reply.
        let node = TestNode::start();
        let client = node.short_timeout_client();
        let table = filled(&client);
        let (mut into, mut node) = (vec![0; BYTES], Some(node));
        let mut first = vec![0; 8];
        let (got, ()) = table.get_many_into_while(&mut [(0, &mut first)], || drop(node.take()));
        // Either the reply came before the daemon ended, or there is none.
        assert!(got.is_err() || first == [1; 8]);
        let (got, ran) = table.get_many_into_while(&mut [(0, &mut into)], || true);
        assert!(got.is_err() && ran);
    }
}
