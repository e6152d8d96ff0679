//! Copy of the cluster's directory of names, and the claims in progress.

use crate::engine::ids::ClaimId;
use crate::engine::requester::Requester;
use crate::limits::OPERATIONS_MAX;
use crate::model::segment::{Name, Principal};
use crate::model::spec::Spec;
use crate::{Failure, NodeId};
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
    /// Return the name of a segment that could not be created; no caller waits.
    GiveBack,
}

/// Copy of the directory, and the claims in progress.
#[derive(Debug, Default)]
pub(crate) struct NameClaims {
    pub(crate) homes: HashMap<Name, NodeId>,
    pub(crate) next: u64,
    pub(crate) waiting: BTreeMap<ClaimId, (Name, ClaimPurpose)>,
    /// Names with a claim in progress: one at a time for each name.
    pub(crate) busy: HashSet<Name>,
    /// The cluster cannot decide about names now.
    pub(crate) has_no_majority: bool,
}

impl NameClaims {
    pub(crate) fn begin(&mut self, name: Name, purpose: ClaimPurpose) -> Result<ClaimId, Failure> {
        if self.waiting.len() == OPERATIONS_MAX {
            return Err(Failure::Busy);
        }
        self.next += 1;
        let claim = ClaimId::new(self.next);
        self.busy.insert(name);
        self.waiting.insert(claim, (name, purpose));
        Ok(claim)
    }

    pub(crate) fn end(&mut self, claim: ClaimId) -> Option<(Name, ClaimPurpose)> {
        let (name, purpose) = self.waiting.remove(&claim)?;
        self.busy.remove(&name);
        Some((name, purpose))
    }
}
