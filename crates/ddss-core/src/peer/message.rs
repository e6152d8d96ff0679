//! Messages between engines. Little-endian, each field checked on receipt; the receiver works on a copy.
//!
//! A message is the sender's clock, one byte of kind, and the fields of that kind in declaration order. The tail
//! follows: the text of a call (a name, a query, a table of ranges), the bytes of a put or get, a page of a list.

use crate::failure::Outcome;
use crate::limits::MESSAGE_BYTES_MAX;
use crate::model::coherence::Model;
use crate::model::segment::{Header, Name, Permissions, Principal};
use crate::model::spec::{Spec, Storage};
use crate::model::table::TableLayout;
use crate::peer::replica_reply::{OfferReply, ReplicaAck};
use crate::request::operation::{LockToken, Operation, Part, PutConditions, UploadId};
use crate::request::request::Request;
use crate::{ClientId, RequestId, SegmentId, Timestamp, Version};

/// Key to a range of another node's memory, for one connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct RemoteWindow {
    /// Key of the fabric.
    pub key: u32,
    /// Address of the first byte.
    pub base: u64,
    /// Length in bytes.
    pub bytes: u64,
}

/// Public metadata of a segment: all that a remote get or put needs.
///
/// ```
/// # use ddss_core as ddss;
/// use ddss::{Model, NodeId, Permissions, Principal, SegmentId, SegmentInfo, Storage};
/// let owner = Principal { uid: 1000, gid: 50 };
/// let permissions = Permissions { owner, mode: 0o600 };
/// let segment = SegmentId::new(NodeId(2), 0, 1);
/// let (model, storage) = (Model::Strict, Storage::Memory);
/// let info = SegmentInfo { segment, bytes: 4096, model, permissions, history_len: 0, copies: 1, storage, row_bytes: 0 };
/// assert_eq!(info.segment.home(), NodeId(2));
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct SegmentInfo {
    /// Id of the segment.
    pub segment: SegmentId,
    /// Size in bytes.
    pub bytes: u64,
    /// Coherence model.
    pub model: Model,
    /// Permissions.
    pub permissions: Permissions,
    /// Number of older versions in its history.
    pub history_len: u32,
    /// Number of nodes with a copy. A replicated segment is read by its home's engine and never through a window.
    pub copies: u8,
    /// Storage at its home.
    pub storage: Storage,
    /// Bytes of one row of a table; 0 for a plain segment.
    pub row_bytes: u32,
}

impl SegmentInfo {
    /// Returns the layout of a table's records; `None` for a plain segment. For the daemon.
    #[doc(hidden)]
    pub const fn layout(&self) -> Option<TableLayout> {
        TableLayout::new(self.row_bytes)
    }

    /// Returns the bytes of memory at its home, with all headers. For the engine.
    #[doc(hidden)]
    pub fn pool_bytes(&self) -> u64 {
        match self.layout() {
            Some(layout) => layout.pool_bytes(self.bytes),
            None => Header::bytes_with(self.bytes, self.history_len),
        }
    }
}

/// Message between engines. `step` is the sender's number for a pending operation and returns in the answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Message {
    /// First message of every connection: the staging memory for puts of the receiver.
    Welcome {
        /// Window over the staging memory.
        staging: RemoteWindow,
    },
    /// Asks for the description of a segment that the sender does not know.
    Describe {
        /// Sender's number of the operation.
        step: u64,
        /// User on whose behalf it is sent.
        principal: Principal,
        /// Segment to describe.
        segment: SegmentId,
    },
    /// Asks the receiver to execute an operation. The tail is the operation's text, or the bytes of a small put. More bytes
    /// are in the staging memory that the receiver keeps for the sender ([`ArenaRange::staged`](crate::ArenaRange::staged)).
    Call {
        /// User on whose behalf it is sent.
        principal: Principal,
        /// Lock that the sender's client holds: its get does not wait for it. Zero for none.
        lock: LockToken,
        /// Operation and timeout. The id is the sender's number of the operation; zero if no caller waits for an answer.
        request: Request,
    },
    /// Describes a segment.
    Found {
        /// Sender's number of the operation.
        step: u64,
        /// Its metadata.
        info: SegmentInfo,
        /// Window over its memory: header line and bytes.
        window: RemoteWindow,
    },
    /// Stores a part of a large put: the tail, or in staging memory. The answer has the number of the upload.
    UploadPart {
        /// Sender's number of the operation.
        step: u64,
        /// User on whose behalf it is sent.
        principal: Principal,
        /// Segment of the operation.
        segment: SegmentId,
        /// Sender's client, which owns the upload.
        client: ClientId,
        /// Place of the part in the value.
        part: Part,
        /// Length of the part in bytes.
        length: u32,
        /// Offset in the staging memory; `u64::MAX` if the bytes are the tail.
        staged: u64,
    },
    /// Commits a complete upload.
    CommitUpload {
        /// Sender's number of the operation.
        step: u64,
        /// User on whose behalf it is sent.
        principal: Principal,
        /// Segment of the operation.
        segment: SegmentId,
        /// Sender's client, which owns the upload.
        client: ClientId,
        /// Offset of the first byte.
        offset: u64,
        /// Upload to commit.
        upload: UploadId,
        /// Conditions of the commit.
        conditions: PutConditions,
        /// Timeout in microseconds.
        timeout_us: u32,
    },
    /// Drops an upload of a client of the sender, or all of them.
    DropUpload {
        /// Sender's client, which owns the upload.
        client: ClientId,
        /// Upload to drop; zero for all.
        upload: UploadId,
    },
    /// Ends an operation.
    Ended {
        /// Sender's number of the operation.
        step: u64,
        /// Outcome of the operation.
        outcome: Outcome,
        /// Version that it made.
        version: Version,
        /// Timestamp of the version.
        timestamp: Timestamp,
        /// Old word, lock token, or other result.
        word: u64,
    },
    /// Revokes a segment: the receiver stops reads and answers with `Forgotten`.
    Forget {
        /// Segment of the operation.
        segment: SegmentId,
    },
    /// Confirms that no read of that segment is in flight, and none will start.
    Forgotten {
        /// Segment of the operation.
        segment: SegmentId,
    },
    /// Returns bytes: the tail, or written into the receiver's staging memory before.
    Got {
        /// Sender's number of the operation.
        step: u64,
        /// Version of the bytes.
        version: Version,
        /// Timestamp of that version.
        timestamp: Timestamp,
        /// Length in bytes.
        length: u32,
        /// Offset in the staging memory; `u64::MAX` if the bytes are the tail.
        staged: u64,
        /// Home's number of that place.
        number: u64,
    },
    /// Frees a place in the staging memory.
    Taken {
        /// Number that came with [`Message::Got`].
        number: u64,
    },
    /// Returns a page: the tail.
    Listed {
        /// Sender's number of the operation.
        step: u64,
        /// True if there are more segments.
        more: bool,
    },
    /// Announces new permissions of one of the sender's segments.
    Changed {
        /// New metadata.
        info: SegmentInfo,
    },
    /// Asks the receiver to be the replica of one of the sender's segments.
    Offer {
        /// Segment of the operation.
        segment: SegmentId,
        /// Number of the sender in the order of homes.
        epoch: u32,
        /// Newest version.
        version: Version,
        /// Timestamp of that version.
        timestamp: Timestamp,
        /// Its specification.
        spec: Spec,
        /// Its permissions.
        permissions: Permissions,
        /// Its name.
        name: Name,
    },
    /// Answers an offer, or reports a lost copy.
    OfferAnswer {
        /// Segment of the operation.
        segment: SegmentId,
        /// Epoch of the offer, or the newer one that the sender knows.
        epoch: u32,
        /// Answer.
        reply: OfferReply,
    },
    /// Sends a piece of the copy: the tail, or in the receiver's staging memory.
    Piece {
        /// Segment of the operation.
        segment: SegmentId,
        /// Epoch of the sender.
        epoch: u32,
        /// Offset in the segment.
        offset: u64,
        /// Length in bytes.
        length: u32,
        /// Offset in the staging memory; `u64::MAX` if the bytes are the tail.
        staged: u64,
        /// Home's number of that place.
        number: u64,
    },
    /// Completes the copy.
    Whole {
        /// Segment of the operation.
        segment: SegmentId,
        /// Epoch of the sender.
        epoch: u32,
        /// Version of the copy.
        version: Version,
        /// Timestamp of that version.
        timestamp: Timestamp,
    },
    /// Forwards a put that the home commits when the replica has it. The tail is the bytes, or the table of ranges.
    /// With the replica's current version and no bytes it announces a token.
    Forward {
        /// Segment of the operation.
        segment: SegmentId,
        /// Epoch of the sender.
        epoch: u32,
        /// Version that the put makes.
        version: Version,
        /// Version of the row that the put makes; 0 in a plain segment.
        row_version: Version,
        /// Its timestamp, or the token.
        timestamp: Timestamp,
        /// Offset of the first byte.
        offset: u64,
        /// Length in bytes.
        length: u32,
        /// Offset in the staging memory; `u64::MAX` if the bytes are the tail.
        staged: u64,
        /// Home's number of that place.
        number: u64,
        /// Number of ranges in the table; 0 for none.
        ranges: u8,
    },
    /// Sends a part of a large put to the replica: the tail, or in the receiver's staging memory. The replica commits the
    /// put when it has all parts.
    ForwardPart {
        /// Segment of the operation.
        segment: SegmentId,
        /// Epoch of the sender.
        epoch: u32,
        /// Version that the put makes.
        version: Version,
        /// Its timestamp.
        timestamp: Timestamp,
        /// Offset of the value in the segment.
        offset: u64,
        /// Place of the part in the value.
        at: u32,
        /// Bytes of the value.
        total: u32,
        /// Length of the part in bytes.
        length: u32,
        /// Offset in the staging memory; `u64::MAX` if the bytes are the tail.
        staged: u64,
        /// Home's number of that place.
        number: u64,
    },
    /// Acknowledges a piece, a part, a put or a token.
    Replicated {
        /// Segment of the operation.
        segment: SegmentId,
        /// Epoch of the home.
        epoch: u32,
        /// Kind of acknowledgement.
        ack: ReplicaAck,
        /// Version of the replica.
        version: Version,
        /// Timestamp that was received.
        timestamp: Timestamp,
        /// Number of the staging place that is free again; `u64::MAX` for none.
        number: u64,
    },
}

impl Message {
    /// Makes the call of an operation, with the sender's number of it.
    pub const fn call(step: u64, principal: Principal, timeout_us: u32, operation: Operation) -> Self {
        let request = Request { id: RequestId(step), timeout_us, operation, parks: false };
        Message::Call { principal, lock: LockToken(0), request }
    }

    /// Value of `staged` for bytes that are in the message.
    pub const NOT_STAGED: u64 = u64::MAX;
    /// Bytes of data that fit behind the fields of a call, with room for a seal.
    pub const PUT_BYTES_MAX: usize = MESSAGE_BYTES_MAX - 104;
    /// Bytes of the longest message before sealing.
    pub const PLAIN_BYTES_MAX: usize = MESSAGE_BYTES_MAX - 16;

    /// Returns the segment that the message refers to.
    pub fn segment(&self) -> Option<SegmentId> {
        match *self {
            Message::Describe { segment, .. }
            | Message::UploadPart { segment, .. }
            | Message::CommitUpload { segment, .. } => Some(segment),
            Message::Call { ref request, .. } => request.operation.segment(),
            _ => None,
        }
    }
}
