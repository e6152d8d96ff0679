//! Copy of the cluster's directory of names, and the claims in progress.

use crate::ids::ClaimId;
use crate::requester::Requester;
use ddss_core::limits::{OPERATIONS_MAX, SEGMENTS_PER_NODE_MAX};
use ddss_core::{Failure, Limit, Name, NodeId, Principal, Spec};
use std::collections::{BTreeMap, HashMap, HashSet};

/// Purpose of a claim.
#[derive(Clone, Copy, Debug)]
pub(crate) enum ClaimPurpose {
    Make {
        requester: Requester,
        principal: Principal,
        spec: Spec,
    },
    Release {
        requester: Requester,
    },
    /// Return of the name of a segment that could not be created; no caller waits.
    GiveBack,
}

/// Copy of the directory, and the claims in progress.
#[derive(Debug, Default)]
pub(crate) struct NameClaims {
    homes: HashMap<Box<str>, NodeId>,
    next: u64,
    waiting: BTreeMap<ClaimId, (Name, ClaimPurpose)>,
    /// Names with a claim in progress: one at a time for each name.
    busy: HashSet<Name>,
    /// The cluster cannot decide about names now.
    has_no_majority: bool,
    /// The directory once had all names of this node.
    is_compared: bool,
}

impl NameClaims {
    /// Returns the home of a name, as far as this copy knows.
    pub(crate) fn home_of(&self, name: &Name) -> Option<NodeId> {
        self.homes.get(name.as_str()).copied()
    }

    /// Sets or removes the home of a name.
    pub(crate) fn set_home(&mut self, name: Name, home: Option<NodeId>) {
        match home {
            Some(home) => drop(self.homes.insert(name.as_str().into(), home)),
            None => drop(self.homes.remove(name.as_str())),
        }
    }

    /// Replaces the whole copy.
    pub(crate) fn set_homes(&mut self, homes: impl IntoIterator<Item = (Name, NodeId)>) {
        self.homes = homes.into_iter().map(|(name, home)| (name.as_str().into(), home)).collect();
    }

    /// Returns true if the cluster can decide about names now.
    pub(crate) fn has_majority(&self) -> bool {
        !self.has_no_majority
    }

    /// Sets whether the cluster can decide.
    pub(crate) fn set_majority(&mut self, has_majority: bool) {
        self.has_no_majority = !has_majority;
    }

    /// Returns true if the directory once had all names of this node.
    pub(crate) fn is_compared(&self) -> bool {
        self.is_compared
    }

    /// Records that the directory once had all names of this node.
    pub(crate) fn set_compared(&mut self) {
        self.is_compared = true;
    }

    /// Returns true if a claim of that name is in progress.
    pub(crate) fn is_claiming(&self, name: &Name) -> bool {
        self.busy.contains(name)
    }

    /// Begins a claim of a name for a client, or its return.
    pub(crate) fn begin(&mut self, name: Name, purpose: ClaimPurpose) -> Result<ClaimId, Failure> {
        if self.waiting.len() >= OPERATIONS_MAX {
            Err(Failure::Busy(Limit::Claims))
        } else {
            Ok(self.add(name, purpose))
        }
    }

    /// Begins the return of a name whose segment could not be created. Such segments are bounded: each had a claim here,
    /// and a slot since.
    pub(crate) fn begin_return(&mut self, name: Name) -> ClaimId {
        assert!(self.waiting.len() < OPERATIONS_MAX + SEGMENTS_PER_NODE_MAX, "claims are bounded");
        self.add(name, ClaimPurpose::GiveBack)
    }

    fn add(&mut self, name: Name, purpose: ClaimPurpose) -> ClaimId {
        self.next += 1;
        let claim = ClaimId::new(self.next);
        self.busy.insert(name);
        self.waiting.insert(claim, (name, purpose));
        claim
    }

    /// Ends a claim; `None` if it has ended already.
    pub(crate) fn end(&mut self, claim: ClaimId) -> Option<(Name, ClaimPurpose)> {
        let (name, purpose) = self.waiting.remove(&claim)?;
        self.busy.remove(&name);
        Some((name, purpose))
    }
}
