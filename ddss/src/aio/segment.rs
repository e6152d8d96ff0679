//! A segment whose calls are futures.

use super::call::{Make, Plan};
use super::client::{AsyncClient, bare};
use crate::error::Error;
use crate::segment::{Place, bounds};
use crate::value::{Stamp, Value};
use ddss_core::limits::INLINE_REPLY_BYTES_MAX;
use ddss_core::{Opened, Operation, Payload, SegmentId, Terms};
use std::ops::RangeBounds;

/// A [`Segment`](crate::Segment) whose calls are futures. Cheap to clone; dropping it changes nothing.
///
/// ```no_run
/// # async fn example() -> Result<(), ddss::Error> {
/// let scores = ddss::Client::connect()?.to_async()?.open("scores").await?;
/// let value = scores.get(0..8).await?;
/// println!("{:?} of {}", &value[..], value.version());
/// # Ok(())
/// # }
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
        let plan = Plan { offset, incoming, ..bare(self.place.id) };
        let make: Make = |into, plan| Operation::Get {
            segment: plan.segment,
            offset: plan.offset,
            into,
            inline: plan.incoming <= INLINE_REPLY_BYTES_MAX,
        };
        let (completion, bytes) = self.client.call("get", &self.place.name, plan, make).await?;
        Ok(Value::new(bytes, Stamp::of(&completion)))
    }

    /// Writes bytes, as a whole: [`Segment::put`](crate::Segment::put). They are copied before the first wait.
    pub async fn put(&self, offset: u64, bytes: &[u8]) -> Result<Stamp, Error> {
        self.place.check("put", offset, u128::from(offset) + bytes.len() as u128)?;
        let inline = Payload::inline(bytes);
        let outgoing = if inline.is_some() { Vec::new() } else { bytes.to_vec() };
        let plan = Plan { offset, outgoing, inline, ..bare(self.place.id) };
        let make: Make = |range, plan| Operation::Put {
            segment: plan.segment,
            offset: plan.offset,
            from: plan.inline.unwrap_or(Payload::Arena(range)),
            terms: Terms::default(),
        };
        let (completion, _) = self.client.call("put", &self.place.name, plan, make).await?;
        Ok(Stamp::of(&completion))
    }

    /// Takes the segment away from everybody: [`Segment::release`](crate::Segment::release).
    pub async fn release(self) -> Result<(), Error> {
        let make: Make = |_, plan| Operation::Release { segment: plan.segment };
        self.client.call("release", &self.place.name, bare(self.place.id), make).await.map(drop)
    }
}
