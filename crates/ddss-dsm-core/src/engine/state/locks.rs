//! Locks, as their users and as their manager see them.

use crate::engine::call::CallId;
use crate::model::{Rank, VectorTime};
use std::collections::{BTreeMap, VecDeque};

/// Where the token of a lock is, as a rank sees it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) enum Token {
    /// With another rank.
    #[default]
    Absent,
    /// With another rank, which this rank has asked for it.
    Requested,
    /// Here, and the notices that came with it are not applied yet.
    Acquiring,
    /// Here, until another rank asks for it.
    Here,
}

/// One lock at this rank.
#[derive(Clone, Debug, Default)]
pub(crate) struct Lock {
    pub(crate) token: Token,
    /// True while a call holds the lock.
    pub(crate) is_held: bool,
    /// Calls that wait.
    pub(crate) waiters: VecDeque<CallId>,
    /// Rank that gets the token next, with the intervals that it knows.
    pub(crate) next: Option<(Rank, VectorTime)>,
    /// At the manager: the rank that asked last. `None` if no rank has.
    pub(crate) last_asker: Option<Rank>,
}

/// All locks that this rank uses or manages.
#[derive(Clone, Debug, Default)]
pub(crate) struct Locks(BTreeMap<u32, Lock>);

impl Locks {
    /// Returns a lock. The manager of a new one has its token.
    pub(crate) fn entry(&mut self, index: u32, is_manager: bool) -> &mut Lock {
        let token = if is_manager { Token::Here } else { Token::Absent };
        self.0.entry(index).or_insert_with(|| Lock { token, ..Lock::default() })
    }
}
