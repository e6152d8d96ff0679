//! Permission oracle: compares the replies to clients with the permissions that the homes recorded.

use ddss_core::{Permissions, Principal, Record, SegmentId};
use std::collections::BTreeMap;

/// Modes that owners set; most of them permit all clients.
pub(crate) const MODES: [u16; 8] = [0o666, 0o666, 0o666, 0o664, 0o660, 0o644, 0o640, 0o600];
/// Initial mode, which the owner soon restores.
pub(crate) const MODE_OPEN: u16 = 0o666;

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
    pub(crate) fn ever(&self, id: SegmentId, (from_us, to_us): (u64, u64), is: impl Fn(Permissions) -> bool) -> bool {
        let Some(times) = self.0.get(&id) else { return true };
        times.iter().enumerate().any(|(index, &(since_us, permissions))| {
            let until_us = times.get(index + 1).map_or(u64::MAX, |next| next.0);
            since_us <= to_us && until_us >= from_us && is(permissions)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ddss_core::{Access, NodeId, Spec};

    #[test]
    fn oracle_knows_the_permissions_at_each_time() {
        let id = SegmentId::new(NodeId(1), 0, 1);
        let mut permissions_oracle = PermissionOracle::default();
        for (since_us, mode) in [(10, 0o666), (20, 0o600), (30, 0o644)] {
            let permissions = Permissions { owner: user_of(0), mode };
            let name = ddss_core::Name::new("any").unwrap();
            permissions_oracle.note(
                since_us,
                &Record { segment: id, name, spec: Spec::new(8), permissions, at: 0, known_as: id, epoch: 0 },
            );
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
