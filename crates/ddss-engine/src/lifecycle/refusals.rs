//! Refusal of segments that a limit of this node or the quota of their owner forbids.

use crate::lifecycle::handler::Lifecycle;
use crate::requester::{ReplyFields, Requester};
use ddss_core::{Name, Outcome, Principal, Spec, Version};

impl Lifecycle<'_> {
    /// Answers a request for a segment that would exceed the limit of this node or the quota of its owner; `false` if it
    /// fits. A name that exists is not refused here: its own error says more.
    pub(crate) fn refuse_new(&mut self, requester: Requester, principal: Principal, name: &Name, spec: &Spec) -> bool {
        let home = self.directory.as_ref().and_then(|directory| directory.home_of(name));
        let exists = self.segments.is_taken(name) || home.is_some_and(|home| home != self.segments.node());
        let Err(failure) = self.segments.check_count() else {
            return self.refuse_over_quota(requester, principal, spec);
        };
        if !exists {
            let fields = ReplyFields { version: Version(self.segments.maximum() as u64), ..ReplyFields::default() };
            self.output.answer(requester, Outcome::Failed(failure), fields);
        }
        !exists
    }

    /// Answers a request for a segment that would exceed its owner's quota; `false` if it fits. The word of the answer
    /// is the usage, its version the limit.
    pub(crate) fn refuse_over_quota(&mut self, requester: Requester, principal: Principal, spec: &Spec) -> bool {
        let Some((failure, used, allowed)) = self.segments.accounts.exceeded_by(principal.uid, spec) else {
            return false;
        };
        self.output.counters.over_quota += 1;
        let fields = ReplyFields { version: Version(allowed), word: used, ..ReplyFields::default() };
        self.output.answer(requester, Outcome::Failed(failure), fields);
        true
    }

    /// Returns true if a replica here would exceed its owner's quota.
    pub(crate) fn is_over_quota(&mut self, owner: Principal, spec: &Spec) -> bool {
        let is_over = self.segments.accounts.exceeded_by(owner.uid, spec).is_some();
        self.output.counters.over_quota += u64::from(is_over);
        is_over
    }
}
