//! A segment whose calls are futures.

use super::call::{Brought, Outgoing, Plan, as_given};
use super::client::{AsyncClient, bare};
use crate::error::Error;
use crate::segment::{Place, bounds};
use crate::value::{Stamp, Value};
use ddss_core::limits::INLINE_REPLY_BYTES_MAX;
use ddss_core::{ArenaRange, Opened, Operation, Payload, SegmentId, Terms};
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
        let mut bytes = vec![0; incoming];
        let stamp = self.get_far(offset, &mut bytes).await?;
        Ok(Value::new(bytes, stamp))
    }

    /// Reads as many bytes as `into` has, as a whole: [`Segment::get_into`](crate::Segment::get_into). They are copied
    /// when they are there: a future that is dropped leaves `into` as it was.
    pub async fn get_into(&self, offset: u64, into: &mut [u8]) -> Result<Stamp, Error> {
        if let Some(stamp) = self.place.get_near(offset, into) {
            return Ok(stamp);
        }
        let end = u128::from(offset) + into.len() as u128;
        self.place.check("get", offset, end)?;
        self.get_far(offset, into).await
    }

    /// Asks the daemon for bytes that were checked to be there.
    async fn get_far(&self, offset: u64, bytes: &mut [u8]) -> Result<Stamp, Error> {
        let incoming = bytes.len();
        let (segment, into, inline) = (self.place.id, ArenaRange::NOWHERE, incoming <= INLINE_REPLY_BYTES_MAX);
        let operation = Operation::Get { segment, offset, into, inline, look: self.place.look(None) };
        let plan = Plan { incoming, operation, ..bare() };
        let mut take = |brought: &Brought<'_>| brought.read(0, bytes);
        self.client.call("get", &self.place.name, plan, as_given, &mut take).await.map(|done| Stamp::of(&done))
    }

    /// Writes bytes, as a whole: [`Segment::put`](crate::Segment::put). They are copied when there is room for them.
    pub async fn put(&self, offset: u64, bytes: &[u8]) -> Result<Stamp, Error> {
        self.put_on(offset, bytes, self.place.terms(None, None)).await
    }

    pub(super) async fn put_on(&self, offset: u64, bytes: &[u8], terms: Terms) -> Result<Stamp, Error> {
        self.place.check("put", offset, u128::from(offset) + bytes.len() as u128)?;
        let inline = Payload::inline(bytes).filter(|_| terms.allow_inline());
        let outgoing = Outgoing::Bytes(if inline.is_some() { &[] } else { bytes });
        let (segment, from) = (self.place.id, inline.unwrap_or(Payload::Arena(ArenaRange::NOWHERE)));
        let operation = Operation::Put { segment, offset, from, terms };
        let plan = Plan { outgoing, operation, ..bare() };
        let done = self.client.call("put", &self.place.name, plan, as_given, &mut |_| {}).await?;
        Ok(Stamp::of(&done))
    }

    /// Takes the segment away from everybody: [`Segment::release`](crate::Segment::release).
    pub async fn release(self) -> Result<(), Error> {
        let plan = Plan { operation: Operation::Release { segment: self.place.id }, ..bare() };
        self.client.call("release", &self.place.name, plan, as_given, &mut |_| {}).await.map(drop)
    }
}
