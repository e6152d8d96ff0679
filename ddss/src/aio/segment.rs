//! A segment whose calls are futures.

use super::call::{Plan, as_given};
use super::client::{AsyncClient, bare};
use crate::error::Error;
use crate::segment::{Place, bounds};
use crate::value::{Stamp, Value};
use ddss_core::limits::INLINE_REPLY_BYTES_MAX;
use ddss_core::{ArenaRange, Opened, Operation, Payload, SegmentId};
use std::ops::RangeBounds;

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
    place: Place,
}

impl AsyncSegment {
    pub(super) fn new(client: AsyncClient, name: &str, opened: Opened) -> Self {
        let place = Place::new(&client.blocking().0, name, opened);
        Self { client, place }
    }

    pub(super) fn at(client: AsyncClient, place: Place) -> Self {
        Self { client, place }
    }

    pub(super) fn client(&self) -> &AsyncClient {
        &self.client
    }

    pub(super) fn place(&self) -> &Place {
        &self.place
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
        let incoming = self.place.check("get", offset, end)?;
        if self.place.is_near() {
            let mut bytes = vec![0; incoming];
            if let Some(stamp) = self.place.get_near(offset, &mut bytes) {
                return Ok(Value::new(bytes, stamp));
            }
        }
        let (segment, into, inline) = (self.place.id, ArenaRange::NOWHERE, incoming <= INLINE_REPLY_BYTES_MAX);
        let operation = Operation::Get { segment, offset, into, inline, look: self.place.look(None) };
        let plan = Plan { incoming, operation, ..bare() };
        let (completion, bytes) = self.client.call("get", &self.place.name, plan, as_given).await?;
        Ok(Value::new(bytes, Stamp::of(&completion)))
    }

    /// Reads as many bytes as `into` has, as a whole: [`Segment::get_into`](crate::Segment::get_into).
    pub async fn get_into(&self, offset: u64, into: &mut [u8]) -> Result<Stamp, Error> {
        if let Some(stamp) = self.place.get_near(offset, into) {
            return Ok(stamp);
        }
        let end = u128::from(offset) + into.len() as u128;
        self.place.check("get", offset, end)?;
        let value = self.get(offset..offset + into.len() as u64).await?;
        into.copy_from_slice(&value);
        Ok(value.stamp())
    }

    /// Writes bytes, as a whole: [`Segment::put`](crate::Segment::put). They are copied before the first wait.
    pub async fn put(&self, offset: u64, bytes: &[u8]) -> Result<Stamp, Error> {
        self.place.check("put", offset, u128::from(offset) + bytes.len() as u128)?;
        let inline = Payload::inline(bytes);
        let outgoing = if inline.is_some() { Vec::new() } else { bytes.to_vec() };
        let (segment, from) = (self.place.id, inline.unwrap_or(Payload::Arena(ArenaRange::NOWHERE)));
        let operation = Operation::Put { segment, offset, from, terms: self.place.terms(None, None) };
        let plan = Plan { outgoing, operation, ..bare() };
        let (completion, _) = self.client.call("put", &self.place.name, plan, as_given).await?;
        Ok(Stamp::of(&completion))
    }

    /// Takes the segment away from everybody: [`Segment::release`](crate::Segment::release).
    pub async fn release(self) -> Result<(), Error> {
        let plan = Plan { operation: Operation::Release { segment: self.place.id }, ..bare() };
        self.client.call("release", &self.place.name, plan, as_given).await.map(drop)
    }
}
