//! Priority of calls where capacity is short: for channels and for arena memory.

use ddss_core::{LockToken, Operation};

/// Priority of a call for capacity. A call never waits for capacity that lower priorities may use for long.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Priority {
    /// A call under a lock, or its release: other clients wait for these.
    Holder,
    /// Any other call.
    Call,
    /// A call that waits for an event: a lock, or a new version.
    Wait,
}

impl Priority {
    pub(crate) const COUNT: usize = 3;
    pub(crate) const ALL: [Self; Self::COUNT] = [Self::Holder, Self::Call, Self::Wait];

    pub(crate) const fn index(self) -> usize {
        self as usize
    }

    /// Returns the priority of a call with this lock token.
    #[inline]
    pub(crate) const fn under(token: Option<LockToken>) -> Self {
        if token.is_some() { Self::Holder } else { Self::Call }
    }

    #[inline]
    pub(crate) const fn of(operation: &Operation) -> Self {
        match operation {
            Operation::Await { .. } => Self::Wait,
            Operation::Lock { lock_request, .. } if !lock_request.no_wait => Self::Wait,
            other => Self::under(other.token()),
        }
    }
}
