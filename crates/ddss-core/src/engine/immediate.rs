//! Actions of the shortest calls: a reply, or a commit and its reply. They are built in a fixed place and executed from
//! there, since a pass through the queue takes longer than the decision itself.

use super::action::{Action, CommitSource, RangeSet};
use super::engine::{Engine, Reply};
use crate::request::operation::Payload;
use crate::{ChannelId, ClientId, Completion, Outcome, RequestId, Timestamp, Version};

/// Content of [`Action::Commit`] for a put of one range by a local client.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Commit {
    /// Pool offset of the segment's header.
    pub at: u64,
    /// Offset of the first byte to replace.
    pub offset: u64,
    /// Client that puts.
    pub client: ClientId,
    /// Bytes to write.
    pub from: Payload,
    /// The new version.
    pub version: Version,
    /// Timestamp of the new version.
    pub timestamp: Timestamp,
}

/// Actions that come before everything in the queue.
#[derive(Debug)]
pub(crate) struct ImmediateActions {
    commit: Commit,
    has_commit: bool,
    reply: Reply,
    has_reply: bool,
}

impl ImmediateActions {
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
        Self { commit, has_commit: false, reply, has_reply: false }
    }

    /// Takes the next of the two.
    #[inline]
    pub(crate) fn next(&mut self) -> Option<Action> {
        if std::mem::take(&mut self.has_commit) {
            return Some(self.commit.action());
        }
        let Reply { channel, completion, data } = self.reply;
        std::mem::take(&mut self.has_reply).then_some(Action::Reply { channel, completion, data })
    }
}

impl Commit {
    fn action(&self) -> Action {
        let Self { at, offset, client, from, version, timestamp } = *self;
        let parts = RangeSet::One { offset, bytes: from.length() };
        Action::Commit { at, parts, source: CommitSource::Client(client, from), version, timestamp }
    }
}

impl Engine {
    /// Takes the next action if it is an immediate commit: the same as [`next_action`](Self::next_action), without a
    /// move.
    #[inline]
    pub fn first_commit(&mut self) -> Option<&Commit> {
        std::mem::take(&mut self.immediate.has_commit).then_some(&self.immediate.commit)
    }

    /// Takes the next action if it is a reply and the last one, without a move.
    #[inline]
    pub fn last_reply(&mut self) -> Option<&Reply> {
        if self.immediate.has_commit {
            return None;
        }
        match self.queued_actions() {
            0 if std::mem::take(&mut self.immediate.has_reply) => {}
            1 if !self.immediate.has_reply => self.immediate.reply = self.take_only_reply()?,
            _ => return None,
        }
        Some(&self.immediate.reply)
    }

    /// Returns true if no action is queued.
    #[inline(always)]
    pub(crate) fn has_no_actions(&self) -> bool {
        self.queued_actions() == 0 && !self.immediate.has_commit && !self.immediate.has_reply
    }

    /// Emits a commit, as the immediate one if no action is queued.
    #[inline(always)]
    pub(crate) fn commit_immediately(&mut self, commit: Commit) {
        if self.has_no_actions() {
            self.immediate.commit = commit;
            self.immediate.has_commit = true;
        } else {
            self.push_action(commit.action());
        }
    }

    #[inline(always)]
    pub(crate) fn reply(&mut self, channel: ChannelId, completion: Completion, data: Option<(u64, u8)>) {
        if self.client(channel.client).is_none() {
            return;
        }
        if self.queued_actions() == 0 && !self.immediate.has_reply {
            self.immediate.reply = Reply { channel, completion, data };
            self.immediate.has_reply = true;
        } else {
            self.push_action(Action::Reply { channel, completion, data });
        }
    }
}
