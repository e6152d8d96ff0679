//! Names that this node claims in the cluster, before it creates a segment, and gives back after a release: by
//! [`ControlAction::ClaimName`] and [`ControlAction::ReleaseName`].

use crate::action::{Action, ControlAction};
use crate::config::Now;
use crate::ids::ClaimId;
use crate::lifecycle::handler::Lifecycle;
use crate::requester::{ReplyFields, Requester};
use crate::state::name_claims::ClaimPurpose;
use ddss_core::{Failure, Limit, Name, Outcome, Principal, SegmentId, Spec};

impl Lifecycle<'_> {
    /// Creates a segment here, once the name is claimed.
    pub(crate) fn create_named(
        &mut self,
        now: Now,
        requester: Requester,
        principal: Principal,
        name: Name,
        spec: Spec,
        within_us: u32,
    ) -> Result<(), Failure> {
        let Some(directory) = &mut self.directory else {
            return self.allocate_at_home(now, requester, principal, name, spec);
        };
        self.segments.admits(&name)?;
        let is_busy = directory.is_claiming(&name);
        if is_busy || self.segments.has_name(&name, self.replicas) {
            return Err(Failure::AlreadyExists);
        }
        // This check comes before the claim, so that no claim has to be undone.
        if self.refuse_new(requester, principal, &name, &spec) {
            return Ok(());
        }
        let Some(directory) = &mut self.directory else { return Err(Failure::Busy(Limit::Claims)) };
        let claim = directory.begin(name, ClaimPurpose::Make { requester, principal, spec })?;
        self.output.push(Action::Control(ControlAction::ClaimName { claim, name, within_us }));
        Ok(())
    }

    /// Handles the result of a claim.
    pub(crate) fn claimed(&mut self, now: Now, claim: ClaimId, result: Result<(), Failure>) {
        let Some((name, purpose)) = self.directory.as_mut().and_then(|directory| directory.end(claim)) else { return };
        let ClaimPurpose::Make { requester, principal, spec } = purpose else { return };
        if result.is_ok() && self.refuse_new(requester, principal, &name, &spec) {
            return self.return_name(name);
        }
        let made = result.and_then(|()| {
            let made = self.allocate_at_home(now, requester, principal, name, spec);
            made.inspect_err(|_| self.return_name(name))
        });
        if let Err(failure) = made {
            self.output.answer(requester, Outcome::Failed(failure), ReplyFields::default());
        }
    }

    /// Releases a segment, and answers when its name is free too.
    pub(crate) fn release_named(
        &mut self,
        now: Now,
        requester: Requester,
        principal: Principal,
        id: SegmentId,
    ) -> Result<(), Failure> {
        let name = self.segments.get(id)?.name();
        if self.directory.as_ref().is_some_and(|directory| !directory.has_majority()) {
            return Err(Failure::NoMajority);
        }
        let purpose = ClaimPurpose::Release { requester };
        let claim = self.directory.as_mut().map(|directory| directory.begin(name, purpose)).transpose()?;
        if let Err(failure) = self.release_at_home(now, principal, id) {
            claim.and_then(|claim| self.directory.as_mut()?.end(claim));
            return Err(failure);
        }
        match claim {
            Some(claim) => self.output.push(Action::Control(ControlAction::ReleaseName { claim, name })),
            None => self.output.answer(requester, Outcome::Done, ReplyFields::default()),
        }
        Ok(())
    }

    /// Handles the return of a name: done, or queued until the cluster is reachable. With an error the name stays taken
    /// until then.
    pub(crate) fn disclaimed(&mut self, claim: ClaimId, result: Result<(), Failure>) {
        let Some((_, purpose)) = self.directory.as_mut().and_then(|directory| directory.end(claim)) else { return };
        if let ClaimPurpose::Release { requester } = purpose {
            let outcome = result.map_or_else(Outcome::Indeterminate, |()| Outcome::Done);
            self.output.answer(requester, outcome, ReplyFields::default());
        }
    }
}
