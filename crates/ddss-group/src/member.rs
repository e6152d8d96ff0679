//! Numbers of members.

use ddss_auth::Identity;
use std::fmt;

/// Most members of a group.
pub const MEMBERS_MAX: u16 = 64;

/// Number of a member, from 0.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Member(pub u16);

impl fmt::Display for Member {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "member {}", self.0)
    }
}

/// One process in the place of a member. A process that takes the place of a dead one has another run.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Incarnation {
    /// Number of the member.
    pub member: Member,
    /// Random number of the process; never 0.
    pub run: u32,
}

impl Incarnation {
    pub(crate) fn encode(self) -> Identity {
        let (member, run) = (self.member.0.to_le_bytes(), self.run.to_le_bytes());
        [member[0], member[1], run[0], run[1], run[2], run[3]]
    }

    pub(crate) fn decode(identity: &Identity) -> Self {
        let [low, high, run @ ..] = *identity;
        Self { member: Member(u16::from_le_bytes([low, high])), run: u32::from_le_bytes(run) }
    }
}
