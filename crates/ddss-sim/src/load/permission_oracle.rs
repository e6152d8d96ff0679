//! Who may do what, and since when: what clients are told is held against what the homes wrote down.

use super::workload::{Asked, Kind};
use crate::cluster::simulator::World;
use ddss_core::{Access, Permissions, Principal, Record, SegmentId};
use std::collections::BTreeMap;

/// The modes that owners give; most of them let everybody go on.
pub(crate) const MODES: [u16; 8] = [0o666, 0o666, 0o666, 0o664, 0o660, 0o644, 0o640, 0o600];
/// What a segment has from the start, and what its owner soon gives it back.
pub(crate) const MODE_OPEN: u16 = 0o666;

/// How long a node may go by what it noted of a segment before it hears of the change: as long as it may stand still, and
/// as a message may take.
const HEARSAY_US: u64 = 40_000;

/// Who a client is: the owner of what is there from the start, one of its group, or a stranger.
pub(crate) fn user_of(index: usize) -> Principal {
    let (uid, gid) = [(1000, 1000), (1001, 1000), (1002, 1002)][index % 3];
    Principal { uid, gid }
}

/// The permissions of each segment, from when on, as its home wrote them down.
#[derive(Debug, Default)]
pub(crate) struct Rights(BTreeMap<SegmentId, Vec<(u64, Permissions)>>);

impl Rights {
    pub(crate) fn note(&mut self, now_us: u64, record: &Record) {
        self.0.entry(record.known_as).or_default().push((now_us, record.permissions));
    }

    /// The newest ones.
    pub(crate) fn now(&self, id: SegmentId) -> Option<Permissions> {
        self.0.get(&id)?.last().map(|&(_, permissions)| permissions)
    }

    /// Whether at some moment between the two they were as `is` says. Of what nobody wrote down, everything is true.
    fn ever(&self, id: SegmentId, (from_us, to_us): (u64, u64), is: impl Fn(Permissions) -> bool) -> bool {
        let Some(times) = self.0.get(&id) else { return true };
        times.iter().enumerate().any(|(index, &(since_us, permissions))| {
            let until_us = times.get(index + 1).map_or(u64::MAX, |next| next.0);
            since_us <= to_us && until_us >= from_us && is(permissions)
        })
    }
}

/// What a call needs.
fn wish_of(kind: Kind) -> Option<Access> {
    match kind {
        Kind::Get | Kind::GetAsking(_) | Kind::GetAt(_) | Kind::GetMany | Kind::GetHeld => Some(Access::Read),
        Kind::Await(_) | Kind::Lock { shared: true } | Kind::GetGone => Some(Access::Read),
        Kind::Put | Kind::PutIf(_) | Kind::PutMany | Kind::PutHeld => Some(Access::Write),
        Kind::Add | Kind::AddHeld | Kind::Lock { shared: false } => Some(Access::Write),
        Kind::Permit(_) | Kind::Release(_) => Some(Access::Release),
        Kind::Unlock | Kind::Stat | Kind::List(_) | Kind::Make(_) | Kind::Open(_) => None,
    }
}

fn hears(permissions: Permissions, who: Principal) -> bool {
    [Access::Read, Access::Write, Access::Release].iter().any(|&wish| permissions.allow(who, wish).is_ok())
}

impl World {
    /// A call that was done was allowed at some moment of it. What its node could decide by itself (a get) may go by what
    /// it heard last.
    pub(crate) fn check_allowed(&mut self, index: usize, asked: &Asked) {
        let Some(wish) = wish_of(asked.kind) else { return };
        let (who, hearsay_us) = (user_of(index), if wish == Access::Read { HEARSAY_US } else { 0 });
        let times = (asked.began_us.saturating_sub(hearsay_us), self.now_us);
        if !self.rights.ever(asked.target.id, times, |permissions| permissions.allow(who, wish).is_ok()) {
            self.violation(format!("done by user {}, who may not: {asked:?}", who.uid));
        }
    }

    /// Whether a call may have been refused.
    pub(crate) fn may_be_refused(&self, index: usize, asked: &Asked) -> bool {
        let who = user_of(index);
        let times = (asked.began_us.saturating_sub(HEARSAY_US), self.now_us);
        let is = |permissions: Permissions| match wish_of(asked.kind) {
            Some(wish) => permissions.allow(who, wish).is_err(),
            None => !hears(permissions, who),
        };
        // A name says nothing of whose segment it was at that moment.
        matches!(asked.kind, Kind::Open(_)) || self.rights.ever(asked.target.id, times, is)
    }

    /// Whether a list may leave a segment out for a client.
    pub(crate) fn may_be_hidden(&self, index: usize, began_us: u64, id: SegmentId) -> bool {
        let who = user_of(index);
        self.rights.ever(id, (began_us, self.now_us), |permissions| !hears(permissions, who))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ddss_core::{NodeId, Spec};

    #[test]
    fn what_was_allowed_at_some_moment_is_told_from_what_never_was() {
        // If this broke, a client that reads what it may not would pass every run.
        let id = SegmentId::new(NodeId(1), 0, 1);
        let mut rights = Rights::default();
        for (since_us, mode) in [(10, 0o666), (20, 0o600), (30, 0o644)] {
            let permissions = Permissions { owner: user_of(0), mode };
            let name = ddss_core::Name::new("any").unwrap();
            rights.note(since_us, &Record { segment: id, name, spec: Spec::new(8), permissions, at: 0, known_as: id });
        }
        let ever = |from_us, to_us, wish, may| {
            rights.ever(id, (from_us, to_us), |permissions| permissions.allow(user_of(2), wish).is_ok() == may)
        };
        assert!(ever(21, 29, Access::Read, false) && !ever(21, 29, Access::Read, true));
        assert!(ever(15, 29, Access::Read, true) && ever(29, 31, Access::Read, true));
        assert!(!ever(31, 90, Access::Read, false) && !ever(31, 90, Access::Write, true));
        assert_eq!(rights.now(id).map(|permissions| permissions.mode), Some(0o644));
    }
}
