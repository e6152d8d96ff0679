//! A handle to a segment: get, put, release.

use crate::api::local_read::{LocalReadRules, MappedSegment};
use crate::call::priority::Priority;
use crate::client::Client;
use crate::deadline::Deadline;
use crate::error::Error;
use crate::session::Inner;
use crate::value::{Stamp, Value};
use ddss_core::limits::{INLINE_REPLY_BYTES_MAX, TRANSFER_BYTES_MAX};
use ddss_core::{
    Failure, LockToken, Model, OpenedSegment, Operation, Outcome, Payload, PutConditions, ReadOptions, SegmentId,
    Version,
};
use ddss_ipc::WaitClass;
use std::ops::{Bound, RangeBounds};
use std::sync::Arc;
use std::time::Duration;

/// What a handle knows of its segment.
#[derive(Clone, Debug)]
pub(crate) struct SegmentLocation {
    pub(crate) name: Arc<str>,
    pub(crate) id: SegmentId,
    pub(crate) bytes: u64,
    /// The model that calls ask for.
    pub(crate) asks: Option<Model>,
    /// How long its calls may take, if that is not as usual.
    pub(crate) within: Option<Duration>,
    near: Option<Arc<MappedSegment>>,
    /// How its gets look there.
    sight: LocalReadRules,
}

impl SegmentLocation {
    pub(crate) fn new(client: &Inner, name: &str, opened: OpenedSegment) -> Self {
        let near = if client.near { MappedSegment::map(client, &opened).map(Arc::new) } else { None };
        let (id, bytes, sight) = (opened.segment, opened.bytes, LocalReadRules::None);
        Self { name: name.into(), id, bytes, asks: None, within: None, near, sight }.asking(None)
    }

    /// The same segment with calls that ask for that.
    pub(crate) fn asking(&self, asks: Option<Model>) -> Self {
        let sight = self.near.as_ref().map_or(LocalReadRules::None, |near| near.sight(asks));
        Self { asks, sight, ..self.clone() }
    }

    /// The same segment with calls that may take so long.
    pub(crate) fn within(&self, timeout: Duration) -> Self {
        Self { within: Some(timeout), ..self.clone() }
    }

    /// Whether reading in place is worth a try.
    pub(crate) fn is_near(&self) -> bool {
        self.sight != LocalReadRules::None
    }

    /// Reads a range in place; `None` if the daemon has to be asked, or the range is none.
    #[inline]
    pub(crate) fn get_near(&self, offset: u64, into: &mut [u8]) -> Option<Stamp> {
        let near = self.near.as_ref().filter(|_| into.len() <= TRANSFER_BYTES_MAX)?;
        near.get(self.sight, offset, into)
    }

    /// How a get looks at the segment.
    pub(crate) fn look(&self, version: Option<Version>) -> ReadOptions {
        ReadOptions { asks: self.asks, version }
    }

    /// Under what conditions a put commits.
    pub(crate) fn terms(&self, version: Option<Version>, token: Option<LockToken>) -> PutConditions {
        // Delta and Temporal ask nothing of a put.
        let asks = self.asks.filter(|model| !matches!(model, Model::Delta(_) | Model::Temporal(_)));
        PutConditions { version, token, asks }
    }

    /// Checks a range before anything is sent; no sum here can wrap.
    pub(crate) fn check(&self, action: &'static str, offset: u64, end: u128) -> Result<usize, Error> {
        let target = || self.name.to_string();
        if u128::from(offset) > end || end > u128::from(self.bytes) {
            return Err(Error::OutOfRange { action, target: target(), offset, end, bytes: self.bytes });
        }
        match usize::try_from(end - u128::from(offset)) {
            Ok(length) if length <= TRANSFER_BYTES_MAX => Ok(length),
            _ => Err(Error::Failed { action, target: target(), failure: Failure::TooLarge }),
        }
    }
}

/// The first byte of a range and the one behind its last.
pub(crate) fn bounds(range: impl RangeBounds<u64>, bytes: u64) -> (u64, u128) {
    let start = match range.start_bound() {
        Bound::Included(&start) => start,
        Bound::Excluded(&before) => before.saturating_add(1),
        Bound::Unbounded => 0,
    };
    let end = match range.end_bound() {
        Bound::Included(&last) => u128::from(last) + 1,
        Bound::Excluded(&end) => u128::from(end),
        Bound::Unbounded => u128::from(bytes),
    };
    (start, end)
}

/// A segment somewhere in the cluster. Cheap to clone; dropping it changes nothing.
///
/// ```
/// # let node = ddssd::Ephemeral::start()?;
/// # let client = ddss::Client::builder().folder(node.folder()).connect()?;
/// let scores = client.allocate("scores", ddss::Spec::new(4096))?;
/// let put = scores.put(16, &42u64.to_le_bytes())?;
/// let mut bytes = [0; 8];
/// let got = scores.get_into(16, &mut bytes)?;
/// assert_eq!((u64::from_le_bytes(bytes), got.version), (42, put.version));
/// scores.release()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Segment {
    client: Client,
    place: SegmentLocation,
}

impl Segment {
    /// Bytes that one get or put moves at the most.
    pub const TRANSFER_BYTES_MAX: usize = TRANSFER_BYTES_MAX;

    pub(crate) fn new(client: Client, name: &str, opened: OpenedSegment) -> Self {
        let place = SegmentLocation::new(&client.0, name, opened);
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

    /// The same segment with calls that ask for at least what this model promises, each by itself. A call never gets
    /// less than the segment's own model: asking for a weaker one changes nothing.
    ///
    /// ```
    /// # let node = ddssd::Ephemeral::start()?;
    /// # let client = ddss::Client::builder().folder(node.folder()).connect()?;
    /// # let spec = ddss::Spec { model: ddss::Model::Temporal(100_000), ..ddss::Spec::new(64) };
    /// # let prices = client.allocate("prices", spec)?;
    /// // The segment allows a copy of up to 100 ms; this once it has to be the newest value.
    /// let now = prices.asking(ddss::Model::Strict).get(..)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn asking(&self, model: Model) -> Self {
        Self { client: self.client.clone(), place: self.place.asking(Some(model)) }
    }

    /// The same segment with calls that have so long, each by itself, and not what [`ClientBuilder::timeout`] says. It
    /// goes for everything that is asked of the handle, and of a lock that it has taken; a [`Batch`] has its client's time. A call with more than 600 s is
    /// refused as [`Error::BadArgument`].
    ///
    /// ```
    /// # use ddss::Failure;
    /// # use std::time::Duration;
    /// # let node = ddssd::Ephemeral::start()?;
    /// # let client = ddss::Client::builder().folder(node.folder()).connect()?;
    /// # let scores = client.allocate("scores", ddss::Spec::new(64))?;
    /// let hasty = scores.within(Duration::from_millis(20));
    /// let nothing_new = hasty.wait_newer_than(hasty.get(0..8)?.version()).expect_err("nobody puts anything");
    /// assert_eq!(nothing_new.failure(), Some(Failure::TimedOut));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// [`ClientBuilder::timeout`]: crate::ClientBuilder::timeout
    /// [`Batch`]: crate::Batch
    #[must_use]
    pub fn within(&self, timeout: Duration) -> Self {
        Self { client: self.client.clone(), place: self.place.within(timeout) }
    }

    /// The time of one of its calls.
    pub(crate) fn time(&self) -> Deadline {
        Deadline::of(self.place.within.unwrap_or(self.client.0.timeout))
    }

    /// Reads a range, as a whole: all bytes are of the version that comes with them.
    pub fn get(&self, range: impl RangeBounds<u64>) -> Result<Value, Error> {
        self.get_value(self.time(), range, None)
    }

    /// Reads a range of a version that was committed before. It has to be among those that the segment keeps
    /// ([`Spec::history`](crate::Spec), or the `x` of [`Model::Delta`]): else
    /// [`Failure::VersionGone`], and [`Failure::VersionMismatch`] if the segment has not come so far.
    pub fn get_at(&self, version: Version, range: impl RangeBounds<u64>) -> Result<Value, Error> {
        self.get_value(self.time(), range, Some(version))
    }

    pub(crate) fn get_value(
        &self,
        time: Deadline,
        range: impl RangeBounds<u64>,
        version: Option<Version>,
    ) -> Result<Value, Error> {
        let (start, end) = bounds(range, self.place.bytes);
        let length = self.place.check("get", start, end)?;
        let mut bytes = vec![0; length];
        let stamp = match version {
            None => self.get_by(time, start, &mut bytes)?,
            Some(_) => self.get_on(time, start, &mut bytes, version)?,
        };
        Ok(Value::new(bytes, stamp))
    }

    /// Reads as many bytes as `into` has, as a whole.
    #[inline]
    pub fn get_into(&self, offset: u64, into: &mut [u8]) -> Result<Stamp, Error> {
        match self.place.get_near(offset, into) {
            Some(stamp) => Ok(stamp),
            None => self.get_on(self.time(), offset, into, None),
        }
    }

    /// The same, in that time.
    pub(crate) fn get_by(&self, time: Deadline, offset: u64, into: &mut [u8]) -> Result<Stamp, Error> {
        match self.place.get_near(offset, into) {
            Some(stamp) => Ok(stamp),
            None => self.get_on(time, offset, into, None),
        }
    }

    fn get_on(&self, time: Deadline, offset: u64, into: &mut [u8], version: Option<Version>) -> Result<Stamp, Error> {
        let length = self.place.check("get", offset, u128::from(offset) + into.len() as u128)?;
        let (outcome, stamp) =
            self.client.with_call(time, Priority::Call, "get", &self.place.name, true, |mut call| {
                let buffer = call.buffer(length)?;
                let range = buffer.range(length);
                let inline = length <= INLINE_REPLY_BYTES_MAX;
                let look = self.place.look(version);
                let operation = Operation::Get { segment: self.place.id, offset, into: range, inline, look };
                let (outcome, completion, ()) = Client::polling(call, operation, Some(buffer), |completion, arena| {
                    if completion.outcome != Outcome::Done {
                    } else if completion.inline {
                        into.copy_from_slice(&completion.data[..length]);
                    } else {
                        arena.read(range.offset() as usize, into).expect("a buffer lies inside the arena");
                    }
                })?;
                Ok((outcome, Stamp::of(&completion)))
            })?;
        Error::of(outcome, "get", &self.place.name)?;
        Ok(stamp)
    }

    /// Writes bytes, as a whole: no get ever sees a part of them.
    pub fn put(&self, offset: u64, bytes: &[u8]) -> Result<Stamp, Error> {
        self.put_on(offset, bytes, self.place.terms(None, None))
    }

    pub(crate) fn put_on(&self, offset: u64, bytes: &[u8], terms: PutConditions) -> Result<Stamp, Error> {
        self.put_by(self.time(), offset, bytes, terms)
    }

    pub(crate) fn put_by(
        &self,
        time: Deadline,
        offset: u64,
        bytes: &[u8],
        terms: PutConditions,
    ) -> Result<Stamp, Error> {
        let length = self.place.check("put", offset, u128::from(offset) + bytes.len() as u128)?;
        let priority = Priority::under(terms.token);
        let (outcome, stamp) = self.client.with_call(time, priority, "put", &self.place.name, false, |mut call| {
            let small = Payload::inline(bytes).filter(|_| terms.allow_inline());
            let (from, buffer) = if let Some(inline) = small {
                (inline, None)
            } else {
                let buffer = call.buffer(length)?;
                let range = buffer.range(length);
                call.write(range.offset(), bytes);
                (Payload::Arena(range), Some(buffer))
            };
            let operation = Operation::Put { segment: self.place.id, offset, from, terms };
            let (outcome, completion, ()) = Client::polling(call, operation, buffer, |_, _| ())?;
            Ok((outcome, Stamp::of(&completion)))
        })?;
        Error::of(outcome, "put", &self.place.name)?;
        Ok(stamp)
    }

    pub(crate) fn client(&self) -> &Client {
        &self.client
    }

    pub(crate) fn place(&self) -> &SegmentLocation {
        &self.place
    }

    /// Takes the segment away from everybody: its name is free, every handle to it is stale. Only its owner and root
    /// may.
    pub fn release(self) -> Result<(), Error> {
        let operation = Operation::Release { segment: self.place.id };
        let (time, name) = (self.time(), &self.place.name);
        let outcome = self.client.with_call(time, Priority::Call, "release", name, false, |call| {
            call.run(operation, None, WaitClass::Sleeping, |completion, _| completion.outcome)
        })?;
        Error::of(outcome, "release", &self.place.name)
    }
}
