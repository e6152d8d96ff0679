//! What a short call comes to, in its place: an answer, or the commit of a put and the answer behind it. Both are made where
//! they stay until they are done, since moving them through the queue of actions takes longer than all that is decided.

use super::action::{Action, CommitSource, RangeSet};
use super::engine::{Engine, Reply};
use crate::request::operation::Payload;
use crate::{ChannelId, ClientId, Completion, Outcome, RequestId, Timestamp, Version};

/// What [`Action::Commit`] says of a put of one range by a client of this node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Commit {
    /// Where the header of the segment is.
    pub at: u64,
    /// From where on its bytes are replaced.
    pub offset: u64,
    /// Who puts.
    pub client: ClientId,
    /// What.
    pub from: Payload,
    /// The new version.
    pub version: Version,
    /// And its timestamp.
    pub timestamp: Timestamp,
}

/// The first of all that is due: before anything in the queue.
#[derive(Debug)]
pub(crate) struct ImmediateActions {
    commit: Commit,
    commits: bool,
    reply: Reply,
    replies: bool,
}

impl ImmediateActions {
    pub(crate) fn new() -> Self {
        let client = ClientId { index: 0, generation: 0 };
        let reply = Reply {
            lane: ChannelId { client, index: 0 },
            completion: Completion::bare(RequestId(0), Outcome::Done),
            data: None,
        };
        let from = Payload::Inline { bytes: [0; _], length: 0 };
        let (at, offset, version, timestamp) = (0, 0, Version(0), Timestamp(0));
        let commit = Commit { at, offset, client, from, version, timestamp };
        Self { commit, commits: false, reply, replies: false }
    }

    /// The next of the two.
    #[inline]
    pub(crate) fn next(&mut self) -> Option<Action> {
        if std::mem::take(&mut self.commits) {
            return Some(self.commit.action());
        }
        let Reply { lane, completion, data } = self.reply;
        std::mem::take(&mut self.replies).then_some(Action::Reply { lane, completion, data })
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
    /// The next thing to do, if that is a commit in its place: as [`next_action`](Self::next_action) would give it, without
    /// moving it.
    #[inline]
    pub fn first_commit(&mut self) -> Option<&Commit> {
        std::mem::take(&mut self.at_once.commits).then_some(&self.at_once.commit)
    }

    /// The next thing to do, if that is a reply and nothing is left behind it: the same.
    #[inline]
    pub fn last_reply(&mut self) -> Option<&Reply> {
        if self.at_once.commits {
            return None;
        }
        match self.due() {
            0 if std::mem::take(&mut self.at_once.replies) => {}
            1 if !self.at_once.replies => self.at_once.reply = self.take_only_reply()?,
            _ => return None,
        }
        Some(&self.at_once.reply)
    }

    /// Whether nothing is to be done before what is decided next.
    #[inline(always)]
    pub(crate) fn has_nothing_due(&self) -> bool {
        self.due() == 0 && !self.at_once.commits && !self.at_once.replies
    }

    /// A commit, in its place if nothing is to be done before it.
    #[inline(always)]
    pub(crate) fn commit_at_once(&mut self, commit: Commit) {
        if self.has_nothing_due() {
            self.at_once.commit = commit;
            self.at_once.commits = true;
        } else {
            self.act(commit.action());
        }
    }

    #[inline(always)]
    pub(crate) fn reply(&mut self, lane: ChannelId, completion: Completion, data: Option<(u64, u8)>) {
        if self.client(lane.client).is_none() {
            return;
        }
        if self.due() == 0 && !self.at_once.replies {
            self.at_once.reply = Reply { lane, completion, data };
            self.at_once.replies = true;
        } else {
            self.act(Action::Reply { lane, completion, data });
        }
    }
}
