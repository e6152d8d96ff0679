//! A call before it is sent, and its reply.
//!
//! Each operation of the API makes one [`PlannedCall`]. The blocking client runs it on a channel of the calling thread,
//! the asynchronous client as a future on the channel of its tasks. Neither encodes or decodes anything by itself.

use crate::plan::priority::Priority;
use ddss_core::limits::{ARENA_SLOT_BYTES, INLINE_REPLY_BYTES_MAX};
use ddss_core::{ArenaRange, Completion, Operation, Ranges};
use ddss_ipc::{SharedMemory, WaitClass};

const INSIDE: &str = "a run lies inside the arena";

/// Parameters of a call. The caller's bytes are copied once there is arena memory for them.
#[derive(Clone, Copy)]
pub(crate) struct CallPlan<'a> {
    /// The attempted action, for errors.
    pub(crate) action: &'static str,
    /// The target of the action, for errors.
    pub(crate) target: &'a str,
    pub(crate) priority: Priority,
    /// True if the call has no side effects.
    pub(crate) is_harmless: bool,
    pub(crate) wait_class: WaitClass,
    /// The operation without its arena range.
    operation: Operation,
    outgoing: Outgoing<'a>,
    /// Number of bytes that the reply needs in the arena.
    incoming: usize,
}

/// Source of the bytes that go into the arena.
#[derive(Clone, Copy)]
pub(crate) enum Outgoing<'a> {
    Bytes(&'a [u8]),
    /// Pieces that go back to back.
    Pieces(&'a [&'a [u8]]),
    /// A table of ranges and, from the next slot on, their bytes.
    Parts(&'a Ranges, &'a [(u64, &'a [u8])]),
}

impl Outgoing<'_> {
    #[inline]
    fn bytes(&self) -> usize {
        match self {
            Outgoing::Bytes(bytes) => bytes.len(),
            Outgoing::Pieces(pieces) => pieces.iter().map(|piece| piece.len()).sum(),
            Outgoing::Parts(ranges, _) => list_bytes(ranges),
        }
    }

    fn write(self, arena: &SharedMemory, at: usize) {
        let write = |at, bytes| arena.write(at, bytes).expect(INSIDE);
        match self {
            Outgoing::Bytes(bytes) => write(at, bytes),
            Outgoing::Pieces(pieces) => {
                let mut at = at;
                for piece in pieces {
                    write(at, piece);
                    at += piece.len();
                }
            }
            Outgoing::Parts(ranges, parts) => {
                let table = ranges.encode();
                write(at, &table);
                let mut at = at + ARENA_SLOT_BYTES;
                for (_, bytes) in parts {
                    write(at, bytes);
                    at += bytes.len();
                }
            }
        }
    }
}

/// Computes the arena bytes for a table of ranges in the first slot and their bytes behind it.
pub(crate) fn list_bytes(ranges: &Ranges) -> usize {
    ARENA_SLOT_BYTES + ranges.sum() as usize
}

/// Bytes of a completed call, valid while the call's memory is allocated.
pub(crate) enum Reply<'a> {
    Inline(&'a [u8]),
    Arena(&'a SharedMemory, usize),
}

impl Reply<'_> {
    /// Copies bytes from index `at` on.
    #[inline]
    pub(crate) fn read(&self, at: usize, into: &mut [u8]) {
        match self {
            Reply::Inline(bytes) => into.copy_from_slice(&bytes[at..at + into.len()]),
            Reply::Arena(arena, begin) => arena.read(begin + at, into).expect(INSIDE),
        }
    }
}

/// Decodes a successful completion and its bytes.
pub(crate) trait Decoder<T>: FnMut(&Completion, &Reply<'_>) -> T + Send {}

impl<T, D: FnMut(&Completion, &Reply<'_>) -> T + Send> Decoder<T> for D {}

/// A call and the decoder of its reply.
pub(crate) struct PlannedCall<'a, D> {
    pub(crate) plan: CallPlan<'a>,
    pub(crate) decode: D,
}

impl<'a> CallPlan<'a> {
    /// Creates the plan of a call without bytes.
    #[inline(always)]
    pub(crate) const fn new(action: &'static str, target: &'a str, operation: Operation) -> Self {
        Self {
            action,
            target,
            priority: Priority::of(&operation),
            is_harmless: operation.is_harmless(),
            wait_class: wait_class(&operation),
            operation,
            outgoing: Outgoing::Bytes(&[]),
            incoming: 0,
        }
    }

    /// Sets the bytes that the call sends through the arena.
    #[inline]
    pub(crate) const fn sends(self, outgoing: Outgoing<'a>) -> Self {
        Self { outgoing, ..self }
    }

    /// Sets the number of bytes that the reply needs in the arena.
    #[inline]
    pub(crate) const fn receives(self, incoming: usize) -> Self {
        Self { incoming, ..self }
    }

    /// Adds the decoder of the reply.
    #[inline]
    pub(crate) fn returns<T, D: FnMut(&Completion, &Reply<'_>) -> T + Send>(self, decode: D) -> PlannedCall<'a, D> {
        PlannedCall { plan: self, decode }
    }

    /// Returns true if the call may wait for another client.
    pub(crate) fn may_wait(&self) -> bool {
        self.operation.may_wait()
    }

    /// Returns true if the call is worth waiting for a daemon. A lock and an upload end with theirs.
    #[inline]
    pub(crate) const fn waits_for_daemon(&self) -> bool {
        let ends_with_daemon =
            matches!(self.operation, Operation::Unlock { .. } | Operation::Renew { .. } | Operation::DropUpload { .. });
        !ends_with_daemon
    }

    /// Returns true if the call may be repeated later, at the home or its successor. The parts of a large put begin again.
    pub(crate) const fn is_repeatable(&self) -> bool {
        match self.operation {
            Operation::UploadPart { part, .. } => part.upload.0 == 0,
            Operation::CommitUpload { .. } => false,
            _ => self.waits_for_daemon(),
        }
    }

    /// Returns the number of bytes that the reply needs in the arena.
    pub(crate) fn incoming(&self) -> usize {
        self.incoming
    }

    /// Returns the number of arena bytes that the call needs.
    #[inline]
    pub(crate) fn arena_bytes(&self) -> usize {
        self.outgoing.bytes().max(self.incoming)
    }

    /// Writes the outgoing bytes into the call's memory, and returns the operation with that range.
    ///
    /// Always inlined, as the other functions on the path of a blocking call: the compiler then knows the operation.
    #[inline(always)]
    pub(crate) fn encode(&self, arena: &SharedMemory, range: ArenaRange) -> Operation {
        let outgoing = self.outgoing.bytes();
        if outgoing > 0 {
            self.outgoing.write(arena, range.offset() as usize);
        }
        let mut operation = self.operation;
        if range.bytes > 0 {
            // The page of a list replaces its text, which is shorter.
            let is_list = matches!(operation, Operation::List { .. });
            operation.set_range(if is_list { ArenaRange { bytes: outgoing as u32, ..range } } else { range });
        }
        operation
    }

    /// Returns the bytes of a successful completion.
    #[inline]
    pub(crate) fn reply<'b>(
        &self,
        completion: &'b Completion,
        arena: &'b SharedMemory,
        range: ArenaRange,
    ) -> Reply<'b> {
        if completion.inline && self.incoming <= INLINE_REPLY_BYTES_MAX {
            Reply::Inline(&completion.data)
        } else {
            Reply::Arena(arena, range.offset() as usize)
        }
    }
}

/// Returns the class of an operation, which decides how a thread waits for its completion.
const fn wait_class(operation: &Operation) -> WaitClass {
    match operation {
        Operation::Lock { .. }
        | Operation::Null
        | Operation::Get { .. }
        | Operation::GetMany { .. }
        | Operation::GetRows { .. }
        | Operation::Put { .. }
        | Operation::PutMany { .. }
        | Operation::UploadPart { .. }
        | Operation::DropUpload { .. }
        | Operation::Atomic { .. }
        | Operation::Unlock { .. } => WaitClass::Polling,
        _ => WaitClass::Sleeping,
    }
}
