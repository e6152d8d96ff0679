//! Names when the node belongs to a cluster: one directory says which node is the home of which name. The engine keeps
//! a copy of it, so a name is looked up without a question; it never decides about it. The home asks for a name
//! before it makes a segment and gives it back after it has released one, by [`Action::Claim`] and
//! [`Action::Disclaim`]; what the copy does not hold is asked about once, by [`Action::Confirm`], since the copy may
//! be a moment old.

use crate::engine::action::Action;
use crate::engine::engine::{Engine, LocalCaller, Now};
use crate::engine::home::home_ops::ReplyFields;
use crate::engine::state::lock_queue::Requester;
use crate::engine::state::pending::{AskedPeers, Continuation, NameLookup, Pending, StepId, WaitState};
use crate::limits::OPERATIONS_MAX;
use crate::model::segment::{Access, Name, Principal};
use crate::model::spec::{Placement, Spec};
use crate::{Failure, Message, NodeId, Outcome, SegmentId};
use std::collections::{BTreeMap, HashMap, HashSet};

/// The engine's number for one claim, or for giving one back.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ClaimId(u64);

impl ClaimId {
    /// As a number that no other claim of this engine has.
    pub const fn to_bits(self) -> u64 {
        self.0
    }
}

#[derive(Clone, Copy, Debug)]
enum Wanted {
    Make {
        asker: Requester,
        who: Principal,
        spec: Spec,
    },
    Release {
        asker: Requester,
    },
    /// A segment came to nothing: nobody waits for its name.
    GiveBack,
}

/// The copy of the directory, and what is under way about it.
#[derive(Debug, Default)]
pub(crate) struct NameClaims {
    homes: HashMap<Name, NodeId>,
    next: u64,
    waiting: BTreeMap<ClaimId, (Name, Wanted)>,
    /// The names of those that wait: one thing at a time for each.
    busy: HashSet<Name>,
    /// Nothing can be decided about names now.
    has_no_majority: bool,
}

impl NameClaims {
    fn begin(&mut self, name: Name, wanted: Wanted) -> Result<ClaimId, Failure> {
        if self.waiting.len() == OPERATIONS_MAX {
            return Err(Failure::Busy);
        }
        self.next += 1;
        let claim = ClaimId(self.next);
        self.busy.insert(name);
        self.waiting.insert(claim, (name, wanted));
        Ok(claim)
    }

    fn end(&mut self, claim: ClaimId) -> Option<(Name, Wanted)> {
        let (name, wanted) = self.waiting.remove(&claim)?;
        self.busy.remove(&name);
        Some((name, wanted))
    }
}

impl Engine {
    /// From now on names are the cluster's: this node asks for them.
    pub fn share_names(&mut self) {
        self.directory.get_or_insert_default();
        self.mirrors.agreed = true;
    }

    /// The names of the segments here; with each, whether it was first at home elsewhere.
    pub fn names(&self) -> Vec<(Name, bool)> {
        self.segments.names()
    }

    /// Whether most voters of the cluster can be reached. While they cannot, no segment is released: its name could not be given back.
    pub fn set_majority(&mut self, has_majority: bool) {
        if let Some(directory) = &mut self.directory {
            directory.has_no_majority = !has_majority;
        }
    }

    /// A name has another home, or none.
    pub fn set_home(&mut self, name: Name, home: Option<NodeId>) {
        let Some(directory) = &mut self.directory else { return };
        match home {
            Some(home) => drop(directory.homes.insert(name, home)),
            None => drop(directory.homes.remove(&name)),
        }
    }

    /// All names there are.
    pub fn set_homes(&mut self, homes: impl IntoIterator<Item = (Name, NodeId)>) {
        if let Some(directory) = &mut self.directory {
            directory.homes = homes.into_iter().collect();
        }
    }

    /// A node belongs to the cluster, whether it can be reached or not.
    pub fn peer_known(&mut self, node: NodeId) {
        self.peers.add(node);
    }

    /// A node belongs to the cluster no longer.
    pub fn peer_gone(&mut self, now: Now, node: NodeId) {
        self.peer_down(now, node);
        self.peers.remove(node);
    }

    /// Makes a segment here, once its name is this node's.
    pub(crate) fn make_here(
        &mut self,
        now: Now,
        asker: Requester,
        who: Principal,
        name: Name,
        spec: Spec,
        within_us: u32,
    ) -> Result<(), Failure> {
        let Some(directory) = &mut self.directory else { return self.allocate_here(now, asker, who, name, spec) };
        self.segments.admits(&name)?;
        let is_busy = directory.busy.contains(&name);
        if is_busy || self.has_name(&name) {
            return Err(Failure::AlreadyExists);
        }
        // Before the whole cluster is asked for a name that would have to be given back.
        if self.refuse_over_quota(asker, who, &spec) {
            return Ok(());
        }
        let Some(directory) = &mut self.directory else { return Err(Failure::Busy) };
        let claim = directory.begin(name, Wanted::Make { asker, who, spec })?;
        self.act(Action::Claim { claim, name, within_us });
        Ok(())
    }

    /// What became of a claim.
    pub fn claimed(&mut self, now: Now, claim: ClaimId, result: Result<(), Failure>) {
        let Some((name, wanted)) = self.directory.as_mut().and_then(|directory| directory.end(claim)) else { return };
        let Wanted::Make { asker, who, spec } = wanted else { return };
        if result.is_ok() && self.refuse_over_quota(asker, who, &spec) {
            return self.give_name_back(name);
        }
        let made = result.and_then(|()| {
            let made = self.allocate_here(now, asker, who, name, spec);
            made.inspect_err(|_| self.give_name_back(name))
        });
        if let Err(failure) = made {
            self.answer(asker, Outcome::Failed(failure), ReplyFields::default());
        }
    }

    /// A segment of that name came to nothing.
    pub(crate) fn give_name_back(&mut self, name: Name) {
        let Some(directory) = &mut self.directory else { return };
        // A full table leaves the name to the daemon, which compares from time to time.
        if let Ok(claim) = directory.begin(name, Wanted::GiveBack) {
            self.act(Action::Disclaim { claim, name });
        }
    }

    /// Releases a segment, and answers when its name is free for others, too.
    pub(crate) fn release_named(
        &mut self,
        now: Now,
        asker: Requester,
        who: Principal,
        id: SegmentId,
    ) -> Result<(), Failure> {
        let name = self.segments.get(id)?.name;
        if self.directory.as_ref().is_some_and(|directory| directory.has_no_majority) {
            return Err(Failure::NoMajority);
        }
        self.release_here(now, who, id)?;
        let begun = self.directory.as_mut().map(|directory| directory.begin(name, Wanted::Release { asker }));
        match begun {
            Some(Ok(claim)) => self.act(Action::Disclaim { claim, name }),
            Some(Err(_)) | None => self.answer(asker, Outcome::Done, ReplyFields::default()),
        }
        Ok(())
    }

    /// A name was given back, or will be as soon as the cluster can be reached; with an error it is taken until then.
    pub fn disclaimed(&mut self, claim: ClaimId, result: Result<(), Failure>) {
        let Some((_, wanted)) = self.directory.as_mut().and_then(|directory| directory.end(claim)) else { return };
        if let Wanted::Release { asker } = wanted {
            let outcome = result.map_or_else(Outcome::Indeterminate, |()| Outcome::Done);
            self.answer(asker, outcome, ReplyFields::default());
        }
    }

    /// Finds a name that is not at home here, or makes it.
    pub(crate) fn look_up_shared(
        &mut self,
        now: Now,
        caller: LocalCaller,
        name: Name,
        then: Continuation,
    ) -> Result<(), Failure> {
        let LocalCaller { lane, request, who, deadline_us, timeout_us } = caller;
        match then {
            Continuation::Allocate(spec) if spec.placement == Placement::Node(self.node) => {
                self.make_here(now, Requester::Client(lane, request), who, name, spec, timeout_us)
            }
            Continuation::Allocate(spec) => {
                let (on, wait) = (NodeId::NOBODY, WaitState::Lookup);
                let pending = Pending { lane, request, who, deadline_us, timeout_us, on, wait };
                self.allocate_far(&pending, name, spec)
            }
            Continuation::Open => {
                let home = self.directory.as_ref().and_then(|directory| directory.homes.get(&name).copied());
                let step = self.begin(&caller, WaitState::Lookup)?;
                let lookup = NameLookup { name, then, asked: AskedPeers::default(), silent: 0, confirmed: false };
                self.lookups.insert(step, lookup);
                match home {
                    Some(home) if home != self.node => self.ask_its_home(step, home),
                    _ => drop(self.confirm_first(step)),
                }
                Ok(())
            }
        }
    }

    /// Asks the node that should have the name.
    fn ask_its_home(&mut self, step: StepId, home: NodeId) {
        let reachable = self.peers.reachable(home).is_some();
        let Some(pending) = self.operations.get_mut(step) else { return };
        let (pending, who) = (*pending, pending.who);
        let Some(lookup) = self.lookups.get_mut(&step) else { return };
        if reachable {
            lookup.asked.add(home);
            let name = lookup.name;
            return self.send(home, Message::Lookup { step: step.to_bits(), who, name });
        }
        self.lookups.remove(&step);
        self.operations.remove(step);
        self.finish(&pending, Outcome::Failed(Failure::NodeDown));
    }

    /// Nobody who was asked has the name: `true` if the cluster is asked before that is the answer.
    pub(crate) fn confirm_first(&mut self, step: StepId) -> bool {
        let shared = self.directory.is_some();
        let Some(lookup) = self.lookups.get_mut(&step).filter(|lookup| shared && !lookup.confirmed) else {
            return false;
        };
        lookup.confirmed = true;
        let name = lookup.name;
        let Some(pending) = self.operations.get_mut(step) else { return false };
        let within_us = pending.timeout_us;
        self.act(Action::Confirm { step, name, within_us });
        true
    }

    /// Where a name is, by the word of the whole cluster.
    pub fn confirmed(&mut self, step: StepId, result: Result<Option<NodeId>, Failure>) {
        let Some(lookup) = self.lookups.get(&step).copied() else {
            self.counters.stale += 1;
            return;
        };
        let failure = match result {
            Ok(Some(home)) if home != self.node => return self.ask_its_home(step, home),
            Ok(Some(_)) => match self.open_here(step, &lookup.name) {
                Ok(()) => return,
                Err(failure) => failure,
            },
            Ok(None) => Failure::NotFound,
            Err(failure) => failure,
        };
        self.lookups.remove(&step);
        if let Some(pending) = self.operations.remove(step) {
            self.finish(&pending, Outcome::Failed(failure));
        }
    }

    /// The name came to be here since it was asked for.
    fn open_here(&mut self, step: StepId, name: &Name) -> Result<(), Failure> {
        let id = self.segments.by_name(name).ok_or(Failure::NotFound)?;
        let segment = self.segments.get(id)?;
        let facts = segment.facts(id);
        let permissions = segment.permissions;
        let who = self.operations.get_mut(step).ok_or(Failure::NotFound)?.who;
        permissions.allow(who, Access::Read)?;
        self.lookups.remove(&step);
        if let Some(pending) = self.operations.remove(step) {
            self.finish_opened(pending.lane, pending.request, &facts);
        }
        Ok(())
    }
}
