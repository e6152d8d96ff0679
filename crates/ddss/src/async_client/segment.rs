//! A segment whose calls are futures.

use super::call::{CallPlan, Decoder, Outgoing, Reply, as_given};
use super::client::{AsyncClient, bare};
use super::sleep::Pause;
use crate::deadline::deadline_in;
use crate::error::Error;
use crate::segment::{SegmentLocation, bounds};
use crate::value::{Stamp, Value};
use ddss_core::limits::INLINE_REPLY_BYTES_MAX;
use ddss_core::{ArenaRange, Completion, OpenedSegment, Operation, Payload, PutConditions, SegmentId};
use std::ops::RangeBounds;
use std::time::{Duration, Instant};

/// A [`Segment`](crate::Segment) whose calls are futures. Cheap to clone; dropping it changes nothing.
///
/// ```
/// # let node = ddssd::Ephemeral::start()?;
/// # let client = ddss::Client::builder().folder(node.folder()).connect()?;
/// # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
/// let scores = client.to_async()?.allocate("scores", ddss::Spec::new(64)).await?;
/// let put = scores.put(0, b"42").await?;
/// let value = scores.get(0..2).await?;
/// assert_eq!((&value[..], value.version()), (&b"42"[..], put.version));
/// # Ok::<(), ddss::Error>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct AsyncSegment {
    client: AsyncClient,
    place: SegmentLocation,
}

impl AsyncSegment {
    pub(super) fn new(client: AsyncClient, name: &str, opened: OpenedSegment) -> Self {
        let place = SegmentLocation::new(&client.blocking().0, name, opened);
        Self { client, place }
    }

    pub(super) fn at(client: AsyncClient, place: SegmentLocation) -> Self {
        Self { client, place }
    }

    pub(super) fn client(&self) -> &AsyncClient {
        &self.client
    }

    /// Lets some time pass.
    pub(crate) fn pause(&self, time: Duration) -> Pause {
        self.client.pause(time)
    }

    pub(super) fn place(&self) -> &SegmentLocation {
        &self.place
    }

    /// When the time of a call is over that begins now.
    pub(super) fn deadline(&self) -> Instant {
        deadline_in(self.place.within.unwrap_or(self.client.blocking().0.timeout))
    }

    /// Makes a call, and passes what it brought to `take`.
    pub(super) async fn call(
        &self,
        action: &'static str,
        plan: CallPlan<'_>,
        take: &mut Decoder<'_>,
    ) -> Result<Completion, Error> {
        self.call_by(self.deadline(), action, plan, take).await
    }

    /// The same until that time.
    pub(super) async fn call_by(
        &self,
        deadline: Instant,
        action: &'static str,
        plan: CallPlan<'_>,
        take: &mut Decoder<'_>,
    ) -> Result<Completion, Error> {
        let ended = self.client.call_by(deadline, action, &self.place.name, plan, as_given, take).await;
        ended.map(|(completion, _)| completion)
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.place.name
    }

    /// Its id, which no other segment ever has.
    pub fn id(&self) -> SegmentId {
        self.place.id
    }

    /// Its size in bytes.
    pub fn bytes(&self) -> u64 {
        self.place.bytes
    }

    /// Reads a range, as a whole: [`Segment::get`](crate::Segment::get).
    pub async fn get(&self, range: impl RangeBounds<u64>) -> Result<Value, Error> {
        let (offset, end) = bounds(range, self.place.bytes);
        let mut bytes = vec![0; self.place.check("get", offset, end)?];
        let stamp = self.get_by(None, offset, &mut bytes).await?;
        Ok(Value::new(bytes, stamp))
    }

    /// Reads as many bytes as `into` has, as a whole: [`Segment::get_into`](crate::Segment::get_into). They are copied
    /// when they are there: a future that is dropped leaves `into` as it was.
    pub async fn get_into(&self, offset: u64, into: &mut [u8]) -> Result<Stamp, Error> {
        self.get_by(None, offset, into).await
    }

    /// The same until that time, or as long as a call may take.
    pub(super) async fn get_by(
        &self,
        deadline: Option<Instant>,
        offset: u64,
        bytes: &mut [u8],
    ) -> Result<Stamp, Error> {
        if let Some(stamp) = self.place.get_near(offset, bytes) {
            return Ok(stamp);
        }
        let incoming = self.place.check("get", offset, u128::from(offset) + bytes.len() as u128)?;
        let (segment, into, inline) = (self.place.id, ArenaRange::NOWHERE, incoming <= INLINE_REPLY_BYTES_MAX);
        let operation = Operation::Get { segment, offset, into, inline, look: self.place.look(None) };
        let plan = CallPlan { incoming, operation, ..bare() };
        let deadline = deadline.unwrap_or_else(|| self.deadline());
        let mut take = |brought: &Reply<'_>| brought.read(0, bytes);
        self.call_by(deadline, "get", plan, &mut take).await.map(|done| Stamp::of(&done))
    }

    /// Writes bytes, as a whole: [`Segment::put`](crate::Segment::put). They are copied when there is room for them.
    pub async fn put(&self, offset: u64, bytes: &[u8]) -> Result<Stamp, Error> {
        self.put_on(offset, bytes, self.place.terms(None, None)).await
    }

    pub(super) async fn put_on(&self, offset: u64, bytes: &[u8], terms: PutConditions) -> Result<Stamp, Error> {
        self.put_by(self.deadline(), offset, bytes, terms).await
    }

    pub(super) async fn put_by(
        &self,
        deadline: Instant,
        offset: u64,
        bytes: &[u8],
        terms: PutConditions,
    ) -> Result<Stamp, Error> {
        self.place.check("put", offset, u128::from(offset) + bytes.len() as u128)?;
        let inline = Payload::inline(bytes).filter(|_| terms.allow_inline());
        let outgoing = Outgoing::Bytes(if inline.is_some() { &[] } else { bytes });
        let (segment, from) = (self.place.id, inline.unwrap_or(Payload::Arena(ArenaRange::NOWHERE)));
        let operation = Operation::Put { segment, offset, from, terms };
        let plan = CallPlan { outgoing, operation, ..bare() };
        self.call_by(deadline, "put", plan, &mut |_| {}).await.map(|done| Stamp::of(&done))
    }

    /// Takes the segment away from everybody: [`Segment::release`](crate::Segment::release).
    pub async fn release(self) -> Result<(), Error> {
        let plan = CallPlan { operation: Operation::Release { segment: self.place.id }, ..bare() };
        self.call("release", plan, &mut |_| {}).await.map(drop)
    }
}
