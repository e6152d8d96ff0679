//! Further asynchronous calls of a segment: versions, atomics, vectored access, metadata.

use super::call::{CallPlan, Decoder, Outgoing, Reply, as_given};
use super::client::empty_plan;
use super::segment::AsyncSegment;
use crate::api::atomics::AtomicResult;
use crate::api::metadata::{checked_mode, listings};
use crate::api::vectored::{list_bytes, split};
use crate::error::Error;
use crate::segment::bounds;
use crate::value::{Stamp, Value};
use ddss_core::limits::ARENA_SLOT_BYTES;
use ddss_core::{
    ArenaRange, AtomicOp, Completion, Failure, ListPage, Listing, LockToken, Model, Operation, PermissionUpdate,
    Principal, PutConditions, Ranges, Version,
};
use std::ops::{Range, RangeBounds};
use std::time::{Duration, Instant};

const SOMEWHERE: ArenaRange = ArenaRange::NOWHERE;

impl AsyncSegment {
    /// Returns a handle whose calls ask for at least this model: [`Segment::with_model`](crate::Segment::with_model).
    #[must_use]
    pub fn with_model(&self, model: Model) -> Self {
        Self::at(self.client().clone(), self.location().with_model(Some(model)))
    }

    /// Returns a handle whose calls have this timeout: [`Segment::with_timeout`](crate::Segment::with_timeout).
    #[must_use]
    pub fn with_timeout(&self, timeout: Duration) -> Self {
        Self::at(self.client().clone(), self.location().with_timeout(timeout))
    }

    /// Reads an earlier committed version: [`Segment::get_at`](crate::Segment::get_at).
    pub async fn get_at(&self, version: Version, range: impl RangeBounds<u64>) -> Result<Value, Error> {
        let location = self.location();
        let (offset, end) = bounds(range, location.bytes);
        let incoming = location.check("get", offset, end)?;
        let options = location.read_options(Some(version));
        let operation = Operation::Get { segment: location.id, offset, into: SOMEWHERE, inline: false, options };
        let plan = CallPlan { incoming, operation, ..empty_plan() };
        let by = self.deadline();
        let (completion, bytes) = self.client().call_for_by(by, "get", &location.name, plan, as_given).await?;
        Ok(Value::new(bytes, Stamp::of(&completion)))
    }

    /// Writes bytes if the segment still has that version: [`Segment::put_if`](crate::Segment::put_if).
    pub async fn put_if(&self, version: Version, offset: u64, bytes: &[u8]) -> Result<Stamp, Error> {
        self.put_with(offset, bytes, self.location().put_conditions(Some(version), None)).await
    }

    /// Waits until the version is above `version`, then reads:
    /// [`Segment::get_newer_than`](crate::Segment::get_newer_than).
    pub async fn get_newer_than(&self, version: Version, range: impl RangeBounds<u64>) -> Result<Value, Error> {
        let (offset, end) = bounds(range, self.bytes());
        let mut bytes = vec![0; self.location().check("get", offset, end)?];
        let deadline = self.deadline();
        self.wait_by(deadline, version).await?;
        let mut stamp = self.get_by(Some(deadline), offset, &mut bytes).await?;
        if stamp.version <= version {
            // A read cache that is fresh enough for the model may be older than the awaited version.
            stamp = self.with_model(Model::Write).get_by(Some(deadline), offset, &mut bytes).await?;
        }
        Ok(Value::new(bytes, stamp))
    }

    /// Reads several ranges of one version: [`Segment::get_many`](crate::Segment::get_many).
    pub async fn get_many(&self, ranges: &[Range<u64>]) -> Result<Vec<Value>, Error> {
        self.get_many_with(ranges, None).await
    }

    /// Reads several ranges of an earlier committed version: [`Segment::get_many_at`](crate::Segment::get_many_at).
    pub async fn get_many_at(&self, version: Version, ranges: &[Range<u64>]) -> Result<Vec<Value>, Error> {
        self.get_many_with(ranges, Some(version)).await
    }

    /// Reads several ranges of one version, each directly into its destination:
    /// [`Segment::get_many_into`](crate::Segment::get_many_into).
    pub async fn get_many_into(&self, parts: &mut [(u64, &mut [u8])]) -> Result<Stamp, Error> {
        let ends = parts.iter().map(|(offset, into)| (*offset, u128::from(*offset) + into.len() as u128));
        let ranges = self.location().check_many("get", ends)?;
        let mut take = |brought: &Reply<'_>| {
            let mut at = ARENA_SLOT_BYTES;
            for (_, into) in &mut *parts {
                brought.read(at, into);
                at += into.len();
            }
        };
        self.get_list(&ranges, None, &mut take).await
    }

    async fn get_many_with(&self, ranges: &[Range<u64>], version: Option<Version>) -> Result<Vec<Value>, Error> {
        let ends = ranges.iter().map(|range| (range.start, u128::from(range.end)));
        let ranges = self.location().check_many("get", ends)?;
        let mut bytes = vec![0; ranges.sum() as usize];
        let stamp = self.get_list(&ranges, version, &mut |brought| brought.read(ARENA_SLOT_BYTES, &mut bytes)).await?;
        Ok(split(&ranges, &bytes, stamp))
    }

    /// Reads the bytes of all ranges, after the slots that their table occupies.
    async fn get_list(
        &self,
        ranges: &Ranges,
        version: Option<Version>,
        take: &mut Decoder<'_>,
    ) -> Result<Stamp, Error> {
        let location = self.location();
        let (table, incoming) = (ranges.encode(), list_bytes(ranges.sum()));
        let (count, options) = (ranges.as_slice().len() as u8, location.read_options(version));
        let operation = Operation::GetMany { segment: location.id, list: SOMEWHERE, ranges: count, options };
        let plan = CallPlan { outgoing: Outgoing::Bytes(&table), incoming, operation, ..empty_plan() };
        let done = self.call("get", plan, take).await?;
        Ok(Stamp::of(&done))
    }

    /// Writes several ranges as one version: [`Segment::put_many`](crate::Segment::put_many).
    pub async fn put_many(&self, parts: &[(u64, &[u8])]) -> Result<Stamp, Error> {
        let conditions = self.location().put_conditions(None, None);
        self.put_many_with(parts, conditions).await
    }

    /// Writes several ranges if the segment still has that version:
    /// [`Segment::put_many_if`](crate::Segment::put_many_if).
    pub async fn put_many_if(&self, version: Version, parts: &[(u64, &[u8])]) -> Result<Stamp, Error> {
        let conditions = self.location().put_conditions(Some(version), None);
        self.put_many_with(parts, conditions).await
    }

    pub(super) async fn put_many_with(
        &self,
        parts: &[(u64, &[u8])],
        conditions: PutConditions,
    ) -> Result<Stamp, Error> {
        let location = self.location();
        let ends = parts.iter().map(|&(offset, bytes)| (offset, u128::from(offset) + bytes.len() as u128));
        let ranges = location.check_many("put", ends)?;
        let table = ranges.encode();
        let count = ranges.as_slice().len() as u8;
        let operation = Operation::PutMany { segment: location.id, list: SOMEWHERE, ranges: count, conditions };
        let plan = CallPlan { outgoing: Outgoing::Parts(&table, parts), operation, ..empty_plan() };
        let done = self.call("put", plan, &mut |_| {}).await?;
        Ok(Stamp::of(&done))
    }

    /// Adds to a word: [`Segment::fetch_add`](crate::Segment::fetch_add).
    pub async fn fetch_add(&self, offset: u64, add: u64) -> Result<AtomicResult, Error> {
        self.run_atomic("add to", offset, AtomicOp::Add(add), None).await
    }

    /// Replaces a word: [`Segment::swap`](crate::Segment::swap).
    pub async fn swap(&self, offset: u64, new: u64) -> Result<AtomicResult, Error> {
        self.run_atomic("swap a word of", offset, AtomicOp::Swap(new), None).await
    }

    /// Compares and swaps a word: [`Segment::compare_swap`](crate::Segment::compare_swap).
    pub async fn compare_swap(&self, offset: u64, expected: u64, new: u64) -> Result<AtomicResult, Error> {
        self.run_atomic("compare and swap a word of", offset, AtomicOp::CompareSwap { expected, new }, None).await
    }

    pub(super) async fn run_atomic(
        &self,
        action: &'static str,
        offset: u64,
        change: AtomicOp,
        token: Option<LockToken>,
    ) -> Result<AtomicResult, Error> {
        self.location().check(action, offset, u128::from(offset) + 8)?;
        let operation = Operation::Atomic { segment: self.id(), offset, change, token };
        self.run_operation(action, operation).await.map(|completion| AtomicResult::of(&completion))
    }

    /// Waits until the version is above `version`: [`Segment::wait_newer_than`](crate::Segment::wait_newer_than).
    pub async fn wait_newer_than(&self, version: Version) -> Result<Stamp, Error> {
        self.wait_by(self.deadline(), version).await
    }

    async fn wait_by(&self, deadline: Instant, version: Version) -> Result<Stamp, Error> {
        let plan = CallPlan { operation: Operation::Await { segment: self.id(), above: version }, ..empty_plan() };
        self.call_by(deadline, "watch", plan, &mut |_| {}).await.map(|completion| Stamp::of(&completion))
    }

    /// Returns the segment's metadata: [`Segment::stat`](crate::Segment::stat).
    pub async fn stat(&self) -> Result<Listing, Error> {
        let location = self.location();
        let operation = Operation::Stat { segment: location.id, page: SOMEWHERE };
        let plan = CallPlan { incoming: Listing::PAGE_BYTES, operation, ..empty_plan() };
        let by = self.deadline();
        let (completion, bytes) = self.client().call_for_by(by, "stat", &location.name, plan, as_given).await?;
        let failed = |failure| Error::Failed { action: "stat", target: location.name.to_string(), failure };
        let found = listings(&ListPage::decode(&completion.data), &bytes).map_err(failed)?;
        found.into_iter().next().ok_or(failed(Failure::Malformed))
    }

    /// Changes the nine Unix permission bits: [`Segment::set_mode`](crate::Segment::set_mode).
    pub async fn set_mode(&self, mode: u16) -> Result<(), Error> {
        self.update_permissions(PermissionUpdate { mode: Some(checked_mode(mode, self.name())?), owner: None }).await
    }

    /// Changes the owning user and group: [`Segment::set_owner`](crate::Segment::set_owner).
    pub async fn set_owner(&self, owner: Principal) -> Result<(), Error> {
        self.update_permissions(PermissionUpdate { mode: None, owner: Some(owner) }).await
    }

    /// Sets owner and mode of a segment that was created for another user.
    pub(crate) async fn set_owner_and_mode(&self, owner: Principal, mode: u16) -> Result<(), Error> {
        self.update_permissions(PermissionUpdate { mode: Some(checked_mode(mode, self.name())?), owner: Some(owner) })
            .await
    }

    async fn update_permissions(&self, update: PermissionUpdate) -> Result<(), Error> {
        self.run_operation("change the permissions of", Operation::Permit { segment: self.id(), update })
            .await
            .map(drop)
    }

    pub(crate) async fn run_operation(&self, action: &'static str, operation: Operation) -> Result<Completion, Error> {
        let plan = CallPlan { operation, ..empty_plan() };
        self.call(action, plan, &mut |_| {}).await
    }
}

#[cfg(test)]
mod tests {
    use crate::testing::{TestNode, block_on};
    use crate::{Failure, Spec, Version};

    #[test]
    fn async_vectored_calls_are_atomic() {
        // If this broke, a task would mix the bytes of two versions, or write some ranges without the others.
        let node = TestNode::start();
        let client = node.client().to_async().unwrap();
        block_on(async {
            let table = client.allocate("table", Spec { history: 2, ..Spec::new(9000) }).await.unwrap();
            let first = table.put_many(&[(0, b"head"), (8990, b"tail")]).await.unwrap();
            let second = table.put_many_if(first.version, &[(0, b"HEAD")]).await.unwrap();
            let stale = table.put_many_if(first.version, &[(0, b"late")]).await.unwrap_err();
            assert_eq!(stale.failure(), Some(Failure::VersionMismatch));
            let ranges = [0..4, 8990..8994];
            for (values, head, stamp) in [
                (table.get_many(&ranges).await.unwrap(), b"HEAD", second),
                (table.get_many_at(first.version, &ranges).await.unwrap(), b"head", first),
            ] {
                assert_eq!((&values[0][..], &values[1][..]), (&head[..], &b"tail"[..]));
                assert!(values.iter().all(|value| value.stamp() == stamp));
            }
            let (mut head, mut tail) = ([0; 4], [0; 4]);
            let stamp = table.get_many_into(&mut [(0, &mut head), (8990, &mut tail)]).await.unwrap();
            assert_eq!((stamp, &head, &tail), (second, b"HEAD", b"tail"));
            let mut two = [0; 2];
            assert_eq!(table.get_into(1, &mut two).await.unwrap(), second);
            assert_eq!(&two, b"EA");
            assert_eq!(&table.get_newer_than(Version(1), 0..4).await.unwrap()[..], b"HEAD");
        });
    }
}
