//! Vectored access: several ranges of one segment in one call, all of one version, all or nothing.

use super::segment::Segment;
use super::{only_blocking, twin};
use crate::error::Error;
use crate::location::ranges::{bounds_of, fill, split};
use crate::plan::Reply;
use crate::value::{Stamp, Value};
use ddss_core::PutConditions;
use ddss_core::limits::RANGES_MAX;
use std::ops::Range;

#[twin]
impl Segment {
    /// Maximum number of ranges in one call.
    pub const RANGES_MAX: usize = RANGES_MAX;
}

#[only_blocking]
impl Segment {
    /// Reads several ranges like [`get_many_into`](Self::get_many_into), and runs `meanwhile` while the bytes are in
    /// transit. A scan can thus process one piece while the next one arrives.
    ///
    /// `meanwhile` runs exactly once, whatever the get's outcome, and has no deadline. Its own calls use another
    /// channel of the client; with only [one](crate::ConnectOptions::channels) they fail as busy.
    ///
    /// A task does not need this method: it joins the get with its own work.
    ///
    /// ```
    /// # let node = ddssd::EphemeralNode::start()?;
    /// # let client = ddss::Client::connect_with(ddss::ConnectOptions::new().directory(node.directory()))?;
    /// # let table = client.segment("table").allocate(3 * 4096)?;
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
        let plan = self.location().plan_get_many(&table, &ranges, |reply, at| fill(parts, reply, at));
        self.client().run_while(self.time(), plan, meanwhile)
    }
}

#[twin]
impl Segment {
    /// Reads several ranges, all of one version.
    ///
    /// ```
    /// # let node = ddssd::EphemeralNode::start()?;
    /// # let client = ddss::Client::connect_with(ddss::ConnectOptions::new().directory(node.directory()))?;
    /// # let table = client.segment("table").allocate(4096)?;
    /// let [head, tail] = table.get_many(&[0..8, 4000..4096])?.try_into().expect("as many values as ranges");
    /// assert_eq!(head.version(), tail.version());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub async fn get_many(&self, ranges: &[Range<u64>]) -> Result<Vec<Value>, Error> {
        let ends = ranges.iter().map(|range| (range.start, u128::from(range.end)));
        let ranges = self.location().check_many("get", ends)?;
        let (table, mut bytes) = (ranges.encode(), vec![0; ranges.sum() as usize]);
        let take = |reply: &Reply<'_>, at| reply.read(at, &mut bytes);
        let plan = self.location().plan_get_many(&table, &ranges, take);
        let stamp = self.client().execute(self.time(), plan).await?;
        Ok(split(&ranges, &bytes, stamp))
    }

    /// Reads several ranges, all of one version, each directly into its destination: [`get_many`](Self::get_many)
    /// without a buffer of its own.
    ///
    /// ```
    /// # let node = ddssd::EphemeralNode::start()?;
    /// # let client = ddss::Client::connect_with(ddss::ConnectOptions::new().directory(node.directory()))?;
    /// # let table = client.segment("table").allocate(4096)?;
    /// let (mut head, mut tail) = ([0; 8], [0; 96]);
    /// let stamp = table.get_many_into(&mut [(0, &mut head), (4000, &mut tail)])?;
    /// println!("both are of {}", stamp.version);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub async fn get_many_into(&self, parts: &mut [(u64, &mut [u8])]) -> Result<Stamp, Error> {
        let ranges = self.location().check_many("get", bounds_of(parts))?;
        let table = ranges.encode();
        let plan = self.location().plan_get_many(&table, &ranges, |reply, at| fill(parts, reply, at));
        self.client().execute(self.time(), plan).await
    }

    /// Writes several ranges as one version: every get sees all of them or none. Where ranges overlap, the later
    /// one wins.
    pub async fn put_many(&self, parts: &[(u64, &[u8])]) -> Result<Stamp, Error> {
        self.put_many_with(parts, self.location().put_conditions(None)).await
    }

    pub(crate) async fn put_many_with(
        &self,
        parts: &[(u64, &[u8])],
        conditions: PutConditions,
    ) -> Result<Stamp, Error> {
        let ends = parts.iter().map(|&(offset, bytes)| (offset, u128::from(offset) + bytes.len() as u128));
        let ranges = self.location().check_many("put", ends)?;
        self.client().execute(self.time(), self.location().plan_put_many(&ranges, parts, conditions)).await
    }
}
