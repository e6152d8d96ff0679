//! Names of a node that belongs to a cluster: one directory says which node is the home of which name.
//!
//! The engine has a copy of the directory, so a lookup needs no message; it never decides about it. The home claims a
//! name before it creates a segment and gives it back after a release, by [`Action::ClaimName`] and
//! [`Action::ReleaseName`]. A name that the copy lacks is confirmed once, by [`Action::ConfirmName`], since the copy
//! may be slightly old.

use crate::engine::action::Action;
use crate::engine::config::Now;
use crate::engine::engine::Engine;
use crate::engine::ids::{ClaimId, StepId};
use crate::engine::requester::{LocalCaller, ReplyFields, Requester};
use crate::engine::state::name_claims::ClaimPurpose;
use crate::engine::state::pending::{AskedPeers, Continuation, NameLookup, Pending, WaitState};
use crate::model::segment::{Access, Name, Principal};
use crate::model::spec::{Placement, Spec};
use crate::{Failure, Message, NodeId, Outcome, SegmentId};

impl Engine {
    /// Switches to cluster-wide names: from now on this node claims them.
    pub fn enable_cluster_names(&mut self) {
        self.directory.get_or_insert_default();
        self.replicas.join_cluster();
    }

    /// Returns the names of all segments here, each with whether another node was its first home.
    pub fn names(&self) -> Vec<(Name, bool)> {
        self.segments.names()
    }

    /// Sets whether a majority of the cluster's voters is reachable. Without it no segment is released, since its name
    /// could not be given back.
    pub fn set_majority(&mut self, has_majority: bool) {
        if let Some(directory) = &mut self.directory {
            directory.set_majority(has_majority);
        }
    }

    /// Sets or removes the home of a name.
    pub fn set_home(&mut self, name: Name, home: Option<NodeId>) {
        if let Some(directory) = &mut self.directory {
            directory.set_home(name, home);
        }
    }

    /// Replaces the whole copy of the directory.
    pub fn set_homes(&mut self, homes: impl IntoIterator<Item = (Name, NodeId)>) {
        if let Some(directory) = &mut self.directory {
            directory.set_homes(homes);
        }
    }

    /// Adds a member of the cluster, whether it is reachable or not.
    pub fn peer_known(&mut self, node: NodeId) {
        self.peers.add(node);
    }

    /// Removes a member of the cluster.
    pub fn peer_gone(&mut self, now: Now, node: NodeId) {
        self.peer_down(now, node);
        self.peers.remove(node);
    }

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
        if is_busy || self.segments.has_name(&name, &self.replicas) {
            return Err(Failure::AlreadyExists);
        }
        // This check comes before the claim, so that no claim has to be undone.
        if self.refuse_over_quota(requester, principal, &spec) {
            return Ok(());
        }
        let Some(directory) = &mut self.directory else { return Err(Failure::Busy) };
        let claim = directory.begin(name, ClaimPurpose::Make { requester, principal, spec })?;
        self.output.push(Action::ClaimName { claim, name, within_us });
        Ok(())
    }

    /// Handles the result of a claim.
    pub fn claimed(&mut self, now: Now, claim: ClaimId, result: Result<(), Failure>) {
        let Some((name, purpose)) = self.directory.as_mut().and_then(|directory| directory.end(claim)) else { return };
        let ClaimPurpose::Make { requester, principal, spec } = purpose else { return };
        if result.is_ok() && self.refuse_over_quota(requester, principal, &spec) {
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

    /// Gives a name back whose segment could not be created.
    pub(crate) fn return_name(&mut self, name: Name) {
        let Some(directory) = &mut self.directory else { return };
        // If the table is full, the daemon's periodic comparison gives the name back.
        if let Ok(claim) = directory.begin(name, ClaimPurpose::GiveBack) {
            self.output.push(Action::ReleaseName { claim, name });
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
        let name = self.segments.get(id)?.name;
        if self.directory.as_ref().is_some_and(|directory| !directory.has_majority()) {
            return Err(Failure::NoMajority);
        }
        self.release_at_home(now, principal, id)?;
        let begun = self.directory.as_mut().map(|directory| directory.begin(name, ClaimPurpose::Release { requester }));
        match begun {
            Some(Ok(claim)) => self.output.push(Action::ReleaseName { claim, name }),
            Some(Err(_)) | None => self.output.answer(requester, Outcome::Done, ReplyFields::default()),
        }
        Ok(())
    }

    /// Handles the return of a name: done, or queued until the cluster is reachable. With an error the name stays taken
    /// until then.
    pub fn disclaimed(&mut self, claim: ClaimId, result: Result<(), Failure>) {
        let Some((_, purpose)) = self.directory.as_mut().and_then(|directory| directory.end(claim)) else { return };
        if let ClaimPurpose::Release { requester } = purpose {
            let outcome = result.map_or_else(Outcome::Indeterminate, |()| Outcome::Done);
            self.output.answer(requester, outcome, ReplyFields::default());
        }
    }

    /// Looks up a name that is not at home here, or creates the segment.
    pub(crate) fn look_up_in_directory(
        &mut self,
        now: Now,
        caller: LocalCaller,
        name: Name,
        then: Continuation,
    ) -> Result<(), Failure> {
        let LocalCaller { channel, request, principal, deadline_us, timeout_us } = caller;
        match then {
            Continuation::Allocate(spec) if spec.placement == Placement::Node(self.node) => {
                self.create_named(now, Requester::Client(channel, request), principal, name, spec, timeout_us)
            }
            Continuation::Allocate(spec) => {
                let (on, wait) = (NodeId::NONE, WaitState::Lookup);
                let pending = Pending { channel, request, principal, deadline_us, timeout_us, on, wait };
                self.allocate_remote(&pending, name, spec)
            }
            Continuation::Open => {
                let home = self.directory.as_ref().and_then(|directory| directory.home_of(&name));
                let step = self.begin(&caller, WaitState::Lookup)?;
                let lookup =
                    NameLookup { name, then, asked: AskedPeers::default(), unreachable_peers: 0, confirmed: false };
                self.lookups.insert(step, lookup);
                match home {
                    Some(home) if home != self.node => self.ask_presumed_home(step, home),
                    _ => drop(self.confirm_with_cluster(step)),
                }
                Ok(())
            }
        }
    }

    /// Sends a lookup to the presumed home.
    fn ask_presumed_home(&mut self, step: StepId, home: NodeId) {
        let reachable = self.peers.reachable(home).is_some();
        let Some(pending) = self.operations.get_mut(step) else { return };
        let (pending, principal) = (*pending, pending.principal);
        let Some(lookup) = self.lookups.get_mut(&step) else { return };
        if reachable {
            lookup.asked.add(home);
            let name = lookup.name;
            return self.output.send(home, Message::Lookup { step: step.to_bits(), principal, name });
        }
        self.lookups.remove(&step);
        self.operations.remove(step);
        self.output.finish(&pending, Outcome::Failed(Failure::NodeDown));
    }

    /// Asks the cluster once before "not found" is the answer; `true` if it was asked now.
    pub(crate) fn confirm_with_cluster(&mut self, step: StepId) -> bool {
        let shared = self.directory.is_some();
        let Some(lookup) = self.lookups.get_mut(&step).filter(|lookup| shared && !lookup.confirmed) else {
            return false;
        };
        lookup.confirmed = true;
        let name = lookup.name;
        let Some(pending) = self.operations.get_mut(step) else { return false };
        let within_us = pending.timeout_us;
        self.output.push(Action::ConfirmName { step, name, within_us });
        true
    }

    /// Handles the cluster's answer about the home of a name.
    pub fn confirmed(&mut self, step: StepId, result: Result<Option<NodeId>, Failure>) {
        let Some(lookup) = self.lookups.get(&step).copied() else {
            self.counters.stale += 1;
            return;
        };
        let failure = match result {
            Ok(Some(home)) if home != self.node => return self.ask_presumed_home(step, home),
            Ok(Some(_)) => match self.open_at_home(step, &lookup.name) {
                Ok(()) => return,
                Err(failure) => failure,
            },
            Ok(None) => Failure::NotFound,
            Err(failure) => failure,
        };
        self.lookups.remove(&step);
        if let Some(pending) = self.operations.remove(step) {
            self.output.finish(&pending, Outcome::Failed(failure));
        }
    }

    /// Opens a name that came to this node after it was looked up.
    fn open_at_home(&mut self, step: StepId, name: &Name) -> Result<(), Failure> {
        let id = self.segments.by_name(name).ok_or(Failure::NotFound)?;
        let segment = self.segments.get(id)?;
        let info = segment.info(id);
        let permissions = segment.permissions;
        let principal = self.operations.get_mut(step).ok_or(Failure::NotFound)?.principal;
        permissions.allow(principal, Access::Read)?;
        self.lookups.remove(&step);
        if let Some(pending) = self.operations.remove(step) {
            self.output.finish_opened(pending.channel, pending.request, &self.segments.opened(&info));
        }
        Ok(())
    }
}
