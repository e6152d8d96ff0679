//! Lookups of names: at every peer, or in a cluster, where one directory says which node is the home of which name.
//!
//! The engine has a copy of the directory, so a lookup needs no message; it never decides about it. A name that the copy
//! lacks is confirmed once, by [`ControlAction::ConfirmName`], since the copy may be slightly old.

use crate::action::{Action, ControlAction};
use crate::ids::StepId;
use crate::remote::handler::{Remote, text_range};
use crate::requester::{LocalCaller, NewSegment};
use crate::state::pending::{AskedPeers, Continuation, NameLookup, WaitState};
use arrayvec::ArrayVec;
use ddss_core::limits::TEXT_BYTES_MAX;
use ddss_core::{Access, Failure, Message, Name, NodeId, Operation, Outcome, Placement, Principal, SegmentId};

impl Remote<'_> {
    /// Looks up a name that is not at home here, at every connected peer. Returns the segment to create here.
    pub(crate) fn look_up(
        &mut self,
        caller: LocalCaller,
        name: Name,
        then: Continuation,
    ) -> Result<Option<NewSegment>, Failure> {
        self.segments.admits(&name)?;
        if matches!(then, Continuation::Allocate(_)) && self.segments.has_name(&name, self.replicas) {
            return Err(Failure::AlreadyExists);
        }
        if self.directory.is_some() {
            return self.look_up_in_directory(caller, name, then).map(|()| None);
        }
        let peers: Vec<_> = self.peers.iter().collect();
        let (mut asked, mut unreachable_peers) = (AskedPeers::default(), 0);
        for &(node, up) in &peers {
            if up { asked.add(node) } else { unreachable_peers += 1 }
        }
        let step = self.begin(&caller, WaitState::Lookup)?;
        self.lookups.insert(step, NameLookup { name, then, asked, unreachable_peers, confirmed: false });
        for (node, _) in peers.into_iter().filter(|&(node, _)| asked.contains(node)) {
            self.send_lookup(node, step, caller.principal, &name);
        }
        Ok(if asked.is_empty() { self.end_failed_lookup(step) } else { None })
    }

    /// Looks up a name that is not at home here, or asks its home to create the segment.
    pub(crate) fn look_up_in_directory(
        &mut self,
        caller: LocalCaller,
        name: Name,
        then: Continuation,
    ) -> Result<(), Failure> {
        if let Continuation::Allocate(spec) = then {
            assert_ne!(spec.placement, Placement::Node(self.node), "a segment of this node is created by its own side");
            return self.allocate_remote(&caller, name, spec);
        }
        let home = self.directory.and_then(|directory| directory.home_of(&name));
        let step = self.begin(&caller, WaitState::Lookup)?;
        let lookup = NameLookup { name, then, asked: AskedPeers::default(), unreachable_peers: 0, confirmed: false };
        self.lookups.insert(step, lookup);
        match home {
            Some(home) if home != self.node => self.ask_presumed_home(step, home),
            _ => drop(self.confirm_with_cluster(step)),
        }
        Ok(())
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
            return self.send_lookup(home, step, principal, &name);
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
        self.output.push(Action::Control(ControlAction::ConfirmName { step, name, within_us }));
        true
    }

    /// Handles the cluster's answer about the home of a name.
    pub(crate) fn confirmed(&mut self, step: StepId, result: Result<Option<NodeId>, Failure>) {
        let Some(lookup) = self.lookups.get(&step).copied() else {
            self.output.counters.stale += 1;
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

    /// Ends a lookup that no connected peer could answer. Returns the segment to create here.
    fn end_failed_lookup(&mut self, step: StepId) -> Option<NewSegment> {
        if self.confirm_with_cluster(step) {
            return None;
        }
        let NameLookup { name, then, unreachable_peers, .. } = self.lookups.remove(&step)?;
        let pending = self.operations.remove(step)?;
        let outcome = match then {
            Continuation::Open if unreachable_peers > 0 => Err(Failure::NodeDown),
            Continuation::Open => Err(Failure::NotFound),
            Continuation::Allocate(spec) if spec.placement == Placement::Node(self.node) => {
                let (requester, principal) = (pending.caller().requester(), pending.principal);
                return Some(NewSegment { requester, principal, name, spec });
            }
            Continuation::Allocate(spec) => self.allocate_remote(&pending.caller(), name, spec),
        };
        if let Err(failure) = outcome {
            self.output.finish(&pending, Outcome::Failed(failure));
        }
        None
    }

    /// Asks the home of a new segment to create it.
    pub(crate) fn allocate_remote(
        &mut self,
        caller: &LocalCaller,
        name: Name,
        spec: ddss_core::Spec,
    ) -> Result<(), Failure> {
        // An unknown node is treated like a node that is down.
        let Placement::Node(home) = spec.placement else { return Err(Failure::Malformed) };
        let home = self.reachable_home(SegmentId::new(home, 0, 0)).map_err(|_| Failure::NodeDown)?;
        let step = self.begin(caller, WaitState::Allocate { home })?;
        let text: ArrayVec<u8, TEXT_BYTES_MAX> = spec.encode().into_iter().chain(name.as_str().bytes()).collect();
        let operation = Operation::Allocate { spec_and_name: text_range(&text) };
        self.output.send_with(home, caller.call(step, operation), &text);
        Ok(())
    }

    /// Asks a peer whether a segment of that name is at home there.
    pub(crate) fn send_lookup(&mut self, node: NodeId, step: StepId, principal: Principal, name: &Name) {
        let text = name.as_str().as_bytes();
        let message = Message::call(step.to_bits(), principal, 0, Operation::Open { name: text_range(text) });
        self.output.send_with(node, message, text);
    }

    /// Removes a lookup if this node's answer is outstanding.
    pub(crate) fn take_lookup(&mut self, step: StepId, node: NodeId) -> Option<NameLookup> {
        self.lookups.get(&step).filter(|lookup| lookup.asked.contains(node))?;
        self.lookups.remove(&step)
    }

    /// Records that one peer does not have the name. Returns the segment to create here.
    pub(crate) fn record_missing(&mut self, step: StepId, node: NodeId) -> Option<NewSegment> {
        let lookup = self.lookups.get_mut(&step)?;
        lookup.asked.remove(node);
        if lookup.asked.is_empty() { self.end_failed_lookup(step) } else { None }
    }
}
