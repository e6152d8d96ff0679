//! Queue of actions: the effects that the engine has decided and the daemon has yet to execute, in order.
//!
//! The actions of the shortest calls (a reply, or a commit and its reply) are built in a fixed place in front of the
//! queue and executed from there, since a pass through the queue takes longer than the decision itself.

use crate::action::{Action, Commit, CopyOut, Fetch, PeerAction, Reply, SegmentCommit};
use crate::ids::BufferId;
use ddss_core::{ChannelId, ClientId, Completion, Outcome, Payload, RequestId, Timestamp, Version};
use std::collections::VecDeque;

/// One entry. [`Action`] is as large as its largest variant, which holds a name. The few variants that make up nearly
/// all actions are queued inline, at a third of that size.
#[derive(Clone, Copy, Debug)]
enum QueuedAction {
    Reply(Reply),
    CopyOut(CopyOut),
    Commit(SegmentCommit),
    Fetch(Fetch),
    /// The next entry of the queue of other actions.
    Other,
    /// Frees a buffer: the actions before this one were its last users.
    FreeBuffer(BufferId),
}

/// All actions that are due, in order: the immediate commit, the immediate reply, the entries.
#[derive(Debug)]
pub(crate) struct ActionQueue {
    commit: Commit,
    has_commit: bool,
    reply: Reply,
    has_reply: bool,
    entries: VecDeque<QueuedAction>,
    /// Actions that [`QueuedAction::Other`] stands for, in order.
    others: VecDeque<Action>,
}

/// Actions that were taken out of the queue.
#[derive(Debug)]
pub(crate) struct SetAside(VecDeque<QueuedAction>, VecDeque<Action>);

impl ActionQueue {
    /// Entries for which memory is reserved at the start.
    const RESERVED: usize = 1024;

    pub(crate) fn new() -> Self {
        let client = ClientId { index: 0, generation: 0 };
        let reply = Reply {
            channel: ChannelId { client, index: 0 },
            completion: Completion::bare(RequestId(0), Outcome::Done),
            data: None,
        };
        let from = Payload::Inline { bytes: [0; _], length: 0 };
        let (at, offset, version, timestamp) = (0, 0, Version(0), Timestamp(0));
        let commit = Commit { at, offset, client, from, version, timestamp };
        let (entries, others) = (VecDeque::with_capacity(Self::RESERVED), VecDeque::with_capacity(Self::RESERVED));
        Self { commit, has_commit: false, reply, has_reply: false, entries, others }
    }

    /// Returns true if no action is due.
    #[inline(always)]
    pub(crate) fn is_empty(&self) -> bool {
        self.entries.is_empty() && !self.has_commit && !self.has_reply
    }

    /// Takes all actions out, so that others come before them; `None` if no action is due.
    pub(crate) fn set_aside(&mut self) -> Option<SetAside> {
        debug_assert!(!self.has_commit && !self.has_reply, "both leave before any other action");
        let is_due = !self.entries.is_empty();
        is_due.then(|| SetAside(std::mem::take(&mut self.entries), std::mem::take(&mut self.others)))
    }

    /// Puts actions back behind those that are due now.
    pub(crate) fn put_back(&mut self, SetAside(mut entries, mut others): SetAside) {
        self.entries.append(&mut entries);
        self.others.append(&mut others);
    }

    /// Appends an action.
    #[inline(always)]
    pub(crate) fn push(&mut self, action: Action) {
        let entry = match action {
            Action::Reply(reply) => QueuedAction::Reply(reply),
            Action::CopyOut(copy) => QueuedAction::CopyOut(copy),
            Action::Commit(commit) => QueuedAction::Commit(commit),
            Action::Peer(PeerAction::Fetch(fetch)) => QueuedAction::Fetch(fetch),
            other => {
                self.others.push_back(other);
                QueuedAction::Other
            }
        };
        self.entries.push_back(entry);
    }

    /// Appends the end of a buffer, after the actions that are due now.
    pub(crate) fn push_free(&mut self, buffer: BufferId) {
        self.entries.push_back(QueuedAction::FreeBuffer(buffer));
    }

    /// Appends a commit, as the immediate one if no action is due.
    #[inline(always)]
    pub(crate) fn push_commit(&mut self, commit: Commit) {
        if self.is_empty() {
            self.commit = commit;
            self.has_commit = true;
        } else {
            self.push(commit.action());
        }
    }

    /// Appends a reply, as the immediate one if at most the immediate commit comes before it.
    #[inline(always)]
    pub(crate) fn push_reply(&mut self, reply: Reply) {
        if self.entries.is_empty() && !self.has_reply {
            self.reply = reply;
            self.has_reply = true;
        } else {
            self.entries.push_back(QueuedAction::Reply(reply));
        }
    }

    /// Takes the immediate commit, if there is one.
    #[inline]
    pub(crate) fn take_commit(&mut self) -> Option<&Commit> {
        std::mem::take(&mut self.has_commit).then_some(&self.commit)
    }

    /// Takes the next action if it is a reply and the last one.
    #[inline]
    pub(crate) fn take_last_reply(&mut self) -> Option<&Reply> {
        if self.has_commit {
            return None;
        }
        match self.entries.len() {
            0 if std::mem::take(&mut self.has_reply) => {}
            1 if !self.has_reply => {
                let Some(&QueuedAction::Reply(reply)) = self.entries.front() else { return None };
                self.entries.clear();
                self.reply = reply;
            }
            _ => return None,
        }
        Some(&self.reply)
    }

    /// Takes the next action, in order. Calls `free` for each buffer whose last user was the action before.
    #[inline(always)]
    pub(crate) fn pop(&mut self, mut free: impl FnMut(BufferId)) -> Option<Action> {
        if std::mem::take(&mut self.has_commit) {
            return Some(self.commit.action());
        }
        if std::mem::take(&mut self.has_reply) {
            return Some(Action::Reply(self.reply));
        }
        loop {
            return Some(match self.entries.pop_front()? {
                QueuedAction::Reply(reply) => Action::Reply(reply),
                QueuedAction::CopyOut(copy) => Action::CopyOut(copy),
                QueuedAction::Commit(commit) => Action::Commit(commit),
                QueuedAction::Fetch(fetch) => Action::Peer(PeerAction::Fetch(fetch)),
                QueuedAction::Other => self.others.pop_front().expect("each such entry stands for one action"),
                QueuedAction::FreeBuffer(buffer) => {
                    free(buffer);
                    continue;
                }
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ddss_core::NodeId;

    const CLIENT: ClientId = ClientId { index: 1, generation: 1 };

    fn reply(number: u64) -> Reply {
        let completion = Completion::bare(RequestId(number), Outcome::Done);
        Reply { channel: ChannelId { client: CLIENT, index: 0 }, completion, data: None }
    }

    fn commit(version: u64) -> Commit {
        let from = Payload::Inline { bytes: [0; _], length: 8 };
        Commit { at: 0, offset: 0, client: CLIENT, from, version: Version(version), timestamp: Timestamp(1) }
    }

    #[test]
    fn actions_leave_in_order_on_every_path() {
        // If this broke, a client would get its reply before its bytes.
        let mut queue = ActionQueue::new();
        queue.push_commit(commit(1));
        queue.push_reply(reply(1));
        queue.push_commit(commit(2));
        queue.push(Action::Peer(PeerAction::Disconnect { node: NodeId(3) }));
        queue.push_free(BufferId::new(4));
        queue.push_reply(reply(2));
        assert_eq!(queue.take_last_reply(), None, "a commit comes first");
        let mut order = Vec::new();
        while let Some(action) = {
            let order = &mut order;
            queue.pop(|buffer| order.push(format!("free {}", buffer.index())))
        } {
            order.push(match action {
                Action::Commit(SegmentCommit { version, .. }) => format!("commit {}", version.0),
                Action::Reply(Reply { completion, .. }) => format!("reply {}", completion.request.0),
                Action::Peer(PeerAction::Disconnect { node }) => format!("disconnect {}", node.0),
                other => panic!("{other:?} was not queued"),
            });
        }
        assert_eq!(order, ["commit 1", "reply 1", "commit 2", "disconnect 3", "free 4", "reply 2"]);
        assert!(queue.is_empty());
    }

    #[test]
    fn actions_that_were_set_aside_follow_later_ones() {
        // If this broke, the commit of a record would come after a read that has its version already.
        let mut queue = ActionQueue::new();
        assert!(queue.set_aside().is_none());
        queue.push(Action::Peer(PeerAction::Disconnect { node: NodeId(3) }));
        queue.push(commit(2).action());
        let later = queue.set_aside().expect("two actions are due");
        queue.push(commit(1).action());
        queue.push_reply(reply(1));
        queue.put_back(later);
        let order: Vec<Action> = std::iter::from_fn(|| queue.pop(drop)).collect();
        assert_eq!(
            order,
            [
                commit(1).action(),
                Action::Reply(reply(1)),
                Action::Peer(PeerAction::Disconnect { node: NodeId(3) }),
                commit(2).action()
            ]
        );
    }

    #[test]
    fn last_reply_is_taken_once_and_only_if_nothing_is_behind_it() {
        // If this broke, an action behind the reply would be lost.
        let mut queue = ActionQueue::new();
        queue.push_commit(commit(1));
        queue.push_reply(reply(1));
        assert_eq!(queue.take_commit(), Some(&commit(1)));
        assert_eq!(queue.take_commit(), None);
        assert_eq!(queue.take_last_reply(), Some(&reply(1)));
        assert_eq!(queue.take_last_reply(), None);
        queue.push_reply(reply(2));
        queue.push(Action::Peer(PeerAction::Disconnect { node: NodeId(3) }));
        assert_eq!(queue.take_last_reply(), None, "another action is behind it");
        assert!(matches!(queue.pop(drop), Some(Action::Reply(_))));
        assert_eq!(queue.take_last_reply(), None, "the last action is no reply");
    }
}
