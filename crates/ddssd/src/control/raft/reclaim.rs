//! Segments of an earlier cluster whose state is lost: the last home of each has what was put since its takeover.

use super::directory::{Directory, DirectoryChange, ReplicaRecord};
use super::types::CommandResult;
use ddss_core::SegmentId;

impl Directory {
    /// Makes a node the home of a segment that it had taken over in an earlier cluster. An earlier home that has claimed the
    /// name for this segment becomes its replica. A segment of this cluster keeps its name.
    pub(super) fn reclaim(
        &mut self,
        name: &str,
        node: u16,
        (segment, epoch): (u64, u32),
        claim: u64,
        on_change: impl FnMut(DirectoryChange),
    ) -> CommandResult {
        let first_home = SegmentId::from_bits(segment).home().0;
        let mut replica = first_home;
        if let Some(owner) = self.holder(name) {
            match owner.roles {
                Some(roles) if roles.segment == segment && roles.epoch >= epoch => return CommandResult::Done,
                // A home of the earlier cluster, as its claim says. One that took over in this cluster has later puts.
                Some(roles) if roles.segment == segment && owner.claim >> 32 == 0 => {}
                // It has no replica yet.
                None if (owner.home, owner.claim) == (first_home, 0) => {}
                _ => return CommandResult::Taken { home: owner.home },
            }
            replica = owner.home;
        }
        let replica = if replica == node { 0 } else { replica };
        let roles = ReplicaRecord { segment, replica, epoch, turn: 0, paired: false, vacant: false };
        self.set_home(name, node, claim, roles, on_change);
        CommandResult::Done
    }
}

#[cfg(test)]
mod tests {
    use super::super::types::Command;
    use super::*;
    use ddss_core::NodeId;

    fn claim(home: u16, claim: u64) -> Command {
        Command::Claim { name: "x".to_owned(), home, claim }
    }

    fn pair(segment: u64, home: u16, epoch: u32, replica: u16) -> Command {
        let name = "x".to_owned();
        Command::Pair { name, home, run: 0, segment, epoch, turn: 1, replica }
    }

    /// A segment whose first home was node 2.
    fn segment() -> u64 {
        SegmentId::new(NodeId(2), 5, 9).to_bits()
    }

    /// Returns the result, the home and the epoch after a reclaim by node 3, and whether it changed anything.
    fn reclaimed(before: &[Command], epoch: u32) -> (CommandResult, u16, Option<u32>, bool) {
        let (mut directory, mut changes) = (Directory::default(), 0);
        for command in before {
            assert_eq!(directory.apply(command, |_| {}), CommandResult::Done, "{command:?}");
        }
        let reclaim = Command::Reclaim { name: "x".to_owned(), node: 3, segment: segment(), epoch, claim: 7 };
        assert!(reclaim.is_valid());
        let result = directory.apply(&reclaim, |_| changes += 1);
        assert!(directory.apply(&reclaim, |_| panic!("changed again")) == result);
        let owner = directory.holder("x").unwrap();
        assert_eq!(directory.names().filter(|(_, found)| found.home == owner.home).count(), 1);
        assert!(directory.has_replicas(owner.home) == owner.roles.is_some());
        (result, owner.home, owner.roles.map(|roles| roles.epoch), changes > 0)
    }

    #[test]
    fn last_home_replaces_earlier_ones_and_no_other_segment() {
        // If this broke, a cluster that is founded again would serve a segment as it was before a takeover, or give the name
        // of a new segment away.
        use CommandResult::{Done, Taken};
        assert_eq!(reclaimed(&[], 2), (Done, 3, Some(2), true), "nobody was there before");
        assert_eq!(reclaimed(&[claim(2, 0)], 2), (Done, 3, Some(2), true), "the first home was faster");
        assert_eq!(
            reclaimed(&[claim(2, 0), pair(segment(), 2, 1, 1)], 2),
            (Done, 3, Some(2), true),
            "and has a replica"
        );
        let reclaim =
            |node, epoch| Command::Reclaim { name: "x".to_owned(), node, segment: segment(), epoch, claim: 8 };
        assert_eq!(
            reclaimed(&[reclaim(1, 2), pair(segment(), 1, 2, 2)], 3),
            (Done, 3, Some(3), true),
            "an earlier takeover"
        );
        assert_eq!(reclaimed(&[reclaim(1, 4)], 3), (Done, 1, Some(4), false), "a later takeover");
        let take_over = Command::TakeOver { name: "x".to_owned(), node: 1, epoch: 1, claim: 1 << 32 | 1 << 31 | 1 };
        let before = [claim(2, 0), pair(segment(), 2, 1, 1), take_over];
        assert_eq!(reclaimed(&before, 3), (Taken { home: 1 }, 1, Some(2), false), "a takeover in this cluster");
        assert_eq!(
            reclaimed(&[claim(1, 0)], 2),
            (Taken { home: 1 }, 1, None, false),
            "an older segment of another node"
        );
        assert_eq!(reclaimed(&[claim(2, 7)], 2), (Taken { home: 2 }, 2, None, false), "a new segment");
        assert_eq!(
            reclaimed(&[claim(1, 0), pair(77, 1, 1, 2)], 2),
            (Taken { home: 1 }, 1, Some(1), false),
            "another segment"
        );
    }
}
