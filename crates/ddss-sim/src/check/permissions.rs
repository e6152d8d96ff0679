//! Checks that permissions hold: no call is executed without them, and none refused with them.

use crate::cluster::simulator::Simulator;
use crate::load::calls::{Kind, PendingCall};
use crate::oracle::permission_oracle::user_of;
use ddss_core::{Access, Permissions, Principal, SegmentId};

/// Maximum time for which a node may use outdated permissions: its longest pause plus the longest message delay.
const STALE_PERMISSION_MAX_US: u64 = 40_000;

/// Returns the access that a call needs.
fn access_of(kind: Kind) -> Option<Access> {
    match kind {
        Kind::Get | Kind::GetAsking(_) | Kind::GetAt(_) | Kind::GetMany | Kind::GetHeld => Some(Access::Read),
        Kind::Await(_) | Kind::AwaitAnyRow(_) | Kind::Lock { shared: true, .. } | Kind::GetGone | Kind::GetBucket => {
            Some(Access::Read)
        }
        Kind::Put | Kind::PutIf(_) | Kind::PutMany | Kind::PutHeld => Some(Access::Write),
        Kind::UploadPart | Kind::CommitUpload(_) | Kind::ChangeEntry(..) | Kind::Sweep => Some(Access::Write),
        Kind::Add | Kind::AddHeld | Kind::Lock { shared: false, .. } => Some(Access::Write),
        Kind::Permit(_) | Kind::Release(_) => Some(Access::Release),
        Kind::Unlock | Kind::Renew | Kind::Stat | Kind::List(_) | Kind::Make(_) | Kind::Open(_) => None,
    }
}

fn can_read(permissions: Permissions, principal: Principal) -> bool {
    [Access::Read, Access::Write, Access::Release].iter().any(|&access| permissions.allow(principal, access).is_ok())
}

impl Simulator {
    /// Checks that a completed call was permitted at some time during the call. A get, which its node decides, may use
    /// outdated permissions.
    pub(crate) fn check_allowed(&mut self, index: usize, asked: &PendingCall) {
        if asked.kind == Kind::UploadPart {
            // A part changes nothing: its commit is checked.
            return;
        }
        let Some(access) = access_of(asked.kind) else { return };
        let (principal, hearsay_us) =
            (user_of(index), if access == Access::Read { STALE_PERMISSION_MAX_US } else { 0 });
        let times = (asked.began_us.saturating_sub(hearsay_us), self.now_us);
        if !self
            .checks
            .permissions
            .ever(asked.target.id, times, |permissions| permissions.allow(principal, access).is_ok())
        {
            self.violation(format!("done by user {}, who may not: {asked:?}", principal.uid));
        }
    }

    /// Returns true if a call may have been refused.
    pub(crate) fn may_be_refused(&self, index: usize, asked: &PendingCall) -> bool {
        let principal = user_of(index);
        let times = (asked.began_us.saturating_sub(STALE_PERMISSION_MAX_US), self.now_us);
        let is = |permissions: Permissions| match access_of(asked.kind) {
            Some(access) => permissions.allow(principal, access).is_err(),
            None => !can_read(permissions, principal),
        };
        // A name does not identify the segment that had it at that time.
        matches!(asked.kind, Kind::Open(_)) || self.checks.permissions.ever(asked.target.id, times, is)
    }

    /// Returns true if a list may omit a segment for a client.
    pub(crate) fn may_be_hidden(&self, index: usize, began_us: u64, id: SegmentId) -> bool {
        let principal = user_of(index);
        self.checks.permissions.ever(id, (began_us, self.now_us), |permissions| !can_read(permissions, principal))
    }
}
