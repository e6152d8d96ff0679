//! Requesters of operations: clients of this node and engines of other nodes, and the fields of an answer to them.

use crate::ids::StepId;
use ddss_core::{
    ChannelId, ClientId, LockToken, Message, Name, NodeId, Operation, Principal, RequestId, Spec, Timestamp, Version,
};

/// Recipient of an answer.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Requester {
    /// A client of this node.
    Client(ChannelId, RequestId),
    /// Another node's engine.
    Peer(NodeId, u64),
}

impl Requester {
    /// Returns the requester of another request: of the same channel, or of the same peer.
    pub(crate) fn of_request(self, request: RequestId) -> Self {
        match self {
            Requester::Client(channel, _) => Requester::Client(channel, request),
            Requester::Peer(node, _) => Requester::Peer(node, request.0),
        }
    }

    pub(crate) fn owner(self) -> LockOwner {
        match self {
            Requester::Client(channel, _) => LockOwner::Client(channel.client),
            Requester::Peer(node, _) => LockOwner::Peer(node),
        }
    }
}

/// Owner of a lock: the lock ends when this client or peer is gone.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum LockOwner {
    Client(ClientId),
    Peer(NodeId),
}

impl LockOwner {
    /// Returns the first and the last requester of this owner, in order.
    pub(crate) fn requesters(self) -> (Requester, Requester) {
        match self {
            LockOwner::Client(client) => {
                let at = |index, request| Requester::Client(ChannelId { client, index }, RequestId(request));
                (at(0, 0), at(u8::MAX, u64::MAX))
            }
            LockOwner::Peer(node) => (Requester::Peer(node, 0), Requester::Peer(node, u64::MAX)),
        }
    }
}

/// Caller of an operation at its home: a client of this node, or a peer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Caller<'a> {
    pub(crate) requester: Requester,
    pub(crate) principal: Principal,
    pub(crate) deadline_us: u64,
    /// Lock of a peer's client: the peer's get does not wait for it.
    pub(crate) lock: Option<LockToken>,
    /// Text of the operation, copied out of a client's arena, or the tail of a peer's message.
    pub(crate) text: &'a [u8],
}

/// A local client's request, after the check that the client is attached.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LocalCaller {
    pub(crate) channel: ChannelId,
    pub(crate) request: RequestId,
    pub(crate) principal: Principal,
    pub(crate) deadline_us: u64,
    pub(crate) timeout_us: u32,
}

impl LocalCaller {
    /// Returns the recipient of the answer.
    pub(crate) fn requester(&self) -> Requester {
        Requester::Client(self.channel, self.request)
    }

    /// Returns the caller of an operation at home here.
    #[inline]
    pub(crate) fn at_home<'a>(&self, text: &'a [u8]) -> Caller<'a> {
        let LocalCaller { principal, deadline_us, .. } = *self;
        Caller { requester: self.requester(), principal, deadline_us, lock: None, text }
    }

    /// Makes the message that asks another node to execute an operation.
    pub(crate) fn call(&self, step: StepId, operation: Operation) -> Message {
        Message::call(step.to_bits(), self.principal, self.timeout_us, operation)
    }
}

/// Segment to create here, since no node has its name.
#[derive(Clone, Copy, Debug)]
#[must_use = "its requester waits for the answer"]
pub(crate) struct NewSegment {
    pub(crate) requester: Requester,
    pub(crate) principal: Principal,
    pub(crate) name: Name,
    pub(crate) spec: Spec,
}

/// Fields of an answer besides its outcome.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct ReplyFields {
    pub(crate) version: Version,
    pub(crate) timestamp: Timestamp,
    /// Old word, or lock token.
    pub(crate) word: u64,
}

impl ReplyFields {
    pub(crate) fn of((version, timestamp): (Version, Timestamp), word: u64) -> Self {
        Self { version, timestamp, word }
    }
}
