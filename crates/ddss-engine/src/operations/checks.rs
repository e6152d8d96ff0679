//! Checks of an operation before it is executed: permissions, bounds, conditions, and whether it waits for a lock.

use crate::action::RangeSet;
use crate::config::Now;
use crate::fault_injection::planted;
use crate::operations::handler::Operations;
use crate::requester::Requester;
use crate::state::lock_queue::{PendingOp, Waiter};
use crate::state::segments::Segment;
use ddss_core::{Access, Failure, LockDependency, PutConditions, ReadOptions, SegmentId};

impl Operations<'_> {
    /// Returns which holders a get at home here waits for. A named version needs no lock.
    pub(crate) fn lock_dependency_of_get(
        &self,
        segment: SegmentId,
        options: &ReadOptions,
    ) -> Result<LockDependency, Failure> {
        let model = self.segments.get(segment)?.spec.model;
        match model.get_rules(options.requested_model).lock_dependency {
            _ if options.version.is_some() => Ok(LockDependency::None),
            LockDependency::Any if planted!(self.segments, ReadTogether) => Ok(LockDependency::Exclusive),
            lock_dependency => Ok(lock_dependency),
        }
    }

    /// Checks permissions and bounds of an operation, and returns whether it depends on the segment's lock.
    pub(crate) fn authorize_op(&self, segment: &Segment, waiter: &Waiter) -> Result<bool, Failure> {
        if segment.is_replica() {
            return Err(Failure::NodeDown);
        }
        let principal = waiter.principal;
        let check = |principal, access, parts: &RangeSet| {
            segment.permissions.allow(principal, access)?;
            self.check_parts(segment, parts)
        };
        match &waiter.op {
            PendingOp::Get(get) => {
                check(principal, Access::Read, &get.parts)?;
            }
            PendingOp::Put { parts, conditions, .. } => {
                let is_unchecked = planted!(self.segments, UncheckedPermission);
                let principal = if is_unchecked { segment.permissions.owner } else { principal };
                check(principal, Access::Write, parts)?;
                match conditions.entry {
                    // The key decides, on the newest version.
                    Some(change) => segment.check_entry_change(parts, change)?,
                    None => segment.check_names_version(conditions)?,
                }
            }
            PendingOp::Atomic { offset, .. } => {
                check(principal, Access::Write, &RangeSet::One { offset: *offset, bytes: 8 })?;
            }
            PendingOp::Lock(lock_request) => {
                segment.permissions.allow(principal, if lock_request.shared { Access::Read } else { Access::Write })?;
                segment.row_to_lock(lock_request)?;
            }
        }
        Ok(segment.depends_on_lock(&waiter.op))
    }

    pub(crate) fn check_conditions(
        &mut self,
        now: Now,
        id: SegmentId,
        requester: Requester,
        conditions: PutConditions,
        row: Option<u64>,
    ) -> Result<(), Failure> {
        if conditions.token.is_none() && conditions.version.is_none() {
            return Ok(());
        }
        let segment = self.segments.get(id)?;
        let token = conditions.token.filter(|_| !planted!(self.segments, UncheckedToken));
        if token.is_some_and(|token| !segment.lock_queue.admits(token, requester.owner(), now.steady_us, row)) {
            let token = token.unwrap_or_default();
            return Err(segment.lock_queue.refusal(token, requester.owner(), now.steady_us, row));
        }
        if planted!(self.segments, UncheckedVersion) {
            return Ok(());
        }
        let (checked, found) = (segment.check_version(conditions.version), segment.version());
        checked.inspect_err(|_| self.output.name_version(found))
    }

    /// Checks that ranges lie inside a segment, and inside one row of a table.
    pub(crate) fn check_parts(&self, segment: &Segment, parts: &RangeSet) -> Result<(), Failure> {
        self.output.check_parts(parts, segment.spec.bytes)?;
        segment.spec.layout().map_or(Ok(()), |layout| self.output.row_of(layout, segment.spec.bytes, parts).map(drop))
    }
}
