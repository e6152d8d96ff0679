//! Lookups of names in a cluster, where one directory says which node is the home of which name.
//!
//! The engine has a copy of the directory, so a lookup needs no message; it never decides about it. A name that the copy
//! lacks is confirmed once, by [`Action::ConfirmName`], since the copy may be slightly old.

use crate::action::Action;
use crate::ids::StepId;
use crate::remote::handler::Remote;
use crate::requester::LocalCaller;
use crate::state::pending::{AskedPeers, Continuation, NameLookup, WaitState};
use ddss_core::{Access, Failure, Name, NodeId, Outcome, Placement};

impl Remote<'_> {
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
        self.output.push(Action::ConfirmName { step, name, within_us });
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
}
