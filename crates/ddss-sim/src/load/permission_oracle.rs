//! Permission oracle: compares the replies to clients with the permissions that the homes recorded.

use super::workload::{Kind, PendingCall};
use crate::cluster::simulator::Simulator;
use ddss_core::{Access, Permissions, Principal, Record, SegmentId};
use std::collections::BTreeMap;

/// Modes that owners set; most of them permit all clients.
pub(crate) const MODES: [u16; 8] = [0o666, 0o666, 0o666, 0o664, 0o660, 0o644, 0o640, 0o600];
/// Initial mode, which the owner soon restores.
pub(crate) const MODE_OPEN: u16 = 0o666;

/// Maximum time for which a node may use outdated permissions: its longest pause plus the longest message delay.
const STALE_PERMISSION_MAX_US: u64 = 40_000;

/// Returns the user of a client: the owner of the permanent segments, a member of its group, or another user.
pub(crate) fn user_of(index: usize) -> Principal {
    let (uid, gid) = [(1000, 1000), (1001, 1000), (1002, 1002)][index % 3];
    Principal { uid, gid }
}

/// Permissions of each segment, with the time of each change at its home.
#[derive(Debug, Default)]
pub(crate) struct PermissionOracle(BTreeMap<SegmentId, Vec<(u64, Permissions)>>);

impl PermissionOracle {
    pub(crate) fn note(&mut self, now_us: u64, record: &Record) {
        self.0.entry(record.known_as).or_default().push((now_us, record.permissions));
    }

    /// Returns the present permissions.
    pub(crate) fn now(&self, id: SegmentId) -> Option<Permissions> {
        self.0.get(&id)?.last().map(|&(_, permissions)| permissions)
    }

    /// Returns true if `is` held at some time of the interval, or if no permissions are recorded.
    fn ever(&self, id: SegmentId, (from_us, to_us): (u64, u64), is: impl Fn(Permissions) -> bool) -> bool {
        let Some(times) = self.0.get(&id) else { return true };
        times.iter().enumerate().any(|(index, &(since_us, permissions))| {
            let until_us = times.get(index + 1).map_or(u64::MAX, |next| next.0);
            since_us <= to_us && until_us >= from_us && is(permissions)
        })
    }
}

/// Returns the access that a call needs.
fn access_of(kind: Kind) -> Option<Access> {
    match kind {
        Kind::Get | Kind::GetAsking(_) | Kind::GetAt(_) | Kind::GetMany | Kind::GetHeld => Some(Access::Read),
        Kind::Await(_) | Kind::Lock { shared: true } | Kind::GetGone => Some(Access::Read),
        Kind::Put | Kind::PutIf(_) | Kind::PutMany | Kind::PutHeld => Some(Access::Write),
        Kind::Add | Kind::AddHeld | Kind::Lock { shared: false } => Some(Access::Write),
        Kind::Permit(_) | Kind::Release(_) => Some(Access::Release),
        Kind::Unlock | Kind::Stat | Kind::List(_) | Kind::Make(_) | Kind::Open(_) => None,
    }
}

fn can_read(permissions: Permissions, principal: Principal) -> bool {
    [Access::Read, Access::Write, Access::Release].iter().any(|&access| permissions.allow(principal, access).is_ok())
}

impl Simulator {
    /// Checks that a completed call was permitted at some time during the call. A get, which its node decides, may use
    /// outdated permissions.
    pub(crate) fn check_allowed(&mut self, index: usize, asked: &PendingCall) {
        let Some(access) = access_of(asked.kind) else { return };
        let (principal, hearsay_us) =
            (user_of(index), if access == Access::Read { STALE_PERMISSION_MAX_US } else { 0 });
        let times = (asked.began_us.saturating_sub(hearsay_us), self.now_us);
        if !self
            .permissions_oracle
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
        // A name does not tell which segment had it at that time.
        matches!(asked.kind, Kind::Open(_)) || self.permissions_oracle.ever(asked.target.id, times, is)
    }

    /// Returns true if a list may omit a segment for a client.
    pub(crate) fn may_be_hidden(&self, index: usize, began_us: u64, id: SegmentId) -> bool {
        let principal = user_of(index);
        self.permissions_oracle.ever(id, (began_us, self.now_us), |permissions| !can_read(permissions, principal))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ddss_core::{NodeId, Spec};

    #[test]
    fn oracle_knows_the_permissions_at_each_time() {
        let id = SegmentId::new(NodeId(1), 0, 1);
        let mut permissions_oracle = PermissionOracle::default();
        for (since_us, mode) in [(10, 0o666), (20, 0o600), (30, 0o644)] {
            let permissions = Permissions { owner: user_of(0), mode };
            let name = ddss_core::Name::new("any").unwrap();
            permissions_oracle
                .note(since_us, &Record { segment: id, name, spec: Spec::new(8), permissions, at: 0, known_as: id });
        }
        let ever = |from_us, to_us, access, may| {
            permissions_oracle
                .ever(id, (from_us, to_us), |permissions| permissions.allow(user_of(2), access).is_ok() == may)
        };
        assert!(ever(21, 29, Access::Read, false) && !ever(21, 29, Access::Read, true));
        assert!(ever(15, 29, Access::Read, true) && ever(29, 31, Access::Read, true));
        assert!(!ever(31, 90, Access::Read, false) && !ever(31, 90, Access::Write, true));
        assert_eq!(permissions_oracle.now(id).map(|permissions| permissions.mode), Some(0o644));
    }
}
