//! Who holds a segment's lock and who waits: for the lock, behind it, or for a newer version.
//!
//! One line, in order of arrival. Puts, atomics and (under Strict and Read) gets that find the lock held by another wait
//! in the same line as those who ask for the lock itself. Who makes a call under the lock waits for nobody.

use crate::engine::action::{CommitSource, RangeSet};
use crate::limits::WAITERS_PER_SEGMENT_MAX;
use crate::model::coherence::LockDependency;
use crate::model::segment::Principal;
use crate::request::operation::{ArenaRange, AtomicOp, LockRequest, LockToken, PutConditions};
use crate::{ChannelId, ClientId, NodeId, RequestId, Version};
use std::collections::VecDeque;

/// Who gets the answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Requester {
    /// A client of this node.
    Client(ChannelId, RequestId),
    /// Another node's engine.
    Peer(NodeId, u64),
}

impl Requester {
    pub(crate) fn owner(self) -> LockOwner {
        match self {
            Requester::Client(lane, _) => LockOwner::Client(lane.client),
            Requester::Peer(node, _) => LockOwner::Peer(node),
        }
    }
}

/// With whom a lock ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum LockOwner {
    Client(ClientId),
    Peer(NodeId),
}

/// What is asked of a segment at home here.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum PendingOp {
    Get(Get),
    Put { parts: RangeSet, source: CommitSource, terms: PutConditions },
    Atomic { offset: u64, change: AtomicOp, token: Option<LockToken> },
    Lock(LockRequest),
}

/// A get as its home sees it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Get {
    pub(crate) parts: RangeSet,
    pub(crate) sink: Destination,
    pub(crate) minds: LockDependency,
    pub(crate) version: Option<Version>,
    /// The lock that the asker holds: its own gets do not wait for it.
    pub(crate) token: Option<LockToken>,
}

/// Where the bytes of a get go.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Destination {
    /// To a client of this node.
    Arena(ArenaRange),
    /// Into the completion.
    Inline,
    /// To the node that asked.
    Peer,
}

/// One in the line.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Waiter {
    pub(crate) asker: Requester,
    pub(crate) who: Principal,
    pub(crate) wanted: PendingOp,
    pub(crate) deadline_us: u64,
}

/// One who holds the lock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Holder {
    pub(crate) token: LockToken,
    pub(crate) owner: LockOwner,
    pub(crate) shared: bool,
    pub(crate) until_us: u64,
}

/// One who waits for a version.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Watcher {
    pub(crate) asker: Requester,
    pub(crate) above: Version,
    pub(crate) deadline_us: u64,
}

/// The lock and the lines of one segment.
#[derive(Debug, Default)]
pub(crate) struct LockQueue {
    holders: Vec<Holder>,
    line: VecDeque<Waiter>,
    watchers: Vec<Watcher>,
    /// The word of an atomic is being looked at: nothing else may happen before it is done.
    pub(crate) looking: bool,
    /// Nothing at all may be done here: this node may not be the home any more.
    pub(crate) shut: bool,
    /// Nothing but gets: a put is on its way to the mirror.
    pub(crate) held: bool,
    /// The same: the segment is being brought to another place.
    pub(crate) moving: bool,
}

impl LockQueue {
    /// Whether anything here needs time or a client's end to be noticed.
    pub(crate) fn is_idle(&self) -> bool {
        self.holders.is_empty() && self.line.is_empty() && self.watchers.is_empty() && !self.held && !self.moving
    }

    /// When time alone has something to do here, on the steady clock: a lease or the wait for a version ends. At once where
    /// somebody waits in the line or for this node's leave, which is looked at again and again.
    pub(crate) fn due_us(&self) -> u64 {
        if !self.line.is_empty() || self.held || self.moving || self.looking || self.shut {
            return 0;
        }
        let leases = self.holders.iter().map(|holder| holder.until_us);
        let waits = self.watchers.iter().map(|watcher| watcher.deadline_us);
        leases.chain(waits).min().unwrap_or(u64::MAX)
    }

    /// Whether nobody is or will be in anybody's way.
    #[inline]
    pub(crate) fn is_free(&self) -> bool {
        self.is_idle() && !self.looking && !self.shut
    }

    /// Whether somebody holds the lock alone.
    pub(crate) fn held_alone(&self) -> bool {
        self.holders.iter().any(|holder| !holder.shared)
    }

    /// Whether that grant is still in force, alone, and of who uses it: anybody who may read the header knows its number.
    pub(crate) fn admits(&self, token: LockToken, owner: LockOwner, now_us: u64) -> bool {
        let admits = |holder: &Holder| holder.token == token && holder.owner == owner && !holder.shared;
        self.holders.iter().any(|holder| admits(holder) && holder.until_us > now_us)
    }

    /// Whether `wanted` has to wait behind the lock or behind others; `minds` is what the model says of it.
    pub(crate) fn must_wait(&self, wanted: &PendingOp, owner: LockOwner, minds: bool) -> bool {
        if self.looking || self.shut {
            return true;
        }
        match wanted {
            PendingOp::Get(get) => self.is_in_the_way(get, owner),
            _ if self.held || self.moving => true,
            PendingOp::Lock(wish) if wish.shared => self.held_alone() || !self.line.is_empty(),
            PendingOp::Lock(_) => !self.holders.is_empty() || !self.line.is_empty(),
            PendingOp::Put { .. } | PendingOp::Atomic { .. } => minds && !self.holders.is_empty(),
        }
    }

    /// Whether a holder keeps a get from what it wants. A client is known by itself, a client of another node by the
    /// token of its lock.
    fn is_in_the_way(&self, get: &Get, owner: LockOwner) -> bool {
        let own = |holder: &Holder| {
            Some(holder.token) == get.token || matches!(owner, LockOwner::Client(_)) && holder.owner == owner
        };
        match get.minds {
            LockDependency::Nobody => false,
            LockDependency::Alone => self.holders.iter().any(|holder| !holder.shared && !own(holder)),
            LockDependency::Anyone => self.holders.iter().any(|holder| !own(holder)),
        }
    }

    /// Whether this client of the home's own node holds the lock, alone or shared.
    pub(crate) fn is_held_by(&self, owner: LockOwner) -> bool {
        matches!(owner, LockOwner::Client(_)) && self.holders.iter().any(|holder| holder.owner == owner)
    }

    /// How many hold it.
    pub(crate) fn holders(&self) -> usize {
        self.holders.len()
    }

    /// How many wait in line.
    pub(crate) fn waiting(&self) -> usize {
        self.line.len()
    }

    /// Puts one at the end of the line; `false` when it is too long.
    pub(crate) fn wait(&mut self, waiter: Waiter) -> bool {
        let room = self.line.len() < WAITERS_PER_SEGMENT_MAX;
        if room {
            self.line.push_back(waiter);
        }
        room
    }

    /// The first of the line, if it may go now. Whether a put or get minds the lock was asked when it came.
    pub(crate) fn next_ready(&mut self) -> Option<Waiter> {
        if self.looking || self.shut {
            return None;
        }
        if self.held || self.moving {
            return self.next_get();
        }
        let first = self.line.front()?;
        let ready = match first.wanted {
            PendingOp::Lock(wish) if wish.shared => !self.held_alone(),
            PendingOp::Get(get) => !self.is_in_the_way(&get, first.asker.owner()),
            PendingOp::Put { terms: PutConditions { token: Some(_), .. }, .. }
            | PendingOp::Atomic { token: Some(_), .. } => true,
            PendingOp::Lock(_) | PendingOp::Put { .. } | PendingOp::Atomic { .. } => self.holders.is_empty(),
        };
        if ready { self.line.pop_front() } else { None }
    }

    /// The first get of the line that waits for nobody but the one put that is on its way to the mirror.
    fn next_get(&mut self) -> Option<Waiter> {
        let may = |waiter: &Waiter| match &waiter.wanted {
            PendingOp::Get(get) => !self.is_in_the_way(get, waiter.asker.owner()),
            _ => false,
        };
        let index = self.line.iter().position(may)?;
        self.line.remove(index)
    }

    /// Notes a grant; `false` when there are too many.
    pub(crate) fn grant(&mut self, holder: Holder) -> bool {
        let room = self.holders.len() < WAITERS_PER_SEGMENT_MAX;
        if room {
            self.holders.push(holder);
        }
        room
    }

    /// Takes a grant back; `false` if it is not in force.
    pub(crate) fn let_go(&mut self, token: LockToken, owner: LockOwner) -> bool {
        let before = self.holders.len();
        self.holders.retain(|holder| holder.token != token || holder.owner != owner);
        self.holders.len() < before
    }

    /// All grants are taken back; how many there were.
    pub(crate) fn let_all_go(&mut self) -> usize {
        std::mem::take(&mut self.holders).len()
    }

    /// The one who keeps others out: who holds it alone, else who shares it for the longest time from now on.
    pub(crate) fn first_holder(&self) -> Option<&Holder> {
        self.holders.iter().max_by_key(|holder| (!holder.shared, holder.until_us))
    }

    /// Whoever is gone holds nothing and waits for nothing. Those of the line are returned, for what they kept.
    pub(crate) fn gone(&mut self, owner: LockOwner) -> Vec<Waiter> {
        self.holders.retain(|holder| holder.owner != owner);
        self.watchers.retain(|watcher| watcher.asker.owner() != owner);
        let line = std::mem::take(&mut self.line);
        let (left, stay): (Vec<_>, Vec<_>) = line.into_iter().partition(|waiter| waiter.asker.owner() == owner);
        self.line = stay.into();
        left
    }

    /// Leases end; says whether one did.
    pub(crate) fn expire_leases(&mut self, now_us: u64) -> bool {
        let before = self.holders.len();
        self.holders.retain(|holder| holder.until_us > now_us);
        self.holders.len() < before
    }

    /// One in the line whose deadline passed.
    pub(crate) fn next_late(&mut self, now_us: u64) -> Option<Waiter> {
        let index = self.line.iter().position(|waiter| waiter.deadline_us <= now_us)?;
        self.line.remove(index)
    }

    /// Takes the one of that asker out of the line.
    pub(crate) fn take_waiter(&mut self, asker: Requester) -> Option<Waiter> {
        let index = self.line.iter().position(|waiter| waiter.asker == asker)?;
        self.line.remove(index)
    }

    /// Takes the one of that asker from those who wait for a version; `false` if there is none.
    pub(crate) fn take_watcher(&mut self, asker: Requester) -> bool {
        let index = self.watchers.iter().position(|watcher| watcher.asker == asker);
        index.is_some_and(|index| self.watchers.swap_remove(index).asker == asker)
    }

    pub(crate) fn watch(&mut self, watcher: Watcher) -> bool {
        let room = self.watchers.len() < WAITERS_PER_SEGMENT_MAX;
        if room {
            self.watchers.push(watcher);
        }
        room
    }

    /// One who waits for a version that is there now.
    pub(crate) fn next_seen(&mut self, version: Version) -> Option<Watcher> {
        let index = self.watchers.iter().position(|watcher| watcher.above < version)?;
        Some(self.watchers.swap_remove(index))
    }

    /// One who has waited for a version for too long.
    pub(crate) fn next_unseen(&mut self, now_us: u64) -> Option<Watcher> {
        let index = self.watchers.iter().position(|watcher| watcher.deadline_us <= now_us)?;
        Some(self.watchers.swap_remove(index))
    }

    /// Those who wait for a lock or for a version, or (`all`) for anything.
    pub(crate) fn hopeless(&mut self, all: bool) -> (Vec<Waiter>, Vec<Watcher>) {
        let line = std::mem::take(&mut self.line);
        let wants_lock = |waiter: &Waiter| all || matches!(waiter.wanted, PendingOp::Lock(_));
        let (left, stay): (Vec<_>, Vec<_>) = line.into_iter().partition(wants_lock);
        self.line = stay.into();
        (left, std::mem::take(&mut self.watchers))
    }

    /// Everybody in both lines: the segment is gone.
    pub(crate) fn empty(&mut self) -> (Vec<Waiter>, Vec<Watcher>) {
        self.holders.clear();
        (std::mem::take(&mut self.line).into(), std::mem::take(&mut self.watchers))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOBODY: Principal = Principal { uid: 0, gid: 0 };

    fn lock(node: u16, shared: bool) -> Waiter {
        let wish = LockRequest { shared, no_wait: false, lease_us: 1 };
        Waiter { asker: Requester::Peer(NodeId(node), 0), who: NOBODY, wanted: PendingOp::Lock(wish), deadline_us: 100 }
    }

    fn hold(node: u16, shared: bool) -> Holder {
        Holder { token: LockToken(node.into()), owner: LockOwner::Peer(NodeId(node)), shared, until_us: 50 }
    }

    #[test]
    fn the_line_goes_in_order_and_readers_do_not_pass_a_waiting_writer() {
        // If this broke, a stream of readers could keep a writer out for ever.
        let mut guard = LockQueue::default();
        guard.grant(hold(1, true));
        let (alone, shared) = (lock(2, false), lock(3, true));
        assert!(guard.must_wait(&alone.wanted, alone.asker.owner(), true));
        assert!(guard.wait(alone));
        assert!(guard.must_wait(&shared.wanted, shared.asker.owner(), true));
        assert!(guard.wait(shared));
        assert_eq!(guard.next_ready(), None);
        assert!(guard.let_go(LockToken(1), LockOwner::Peer(NodeId(1))));
        assert_eq!(guard.next_ready(), Some(alone));
        guard.grant(hold(2, false));
        assert_eq!(guard.next_ready(), None);
        assert!(!guard.let_go(LockToken(2), LockOwner::Peer(NodeId(9))), "only its owner lets go");
        assert!(guard.let_go(LockToken(2), LockOwner::Peer(NodeId(2))));
        assert_eq!(guard.next_ready(), Some(shared));
    }

    #[test]
    fn a_lease_that_ran_out_admits_nothing() {
        // If this broke, a holder that was away for too long could overwrite its successor's put.
        let mut guard = LockQueue::default();
        guard.grant(hold(1, false));
        let owner = LockOwner::Peer(NodeId(1));
        assert!(guard.admits(LockToken(1), owner, 49));
        assert!(!guard.admits(LockToken(1), owner, 50));
        assert!(!guard.admits(LockToken(1), LockOwner::Peer(NodeId(2)), 49), "it is another's");
        assert!(guard.expire_leases(50));
        assert!(guard.is_idle());
    }

    #[test]
    fn the_dead_hold_nothing() {
        // If this broke, a lock would outlive its holder.
        let mut guard = LockQueue::default();
        guard.grant(hold(1, false));
        guard.wait(lock(1, false));
        guard.wait(lock(2, false));
        assert_eq!(guard.gone(LockOwner::Peer(NodeId(1))).len(), 1);
        assert_eq!(guard.next_ready(), Some(lock(2, false)));
    }
}
