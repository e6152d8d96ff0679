//! Priority of calls where room is short: on the lanes, and in the memory that they carry.

use ddss_core::{LockToken, Operation};

/// Priority of a call for room. A call never waits for room that calls below it may hold for long.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Priority {
    /// A call under a lock, and its release: others wait for these.
    Holder,
    /// Any other call.
    Call,
    /// A call whose purpose is to wait: for a lock, or for a version.
    Wait,
}

impl Priority {
    pub(crate) const COUNT: usize = 3;
    pub(crate) const ALL: [Self; Self::COUNT] = [Self::Holder, Self::Call, Self::Wait];

    pub(crate) const fn index(self) -> usize {
        self as usize
    }

    /// That of a call that is made under a lock, or not.
    #[inline]
    pub(crate) const fn under(token: Option<LockToken>) -> Self {
        if token.is_some() { Self::Holder } else { Self::Call }
    }

    #[inline]
    pub(crate) const fn of(operation: &Operation) -> Self {
        match operation {
            Operation::Await { .. } => Self::Wait,
            Operation::Lock { wish, .. } if !wish.no_wait => Self::Wait,
            other => Self::under(other.token()),
        }
    }
}
