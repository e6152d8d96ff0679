//! Get, put and release of a [`Segment`].

use super::segment::Segment;
use super::twin;
use crate::deadline::Deadline;
use crate::error::Error;
use crate::options::{GetOptions, PutOptions};
use crate::plan::transfer::{LargeGet, LargePut, Progress};
use crate::value::{Stamp, Value};
use ddss_core::limits::TRANSFER_BYTES_MAX;
use ddss_core::{Completion, Model, Operation, PutConditions, SegmentId, Version};
use std::ops::RangeBounds;

#[twin]
impl Segment {
    /// Returns the segment's name.
    pub fn name(&self) -> &str {
        &self.location().name
    }

    /// Returns the segment's id, which is never reused.
    pub fn id(&self) -> SegmentId {
        self.location().id
    }

    /// Returns the segment's size in bytes, which is never zero.
    #[allow(clippy::len_without_is_empty, reason = "no segment is empty")]
    pub fn len(&self) -> u64 {
        self.location().bytes
    }

    /// Reads a range atomically: all bytes are of the version that comes with them. A range of more than
    /// [`TRANSFER_BYTES_MAX`](Self::TRANSFER_BYTES_MAX) bytes is read in parts, again from the start when a put comes
    /// between, and fails with [`ErrorKind::Contended`](crate::ErrorKind::Contended) if every attempt met one.
    pub async fn get(&self, range: impl RangeBounds<u64>) -> Result<Value, Error> {
        let (offset, length) = self.location().place(range)?;
        let mut bytes = vec![0; length];
        let stamp = self.get_into(offset, &mut bytes).await?;
        Ok(Value::new(bytes, stamp))
    }

    /// Reads a range with these options.
    pub async fn get_with(&self, range: impl RangeBounds<u64>, options: GetOptions<'_>) -> Result<Value, Error> {
        let GetOptions { at_version: version, newer_than, progress } = options;
        let (offset, length) = self.location().place(range)?;
        let (mut bytes, mut time) = (vec![0; length], self.time());
        if let Some(known) = newer_than {
            time = time.started();
            self.wait_by(time, known).await?;
        }
        let mut none = |_, _| ();
        let progress: &mut Progress<'_> = match progress {
            Some(progress) => progress,
            None => &mut none,
        };
        let read = if version.is_none() { self.get_in_place(offset, &mut bytes).await } else { None };
        let mut stamp = match read {
            Some(stamp) => {
                progress(length as u64, length as u64);
                stamp
            }
            None => self.get_large(time, &mut bytes, LargeGet { offset, version, progress }).await?,
        };
        if version.is_none() && newer_than.is_some_and(|known| stamp.version <= known) {
            // A read cache that is fresh enough for the model may be older than the awaited version.
            stamp = self.with_model(Model::Write).get_by(time, offset, &mut bytes).await?;
        }
        Ok(Value::new(bytes, stamp))
    }

    /// Reads `into.len()` bytes atomically.
    #[inline(always)]
    pub async fn get_into(&self, offset: u64, into: &mut [u8]) -> Result<Stamp, Error> {
        match self.get_in_place(offset, into).await {
            Some(stamp) => Ok(stamp),
            // A read in place needs no deadline: to compute it first would cost some of its few instructions.
            None => self.get_from_daemon(self.time(), offset, into).await,
        }
    }

    /// Reads with this deadline.
    #[inline]
    pub(crate) async fn get_by(&self, time: Deadline, offset: u64, into: &mut [u8]) -> Result<Stamp, Error> {
        match self.get_in_place(offset, into).await {
            Some(stamp) => Ok(stamp),
            None => self.get_from_daemon(time, offset, into).await,
        }
    }

    /// Reads in place; `None` if the daemon has to serve the get.
    #[inline(always)]
    async fn get_in_place(&self, offset: u64, into: &mut [u8]) -> Option<Stamp> {
        let stamp = self.location().read_locally(offset, into)?;
        self.spend_budget(1, into.len()).await;
        Some(stamp)
    }

    /// Reads with this deadline what cannot be read in place. Never inlined: a read in place has few instructions.
    #[inline(never)]
    async fn get_from_daemon(&self, time: Deadline, offset: u64, into: &mut [u8]) -> Result<Stamp, Error> {
        if into.len() > TRANSFER_BYTES_MAX {
            return self.get_large(time, into, LargeGet { offset, version: None, progress: &mut |_, _| () }).await;
        }
        self.client().execute(time, self.location().get(offset, into, None)?).await
    }

    /// Writes bytes atomically: no get ever sees a part of them. More than
    /// [`TRANSFER_BYTES_MAX`](Self::TRANSFER_BYTES_MAX) bytes are sent in parts and committed once.
    pub async fn put(&self, offset: u64, bytes: &[u8]) -> Result<Stamp, Error> {
        self.put_by(self.time(), offset, bytes, self.location().put_conditions(None)).await
    }

    /// Writes bytes if the segment still has that version. Otherwise the put does nothing and fails with
    /// [`ErrorKind::VersionMismatch`](crate::ErrorKind::VersionMismatch).
    pub async fn put_if(&self, version: Version, offset: u64, bytes: &[u8]) -> Result<Stamp, Error> {
        self.put_by(self.time(), offset, bytes, self.location().put_conditions(Some(version))).await
    }

    /// Writes bytes with these options; several ranges as one version, like [`put_many`](Self::put_many).
    pub async fn put_with(&self, parts: &[(u64, &[u8])], options: PutOptions<'_>) -> Result<Stamp, Error> {
        let conditions = self.location().put_conditions(options.if_version);
        self.put_parts(parts, conditions, options.progress).await
    }

    pub(crate) async fn put_parts(
        &self,
        parts: &[(u64, &[u8])],
        conditions: PutConditions,
        progress: Option<&mut Progress<'_>>,
    ) -> Result<Stamp, Error> {
        let mut none = |_, _| ();
        let progress: &mut Progress<'_> = match progress {
            Some(progress) => progress,
            None => &mut none,
        };
        if let &[(offset, bytes)] = parts {
            return self.put_large(self.time(), bytes, LargePut { offset, conditions, progress }).await;
        }
        let stamp = self.put_many_with(parts, conditions).await?;
        let total = parts.iter().map(|(_, bytes)| bytes.len() as u64).sum();
        progress(total, total);
        Ok(stamp)
    }

    /// Writes with this deadline, under these conditions.
    pub(crate) async fn put_by(
        &self,
        time: Deadline,
        offset: u64,
        bytes: &[u8],
        conditions: PutConditions,
    ) -> Result<Stamp, Error> {
        if bytes.len() > TRANSFER_BYTES_MAX {
            return self.put_large(time, bytes, LargePut { offset, conditions, progress: &mut |_, _| () }).await;
        }
        self.client().execute(time, self.location().put(offset, bytes, conditions)?).await
    }

    /// Frees the segment in the whole cluster: its name is unused and every handle is stale. Only its owner and
    /// root may do so.
    pub async fn release(&self) -> Result<(), Error> {
        self.run_operation("release", Operation::Release { segment: self.id() }, |_| ()).await
    }

    /// Runs an operation that carries no bytes.
    pub(crate) async fn run_operation<T: Send>(
        &self,
        action: &'static str,
        operation: Operation,
        decode: impl Fn(&Completion) -> T + Send,
    ) -> Result<T, Error> {
        let call = self.location().plan(action, operation).returns(move |completion, _| decode(completion));
        self.client().execute(self.time(), call).await
    }
}
