//! Gets of remote segments: one batch of one-sided reads, without the home's engine.
//!
//! A batch reads the header, the bytes, and the state word again ([`PeerAction::Fetch`](crate::action::PeerAction::Fetch)). If a put came between, it is
//! repeated; the second time the home executes the get (`served_get.rs`). A named version is read from the home's
//! history, with the header that is saved there. A reader of a Delta segment takes the previous version rather than
//! wait for a writer. Where reads of a batch cannot overlap, the home executes every get that depends on the lock.

use crate::action::FetchTarget;
use crate::config::Now;
use crate::fault_injection::planted;
use crate::ids::StepId;
use crate::remote::handler::Remote;
use crate::requester::LocalCaller;
use crate::state::pending::{Pending, PendingReads, Transfer, WaitState};
use ddss_core::{
    Access, Completion, Failure, Header, LockDependency, Message, Outcome, SnapshotCheck, Timestamp, Version,
};

impl Remote<'_> {
    /// Gets bytes of a remote segment: reads them, or asks its home first. On error the caller still owns the range
    /// table.
    #[inline]
    pub(crate) fn get_remote(&mut self, now: Now, caller: &LocalCaller, transfer: Transfer) -> Result<(), Failure> {
        self.reachable_home(transfer.segment)?;
        let Some(info) = self.known_segment(transfer.segment) else {
            // While a read of the old place is in flight, no new window is recorded: to ask again would bring no more.
            return if self.is_withdrawn(transfer.segment) {
                self.begin_served_get(now, caller, transfer)
            } else {
                self.request_info(*caller, transfer)
            };
        };
        if info.copies == 1 {
            info.permissions.allow(caller.principal, Access::Read)?;
        }
        self.output.check_parts(&transfer.parts, info.bytes)?;
        if let Some(layout) = info.layout() {
            self.output.row_of(layout, info.bytes, &transfer.parts)?;
        }
        let rules = info.model.get_rules(transfer.options.requested_model);
        let history_version = transfer.options.version.filter(|_| info.history_len > 0);
        let lock_dependency =
            if transfer.options.version.is_some() { LockDependency::None } else { rules.lock_dependency };
        let takes_trips = lock_dependency == LockDependency::Exclusive && !self.reads_overlap;
        let takes_trips = takes_trips || self.holds_row(caller, &transfer, lock_dependency);
        if info.copies > 1 || lock_dependency == LockDependency::Any || takes_trips {
            return self.begin_served_get(now, caller, transfer);
        }
        if transfer.options.version.is_none() && self.get_cached(now, caller, &transfer, &info, rules.copy_us)? {
            return Ok(());
        }
        let fetching = PendingReads { transfer, tears: 0, history_version, refresh: false, list: None };
        let step = self.begin(caller, WaitState::Fetch(fetching))?;
        let target = FetchTarget::Arena(caller.channel.client, transfer.range);
        self.fetch(step, &fetching, target).inspect_err(|_| {
            self.operations.remove(step);
        })
    }

    /// Returns true if one-sided reads would find that the caller itself has locked a row there.
    #[inline]
    fn holds_row(&self, caller: &LocalCaller, transfer: &Transfer, lock_dependency: LockDependency) -> bool {
        if self.remote_locks.is_empty() || lock_dependency == LockDependency::None {
            return false;
        }
        let (client, segment) = (caller.channel.client, transfer.segment);
        let first = self.output.first_offset(&transfer.parts);
        self.remote_locks.token_of_segment(client, segment).is_none()
            && self.remote_locks.token_for(client, segment, first).is_some()
    }

    fn begin_served_get(&mut self, now: Now, caller: &LocalCaller, transfer: Transfer) -> Result<(), Failure> {
        let step = self.begin(caller, WaitState::Home(transfer))?;
        if let Some(pending) = self.operations.get_mut(step).copied() {
            self.request_served_get(now, step, &pending, transfer);
        }
        Ok(())
    }

    fn request_info(&mut self, caller: LocalCaller, transfer: Transfer) -> Result<(), Failure> {
        let step = self.begin(&caller, WaitState::Info { transfer })?;
        let message =
            Message::Describe { step: step.to_bits(), principal: caller.principal, segment: transfer.segment };
        self.output.send(self.home_of(transfer.segment), message);
        Ok(())
    }

    /// Handles the end of a fetch: the header before the bytes and the state word after them, or a failure.
    #[inline]
    pub(crate) fn fetched(&mut self, now: Now, step: StepId, result: Result<(Header, u64), Failure>) {
        let Some(pending) = self.operations.get_mut(step).copied() else {
            self.output.counters.stale += 1;
            return;
        };
        let WaitState::Fetch(fetching) = pending.wait else { return };
        let PendingReads { transfer, history_version, refresh, .. } = fetching;
        let segment = transfer.segment;
        let info = self.read_ended(segment);
        let in_time = now.steady_us < pending.deadline_us;
        let header = match result {
            Ok((header, _)) if planted!(self.segments, SingleStateRead) => (header, header.state),
            Ok((header, after)) if planted!(self.segments, TornAccepted) => {
                (Header { state: after & !1, ..header }, after & !1)
            }
            Ok(read) => read,
            Err(failure) => return self.end_fetch(step, &fetching, failure),
        };
        // The info may be gone because the segment moves: then its home has to say whether the lock matters.
        let lock_dependency = info
            .map_or(LockDependency::Any, |info| info.model.get_rules(transfer.options.requested_model).lock_dependency);
        let lock_dependency = if transfer.options.version.is_some() { LockDependency::None } else { lock_dependency };
        // A row's own holder asks the home too, which knows which rows are locked.
        let own = self.remote_locks.token_of_segment(pending.channel.client, segment).map_or(0, |token| token.0);
        let locked =
            ![0, own].contains(&header.0.locked) && lock_dependency > LockDependency::None && history_version.is_none();
        let locked = locked && !planted!(self.segments, UnseenLock);
        if let Some(list) = fetching.list {
            return self.rows_fetched(
                step,
                &pending,
                (transfer.range, list),
                header.0.segment == segment.to_bits() && !locked,
            );
        }
        let proof = header.0.prove(segment, header.1);
        if let SnapshotCheck::Whole(_, timestamp) = proof {
            // Later timestamps of this node must be greater.
            self.clock.hear(timestamp, now.wall_us);
        }
        match proof {
            SnapshotCheck::Torn if in_time => {
                self.output.counters.torn_fetches += 1;
                self.torn(now, step, &pending, fetching, header.0.state);
            }
            SnapshotCheck::Torn => self.end_fetch(step, &fetching, Failure::Contended),
            // An exclusive holder may not be finished: the home knows when.
            SnapshotCheck::Whole(..) if locked && in_time => {
                self.request_served_get(now, step, &pending, transfer);
            }
            SnapshotCheck::Whole(version, timestamp) if refresh => {
                self.cache_filled(step, &pending, &transfer, (version, timestamp));
            }
            SnapshotCheck::Whole(version, timestamp) => {
                self.finish_fetch(step, &pending, &transfer, (version, timestamp))
            }
            // The segment may have moved, or the history slot is unused so far: the home knows.
            SnapshotCheck::Gone if in_time => {
                if refresh {
                    self.drop_cache_fill(segment);
                }
                self.request_served_get(now, step, &pending, transfer);
            }
            SnapshotCheck::Gone => self.end_fetch(step, &fetching, Failure::NotFound),
        }
    }

    #[inline]
    fn finish_fetch(&mut self, step: StepId, pending: &Pending, transfer: &Transfer, stamp: (Version, Timestamp)) {
        let (version, timestamp) = stamp;
        self.end_pending(step);
        let failure = match transfer.options.version {
            Some(wanted) if wanted < version => Some(Failure::VersionGone),
            Some(wanted) if wanted > version => Some(Failure::VersionMismatch),
            _ => None,
        };
        if let Some(failure) = failure {
            return self.output.finish(pending, Outcome::Failed(failure));
        }
        let done = Completion::bare(pending.request, Outcome::Done);
        self.output.reply(pending.channel, Completion { version, timestamp, ..done }, None);
    }

    /// Retries a torn read: again, from the previous version, or executed by the home.
    fn torn(&mut self, now: Now, step: StepId, pending: &Pending, fetching: PendingReads, state: u64) {
        let PendingReads { transfer, tears, .. } = fetching;
        if fetching.refresh {
            self.drop_cache_fill(transfer.segment);
            return self.request_served_get(now, step, pending, transfer);
        }
        if tears > 0 {
            return self.request_served_get(now, step, pending, transfer);
        }
        let older = self.known_segment(transfer.segment).is_some_and(|info| {
            info.history_len > 0
                && info.model.get_rules(transfer.options.requested_model).older
                && transfer.options.version.is_none()
        });
        let history_version = if older { Some(Version(state >> 1)) } else { fetching.history_version };
        let again = PendingReads { tears: tears + 1, history_version, ..fetching };
        self.restart_fetch(now, step, pending, again);
    }

    /// Handles a served get that the home refused. If it had no room for the bytes, this node reads by itself.
    pub(crate) fn served_get_refused(&mut self, now: Now, step: StepId, failure: Failure) {
        let Some(pending) = self.operations.get_mut(step).copied() else { return };
        let WaitState::Home(transfer) = pending.wait else { return };
        let may_read = self.known_segment(transfer.segment).is_some_and(|info| {
            info.copies == 1
                && info.model.get_rules(transfer.options.requested_model).lock_dependency < LockDependency::Any
        });
        if matches!(failure, Failure::Busy(_)) && may_read && now.steady_us < pending.deadline_us {
            self.fetch_again(now, step, &pending, transfer);
        } else if let Some(pending) = self.end_pending(step) {
            self.output.finish(&pending, Outcome::Failed(failure));
        }
    }

    /// Reads again after the home had no room to execute the get.
    pub(crate) fn fetch_again(&mut self, now: Now, step: StepId, pending: &Pending, transfer: Transfer) {
        let history_len = self.known_segment(transfer.segment).is_some_and(|info| info.history_len > 0);
        let history_version = transfer.options.version.filter(|_| history_len);
        self.restart_fetch(
            now,
            step,
            pending,
            PendingReads { transfer, tears: 0, history_version, refresh: false, list: None },
        );
    }

    fn restart_fetch(&mut self, now: Now, step: StepId, pending: &Pending, fetching: PendingReads) {
        if let Some(pending) = self.operations.get_mut(step) {
            pending.wait = WaitState::Fetch(fetching);
        }
        let target = FetchTarget::Arena(pending.channel.client, fetching.transfer.range);
        if self.fetch(step, &fetching, target).is_err() {
            // The segment moves or is gone: the home knows.
            self.request_served_get(now, step, pending, fetching.transfer);
        }
    }

    pub(crate) fn end_fetch(&mut self, step: StepId, fetching: &PendingReads, failure: Failure) {
        if fetching.refresh {
            self.drop_cache_fill(fetching.transfer.segment);
        }
        if let Some(pending) = self.end_pending(step) {
            self.output.finish(&pending, Outcome::Failed(failure));
        }
    }
}
