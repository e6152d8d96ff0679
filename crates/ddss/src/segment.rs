//! The handle of a segment: get, put, release.

use crate::api::local_read::{LocalReadRules, MappedSegment};
use crate::async_client::AsyncSegment;
use crate::calls::calls;
use crate::client::Client;
use crate::deadline::Deadline;
use crate::error::Error;
use crate::plan::{CallPlan, Decoder, Outgoing, PlannedCall};
use crate::session::Inner;
use crate::value::{Stamp, Value};
use ddss_core::limits::{INLINE_REPLY_BYTES_MAX, TRANSFER_BYTES_MAX};
use ddss_core::{
    ArenaRange, Completion, Failure, LockToken, Model, OpenedSegment, Operation, Payload, PutConditions, ReadOptions,
    SegmentId, Version,
};
use std::ops::{Bound, RangeBounds};
use std::sync::Arc;
use std::time::Duration;

/// State of a handle: the segment's identity and the options of its calls.
#[derive(Clone, Debug)]
pub(crate) struct SegmentLocation {
    pub(crate) name: Arc<str>,
    pub(crate) id: SegmentId,
    pub(crate) bytes: u64,
    /// The model that calls ask for.
    pub(crate) requested_model: Option<Model>,
    /// Timeout of the handle's calls, if it differs from the client's.
    pub(crate) timeout: Option<Duration>,
    mapped: Option<Arc<MappedSegment>>,
    /// Rules for the handle's local reads.
    rules: LocalReadRules,
}

impl SegmentLocation {
    pub(crate) fn new(client: &Inner, name: &str, opened: OpenedSegment) -> Self {
        let mapped = if client.local_reads { MappedSegment::map(client, &opened).map(Arc::new) } else { None };
        let (id, bytes, rules) = (opened.segment, opened.bytes, LocalReadRules::None);
        Self { name: name.into(), id, bytes, requested_model: None, timeout: None, mapped, rules }.with_model(None)
    }

    /// Returns a handle whose calls ask for this model.
    pub(crate) fn with_model(&self, requested_model: Option<Model>) -> Self {
        let rules = self.mapped.as_ref().map_or(LocalReadRules::None, |mapped| mapped.rules(requested_model));
        Self { requested_model, rules, ..self.clone() }
    }

    /// Returns a handle whose calls have this timeout.
    pub(crate) fn with_timeout(&self, timeout: Duration) -> Self {
        Self { timeout: Some(timeout), ..self.clone() }
    }

    /// Returns true if a local read is worth an attempt.
    pub(crate) fn can_read_locally(&self) -> bool {
        self.rules != LocalReadRules::None
    }

    /// Reads a range in place; `None` if the daemon has to serve the get, or the range is invalid.
    #[inline]
    pub(crate) fn read_locally(&self, offset: u64, into: &mut [u8]) -> Option<Stamp> {
        let mapped = self.mapped.as_ref().filter(|_| into.len() <= TRANSFER_BYTES_MAX)?;
        mapped.get(self.rules, offset, into)
    }

    /// Returns the read options of a get.
    pub(crate) fn read_options(&self, version: Option<Version>) -> ReadOptions {
        ReadOptions { requested_model: self.requested_model, version }
    }

    /// Returns the conditions under which a put commits.
    pub(crate) fn put_conditions(&self, version: Option<Version>, token: Option<LockToken>) -> PutConditions {
        // Delta and Temporal set no condition for a put.
        let requested_model =
            self.requested_model.filter(|model| !matches!(model, Model::Delta(_) | Model::Temporal(_)));
        PutConditions { version, token, requested_model }
    }

    /// Returns offset and length of a range to read.
    pub(crate) fn place(&self, range: impl RangeBounds<u64>) -> Result<(u64, usize), Error> {
        let (offset, end) = bounds(range, self.bytes);
        Ok((offset, self.check("get", offset, end)?))
    }

    /// Checks a range before anything is sent; no sum here can overflow.
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

    /// Plans a get of a range that was checked.
    #[inline]
    pub(crate) fn plan_get(&self, offset: u64, length: usize, version: Option<Version>) -> CallPlan<'_> {
        let (segment, into, inline) = (self.id, ArenaRange::NOWHERE, length <= INLINE_REPLY_BYTES_MAX);
        let operation = Operation::Get { segment, offset, into, inline, options: self.read_options(version) };
        self.plan("get", operation).receives(length)
    }

    /// Plans a get, and decodes its reply into the caller's bytes.
    #[inline]
    pub(crate) fn get<'a>(
        &'a self,
        offset: u64,
        into: &'a mut [u8],
        version: Option<Version>,
    ) -> Result<PlannedCall<'a, impl Decoder<Stamp>>, Error> {
        let length = self.check("get", offset, u128::from(offset) + into.len() as u128)?;
        Ok(self.plan_get(offset, length, version).returns(|completion, reply| {
            reply.read(0, into);
            Stamp::of(completion)
        }))
    }

    /// Plans a put of a range that was checked.
    #[inline]
    pub(crate) fn plan_put<'a>(&'a self, offset: u64, bytes: &'a [u8], conditions: PutConditions) -> CallPlan<'a> {
        let inline = Payload::inline(bytes).filter(|_| conditions.allow_inline());
        let outgoing = Outgoing::Bytes(if inline.is_some() { &[] } else { bytes });
        let (segment, from) = (self.id, inline.unwrap_or(Payload::Arena(ArenaRange::NOWHERE)));
        self.plan("put", Operation::Put { segment, offset, from, conditions }).sends(outgoing)
    }

    /// Plans a put.
    #[inline]
    pub(crate) fn put<'a>(
        &'a self,
        offset: u64,
        bytes: &'a [u8],
        conditions: PutConditions,
    ) -> Result<PlannedCall<'a, impl Decoder<Stamp>>, Error> {
        self.check("put", offset, u128::from(offset) + bytes.len() as u128)?;
        Ok(self.plan_put(offset, bytes, conditions).returns(|completion, _| Stamp::of(completion)))
    }

    /// Plans an operation without bytes.
    #[inline]
    pub(crate) fn plan(&self, action: &'static str, operation: Operation) -> CallPlan<'_> {
        CallPlan::new(action, &self.name, operation)
    }
}

/// Returns the first byte of a range and the end behind its last.
fn bounds(range: impl RangeBounds<u64>, bytes: u64) -> (u64, u128) {
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
/// # let node = ddssd::EphemeralNode::start()?;
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
    location: SegmentLocation,
}

impl Segment {
    /// Maximum bytes that one get or put moves.
    pub const TRANSFER_BYTES_MAX: usize = TRANSFER_BYTES_MAX;

    /// Returns a handle whose calls ask for at least this model, each by itself. A call never gets less than the
    /// segment's own model: asking for a weaker model changes nothing.
    ///
    /// ```
    /// # let node = ddssd::EphemeralNode::start()?;
    /// # let client = ddss::Client::builder().folder(node.folder()).connect()?;
    /// # let spec = ddss::Spec { model: ddss::Model::Temporal(100_000), ..ddss::Spec::new(64) };
    /// # let prices = client.allocate("prices", spec)?;
    /// // The segment allows a copy of up to 100 ms; this once it has to be the newest value.
    /// let now = prices.with_model(ddss::Model::Strict).get(..)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn with_model(&self, model: Model) -> Self {
        Self::at(self.client().clone(), self.location().with_model(Some(model)))
    }

    /// Returns a handle whose calls have this timeout instead of [`ClientBuilder::timeout`]. It holds for all calls
    /// of the handle and of the locks that it takes; a [`Batch`] has its client's timeout. A call with more than
    /// 600 s fails with [`Error::BadArgument`].
    ///
    /// ```
    /// # use ddss::Failure;
    /// # use std::time::Duration;
    /// # let node = ddssd::EphemeralNode::start()?;
    /// # let client = ddss::Client::builder().folder(node.folder()).connect()?;
    /// # let scores = client.allocate("scores", ddss::Spec::new(64))?;
    /// let hasty = scores.with_timeout(Duration::from_millis(20));
    /// let nothing_new = hasty.wait_newer_than(hasty.get(0..8)?.version()).expect_err("nobody puts anything");
    /// assert_eq!(nothing_new.failure(), Some(Failure::TimedOut));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// [`ClientBuilder::timeout`]: crate::ClientBuilder::timeout
    /// [`Batch`]: crate::Batch
    #[must_use]
    pub fn with_timeout(&self, timeout: Duration) -> Self {
        Self::at(self.client().clone(), self.location().with_timeout(timeout))
    }

    pub(crate) fn at(client: Client, location: SegmentLocation) -> Self {
        Self { client, location }
    }

    pub(crate) fn client(&self) -> &Client {
        &self.client
    }

    pub(crate) fn location(&self) -> &SegmentLocation {
        &self.location
    }

    /// Returns the deadline of a call of this handle.
    pub(crate) fn time(&self) -> Deadline {
        Deadline::of(self.location.timeout.unwrap_or(self.client.0.timeout))
    }
}

calls! {
    impl Segment, AsyncSegment {
        /// Returns the segment's name.
        pub fn name(&self) -> &str {
            &self.location().name
        }

        /// Returns the segment's id, which is never reused.
        pub fn id(&self) -> SegmentId {
            self.location().id
        }

        /// Returns the segment's size in bytes.
        pub fn bytes(&self) -> u64 {
            self.location().bytes
        }
    }
}

calls! {
    impl Segment, AsyncSegment {
        /// Reads a range atomically: all bytes are of the version that comes with them.
        pub async fn get(&self, range: impl RangeBounds<u64>) -> Result<Value, Error> {
            let (offset, length) = self.location().place(range)?;
            let mut bytes = vec![0; length];
            let stamp = wait!(self.get_into(offset, &mut bytes))?;
            Ok(Value::new(bytes, stamp))
        }

        /// Reads a range of an earlier committed version. The segment's history must still contain it
        /// ([`Spec::history`](crate::Spec), or the `x` of [`Model::Delta`]); otherwise the call fails with
        /// [`Failure::VersionGone`]. A version that the segment has not reached fails with
        /// [`Failure::VersionMismatch`].
        pub async fn get_at(&self, version: Version, range: impl RangeBounds<u64>) -> Result<Value, Error> {
            let (offset, length) = self.location().place(range)?;
            let mut bytes = vec![0; length];
            let plan = self.location().get(offset, &mut bytes, Some(version))?;
            let stamp = wait!(self.client().run(self.time(), plan))?;
            Ok(Value::new(bytes, stamp))
        }

        /// Reads `into.len()` bytes atomically.
        #[inline]
        pub async fn get_into(&self, offset: u64, into: &mut [u8]) -> Result<Stamp, Error> {
            wait!(self.get_by(self.time(), offset, into))
        }

        /// Reads with this deadline.
        #[inline]
        pub(crate) async fn get_by(&self, time: Deadline, offset: u64, into: &mut [u8]) -> Result<Stamp, Error> {
            match self.location().read_locally(offset, into) {
                Some(stamp) => Ok(stamp),
                None => wait!(self.client().run(time, self.location().get(offset, into, None)?)),
            }
        }

        /// Writes bytes atomically: no get ever sees a part of them.
        pub async fn put(&self, offset: u64, bytes: &[u8]) -> Result<Stamp, Error> {
            wait!(self.put_by(self.time(), offset, bytes, self.location().put_conditions(None, None)))
        }

        /// Writes bytes if the segment still has that version. Otherwise the put does nothing and fails with
        /// [`Failure::VersionMismatch`].
        pub async fn put_if(&self, version: Version, offset: u64, bytes: &[u8]) -> Result<Stamp, Error> {
            wait!(self.put_by(self.time(), offset, bytes, self.location().put_conditions(Some(version), None)))
        }

        /// Writes with this deadline, under these conditions.
        pub(crate) async fn put_by(&self, time: Deadline, offset: u64, bytes: &[u8], conditions: PutConditions)
            -> Result<Stamp, Error>
        {
            wait!(self.client().run(time, self.location().put(offset, bytes, conditions)?))
        }

        /// Frees the segment in the whole cluster: its name is unused and every handle is stale. Only its owner and
        /// root may do so.
        pub async fn release(self) -> Result<(), Error> {
            wait!(self.run_operation("release", Operation::Release { segment: self.id() }, |_| ()))
        }

        /// Runs an operation that carries no bytes.
        pub(crate) async fn run_operation<T: Send>(
            &self,
            action: &'static str,
            operation: Operation,
            decode: impl Fn(&Completion) -> T + Send,
        ) -> Result<T, Error> {
            let call = self.location().plan(action, operation).returns(move |completion, _| decode(completion));
            wait!(self.client().run(self.time(), call))
        }
    }
}
