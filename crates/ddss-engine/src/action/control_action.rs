//! Requests to the control plane, which decides about names and roles in the cluster.

use crate::ids::{ClaimId, StepId};
use crate::role::{Proposal, RoleAssignment};
use ddss_core::Name;

/// Request to the control plane.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ControlAction {
    /// Proposes a decision about a replicated segment to the cluster. If accepted, it comes back with
    /// [`Engine::assign_role`](crate::Engine::assign_role).
    Propose {
        /// Proposal to submit.
        decision: Proposal,
    },
    /// Reports that this node has no copy of a segment whose home has lost it, although these roles expect one here.
    ReportLost(RoleAssignment),
    /// Claims a name in the cluster. Answered with [`Engine::on_claimed`](crate::Engine::on_claimed).
    ClaimName {
        /// Id of the claim.
        claim: ClaimId,
        /// Name to claim.
        name: Name,
        /// Timeout in microseconds.
        within_us: u32,
    },
    /// Gives a name back to the cluster. Answered with [`Engine::on_disclaimed`](crate::Engine::on_disclaimed).
    ReleaseName {
        /// Id of the claim.
        claim: ClaimId,
        /// Name to give back.
        name: Name,
    },
    /// Asks the cluster for the home of a name. Answered with [`Engine::on_confirmed`](crate::Engine::on_confirmed).
    ConfirmName {
        /// Step that waits for the answer.
        step: StepId,
        /// Name to look up.
        name: Name,
        /// Timeout in microseconds.
        within_us: u32,
    },
}
