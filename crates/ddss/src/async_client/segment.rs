//! The segment handle with asynchronous calls.

use super::call::{CallPlan, Decoder, Outgoing, Reply, as_given};
use super::client::{AsyncClient, empty_plan};
use super::sleep::Pause;
use crate::deadline::deadline_in;
use crate::error::Error;
use crate::segment::{SegmentLocation, bounds};
use crate::value::{Stamp, Value};
use ddss_core::limits::INLINE_REPLY_BYTES_MAX;
use ddss_core::{ArenaRange, Completion, OpenedSegment, Operation, Payload, PutConditions, SegmentId};
use std::ops::RangeBounds;
use std::time::{Duration, Instant};

/// A [`Segment`](crate::Segment) with asynchronous calls. Cheap to clone; dropping it changes nothing.
///
/// ```
/// # let node = ddssd::EphemeralNode::start()?;
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
    location: SegmentLocation,
}

impl AsyncSegment {
    pub(super) fn new(client: AsyncClient, name: &str, opened: OpenedSegment) -> Self {
        let location = SegmentLocation::new(&client.blocking().0, name, opened);
        Self { client, location }
    }

    pub(super) fn at(client: AsyncClient, location: SegmentLocation) -> Self {
        Self { client, location }
    }

    pub(super) fn client(&self) -> &AsyncClient {
        &self.client
    }

    /// Creates a future that is ready after `time`.
    pub(crate) fn pause(&self, time: Duration) -> Pause {
        self.client.pause(time)
    }

    pub(super) fn location(&self) -> &SegmentLocation {
        &self.location
    }

    /// Returns the deadline of a call that begins now.
    pub(super) fn deadline(&self) -> Instant {
        deadline_in(self.location.timeout.unwrap_or(self.client.blocking().0.timeout))
    }

    /// Makes a call and passes its reply to `take`.
    pub(super) async fn call(
        &self,
        action: &'static str,
        plan: CallPlan<'_>,
        take: &mut Decoder<'_>,
    ) -> Result<Completion, Error> {
        self.call_by(self.deadline(), action, plan, take).await
    }

    /// Makes a call with this deadline and passes its reply to `take`.
    pub(super) async fn call_by(
        &self,
        deadline: Instant,
        action: &'static str,
        plan: CallPlan<'_>,
        take: &mut Decoder<'_>,
    ) -> Result<Completion, Error> {
        let ended = self.client.call_by(deadline, action, &self.location.name, plan, as_given, take).await;
        ended.map(|(completion, _)| completion)
    }

    /// Returns the segment's name.
    pub fn name(&self) -> &str {
        &self.location.name
    }

    /// Returns the segment's id, which is never reused.
    pub fn id(&self) -> SegmentId {
        self.location.id
    }

    /// Returns the segment's size in bytes.
    pub fn bytes(&self) -> u64 {
        self.location.bytes
    }

    /// Reads a range atomically: [`Segment::get`](crate::Segment::get).
    pub async fn get(&self, range: impl RangeBounds<u64>) -> Result<Value, Error> {
        let (offset, end) = bounds(range, self.location.bytes);
        let mut bytes = vec![0; self.location.check("get", offset, end)?];
        let stamp = self.get_by(None, offset, &mut bytes).await?;
        Ok(Value::new(bytes, stamp))
    }

    /// Reads `into.len()` bytes atomically: [`Segment::get_into`](crate::Segment::get_into). The bytes are copied at
    /// the end of the call: a future that is dropped leaves `into` unchanged.
    pub async fn get_into(&self, offset: u64, into: &mut [u8]) -> Result<Stamp, Error> {
        self.get_by(None, offset, into).await
    }

    /// Reads with this deadline, or with the usual one.
    pub(super) async fn get_by(
        &self,
        deadline: Option<Instant>,
        offset: u64,
        bytes: &mut [u8],
    ) -> Result<Stamp, Error> {
        if let Some(stamp) = self.location.read_locally(offset, bytes) {
            return Ok(stamp);
        }
        let incoming = self.location.check("get", offset, u128::from(offset) + bytes.len() as u128)?;
        let (segment, into, inline) = (self.location.id, ArenaRange::NOWHERE, incoming <= INLINE_REPLY_BYTES_MAX);
        let operation = Operation::Get { segment, offset, into, inline, options: self.location.read_options(None) };
        let plan = CallPlan { incoming, operation, ..empty_plan() };
        let deadline = deadline.unwrap_or_else(|| self.deadline());
        let mut take = |brought: &Reply<'_>| brought.read(0, bytes);
        self.call_by(deadline, "get", plan, &mut take).await.map(|done| Stamp::of(&done))
    }

    /// Writes bytes atomically: [`Segment::put`](crate::Segment::put). The bytes are copied once there is arena memory
    /// for them.
    pub async fn put(&self, offset: u64, bytes: &[u8]) -> Result<Stamp, Error> {
        self.put_with(offset, bytes, self.location.put_conditions(None, None)).await
    }

    pub(super) async fn put_with(&self, offset: u64, bytes: &[u8], conditions: PutConditions) -> Result<Stamp, Error> {
        self.put_by(self.deadline(), offset, bytes, conditions).await
    }

    pub(super) async fn put_by(
        &self,
        deadline: Instant,
        offset: u64,
        bytes: &[u8],
        conditions: PutConditions,
    ) -> Result<Stamp, Error> {
        self.location.check("put", offset, u128::from(offset) + bytes.len() as u128)?;
        let inline = Payload::inline(bytes).filter(|_| conditions.allow_inline());
        let outgoing = Outgoing::Bytes(if inline.is_some() { &[] } else { bytes });
        let (segment, from) = (self.location.id, inline.unwrap_or(Payload::Arena(ArenaRange::NOWHERE)));
        let operation = Operation::Put { segment, offset, from, conditions };
        let plan = CallPlan { outgoing, operation, ..empty_plan() };
        self.call_by(deadline, "put", plan, &mut |_| {}).await.map(|done| Stamp::of(&done))
    }

    /// Frees the segment in the whole cluster: [`Segment::release`](crate::Segment::release).
    pub async fn release(self) -> Result<(), Error> {
        let plan = CallPlan { operation: Operation::Release { segment: self.location.id }, ..empty_plan() };
        self.call("release", plan, &mut |_| {}).await.map(drop)
    }
}
