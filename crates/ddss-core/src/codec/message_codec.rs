//! Encoding and decoding of messages.

use crate::codec::fields::{Field, Reader, Writer};
use crate::codec::listing::Listing;
use crate::failure::Failure;
use crate::limits::{ARENA_SLOT_BYTES, RANGES_MAX, STAGING_BYTES};
use crate::model::ranges::Ranges;
use crate::peer::message::Message;
use crate::request::operation::{ArenaRange, Operation, Payload};
use crate::{Timestamp, Version};
use arrayvec::ArrayVec;

/// Defines the encoding of all messages: the number of a kind, and the order of its fields. Their types are those of [`Message`],
/// and each type has one encoding ([`Field`]).
macro_rules! encode_messages {
    ($($kind:literal $name:ident { $($field:ident),* })*) => {
        impl Message {
            fn put(&self, out: &mut Writer<{ Message::PLAIN_BYTES_MAX }>) {
                match *self {
                    $(Message::$name { $($field),* } => {
                        out.u8($kind);
                        $($field.put(out);)*
                    })*
                }
            }

            fn take(input: &mut Reader<'_>) -> Result<Self, Failure> {
                Ok(match input.u8()? {
                    $($kind => Message::$name { $($field: Field::take(input)?),* },)*
                    _ => return Err(Failure::Malformed),
                })
            }
        }
    };
}

encode_messages! {
    1 Welcome { staging }
    2 Call { principal, lock, request }
    3 Describe { step, principal, segment }
    5 Found { step, info, window }
    8 Ended { step, outcome, version, timestamp, word }
    9 Forget { segment }
    10 Forgotten { segment }
    16 Got { step, version, timestamp, length, staged, number }
    17 Taken { number }
    20 Listed { step, more }
    22 Changed { info }
    24 Offer { segment, epoch, version, timestamp, spec, permissions, name }
    25 OfferAnswer { segment, epoch, reply }
    26 Piece { segment, epoch, offset, length, staged, number }
    27 Whole { segment, epoch, version, timestamp }
    28 Forward { segment, epoch, version, row_version, timestamp, offset, length, staged, number, ranges }
    29 Replicated { segment, epoch, ack, version, timestamp, number }
    31 ForwardPart { segment, epoch, version, timestamp, offset, at, total, length, staged, number }
    40 UploadPart { step, principal, segment, client, part, length, staged }
    41 CommitUpload { step, principal, segment, client, offset, upload, conditions, timeout_us }
    42 DropUpload { client, upload }
}

impl Message {
    /// Encodes the message with the sender's clock. `tail` is what follows its fields.
    pub fn encode(&self, clock: Timestamp, tail: &[u8]) -> ArrayVec<u8, { Message::PLAIN_BYTES_MAX }> {
        let mut out = Writer::default();
        clock.put(&mut out);
        self.put(&mut out);
        out.bytes(tail);
        out.0
    }

    /// Decodes a copied message; returns it with the sender's clock and its tail.
    pub fn decode(bytes: &[u8]) -> Result<(Self, Timestamp, &[u8]), Failure> {
        let mut input = Reader(bytes);
        let (clock, message) = (Timestamp::take(&mut input)?, Self::take(&mut input)?);
        let is_valid = message.stores_versions() && message.allows_tail(input.0.len());
        if is_valid { Ok((message, clock, input.0)) } else { Err(Failure::Malformed) }
    }

    /// Returns true if a replica can store the versions of the message. A state word has 63 bits for one, so that no put
    /// after it overflows.
    fn stores_versions(&self) -> bool {
        let fits = |version: Version| version.0 <= u64::MAX >> 1;
        match *self {
            Message::Offer { version, .. } | Message::Whole { version, .. } | Message::ForwardPart { version, .. } => {
                fits(version)
            }
            Message::Forward { version, row_version, .. } => fits(version) && fits(row_version),
            _ => true,
        }
    }

    /// Returns true if the message may have a tail of that length. A buffer of the engine holds each tail.
    fn allows_tail(&self, bytes: usize) -> bool {
        if bytes > Self::PUT_BYTES_MAX {
            return false;
        }
        let placed = |staged: u64, length: u32| staged.saturating_add(length.into()) <= STAGING_BYTES as u64;
        let table =
            |ranges: u8| usize::from(ranges) <= RANGES_MAX && bytes == usize::from(ranges) * Ranges::ENTRY_BYTES;
        match *self {
            Message::Call { ref request, .. } => Self::allows_bytes(&request.operation, bytes),
            Message::UploadPart { staged: Self::NOT_STAGED, length, .. } => bytes == length as usize,
            Message::UploadPart { staged, length, .. } => bytes == 0 && placed(staged, length),
            Message::Got { staged: Self::NOT_STAGED, length, .. } => bytes == length as usize,
            Message::Got { staged, length, .. } => bytes == 0 && placed(staged, length),
            Message::Piece { staged: Self::NOT_STAGED, length, .. }
            | Message::ForwardPart { staged: Self::NOT_STAGED, length, .. }
            | Message::Forward { staged: Self::NOT_STAGED, length, ranges: 0, .. } => bytes == length as usize,
            Message::Piece { staged, length, .. } | Message::ForwardPart { staged, length, .. } => {
                bytes == 0 && placed(staged, length)
            }
            Message::Forward { staged, length, ranges, .. } => table(ranges) && placed(staged, length),
            Message::Listed { .. } => bytes <= Listing::PAGE_BYTES,
            _ => bytes == 0,
        }
    }

    /// Returns true if a call may have a tail of that length, and names no bytes outside of staging memory.
    fn allows_bytes(operation: &Operation, tail: usize) -> bool {
        let is_placed = |range: &ArenaRange, bytes: u32| {
            range.staged_at().is_some_and(|at| at.saturating_add(bytes.into()) <= STAGING_BYTES as u64)
        };
        match operation {
            Operation::Put { from: Payload::Arena(range), .. } if range.is_in_message() => tail == range.bytes as usize,
            Operation::Put { from: Payload::Arena(range), .. } => tail == 0 && is_placed(range, range.bytes),
            Operation::PutMany { list, .. } => {
                tail == operation.text_bytes() && is_placed(list, list.bytes.saturating_sub(ARENA_SLOT_BYTES as u32))
            }
            _ => tail == operation.text_bytes(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::failure::Outcome;
    use crate::limits::MESSAGE_BYTES_MAX;
    use crate::model::segment::{Name, PermissionUpdate, Permissions, Principal};
    use crate::model::spec::Spec;
    use crate::peer::message::{RemoteWindow, SegmentInfo};
    use crate::peer::replica_reply::{OfferReply, ReplicaAck};
    use crate::request::entry_change::{EntryChange, EntryChangeKind};
    use crate::request::operation::{AtomicOp, LockRequest, LockToken, Part, PutConditions, ReadOptions, UploadId};
    use crate::{Model, NodeId, RequestId, SegmentId, Storage};
    use proptest::prelude::*;

    const CLOCK: Timestamp = Timestamp(77);

    #[test]
    fn message_round_trips() {
        // If this broke, a home would commit other bytes, or at another place, than the requester meant.
        let principal = Principal { uid: 1, gid: 2 };
        let name = Name::new(&"n".repeat(128)).expect("a good name");
        let segment = SegmentId::new(NodeId(1), 2, 3);
        let permissions = Permissions { owner: principal, mode: 0o640 };
        let info = SegmentInfo {
            segment,
            bytes: 4096,
            model: Model::Temporal(5),
            permissions,
            history_len: 7,
            copies: 2,
            storage: Storage::Memory,
            row_bytes: 0,
        };
        let in_a_file = SegmentInfo { copies: 1, storage: Storage::File, ..info };
        let table = SegmentInfo { copies: 1, history_len: 0, row_bytes: 512, ..info };
        let window = RemoteWindow { key: 1, base: 2, bytes: 3 };
        let conditions =
            PutConditions { version: Some(Version(6)), token: None, requested_model: Some(Model::Strict), entry: None };
        let options = ReadOptions { requested_model: Some(Model::Delta(4)), version: Some(Version(8)) };
        let update = PermissionUpdate { mode: Some(0o640), owner: Some(principal) };
        let (token, version, timestamp) = (Some(LockToken(9)), Version(1), Timestamp(2));
        let lock_request = LockRequest { shared: true, no_wait: false, lease_us: 7, row_offset: Some(8) };
        let client = crate::ClientId { index: 3, generation: 4 };
        let part = Part { upload: UploadId(1), at: 2, total: 9 };
        let call = |operation| Message::call(1, principal, 5, operation);
        let (staged, inline) = (ArenaRange::staged(Some(4), 3), Payload::inline(b"few").expect("few bytes"));
        let all = [
            Message::Welcome { staging: window },
            Message::Describe { step: 1, principal, segment },
            Message::Found { step: 1, info, window },
            call(Operation::Put { segment, offset: 2, from: Payload::Arena(staged), conditions }),
            call(Operation::Put { segment, offset: 2, from: inline, conditions: PutConditions::default() }),
            call(Operation::Atomic { segment, offset: 8, change: AtomicOp::Add(3), token }),
            call(Operation::Await { segment, offset: 7, above: Version(3) }),
            call(Operation::Lock { segment, lock_request }),
            call(Operation::Unlock { segment, token: LockToken(9) }),
            call(Operation::Renew { segment, token: LockToken(9), lease_us: 7 }),
            call(Operation::Release { segment }),
            call(Operation::Stat { segment, page: ArenaRange { slot: 3, bytes: 4 } }),
            call(Operation::Permit { segment, update }),
            call(Operation::Break { segment }),
            call(Operation::Sweep { segment, first: 3, buckets: u64::MAX }),
            call(Operation::Cancel { segment, request: RequestId(1) }),
            Message::Ended { step: 1, outcome: Outcome::Done, version, timestamp, word: 3 },
            call(Operation::Get { segment, offset: 2, into: staged, inline: false, options }),
            Message::Got { step: 1, version, timestamp, length: 3, staged: 4, number: 5 },
            Message::Taken { number: 6 },
            Message::Listed { step: 1, more: true },
            Message::Changed { info },
            Message::Changed { info: in_a_file },
            Message::Changed { info: table },
            Message::UploadPart { step: 1, principal, segment, client, part, length: 3, staged: 4 },
            Message::CommitUpload {
                step: 1,
                principal,
                segment,
                client,
                offset: 2,
                upload: part.upload,
                conditions,
                timeout_us: 5,
            },
            Message::DropUpload { client, upload: part.upload },
            Message::Forget { segment },
            Message::Forgotten { segment },
            Message::Offer { segment, epoch: 1, version, timestamp, spec: Spec::new(9), permissions, name },
            Message::OfferAnswer { segment, epoch: 1, reply: OfferReply::Fenced },
            Message::Piece { segment, epoch: 1, offset: 2, length: 3, staged: 4, number: 5 },
            Message::Whole { segment, epoch: 1, version, timestamp },
            Message::Forward {
                segment,
                epoch: 1,
                version,
                row_version: version,
                timestamp,
                offset: 2,
                length: 3,
                staged: 4,
                number: 5,
                ranges: 0,
            },
            Message::ForwardPart {
                segment,
                epoch: 1,
                version,
                timestamp,
                offset: 2,
                at: 3,
                total: 9,
                length: 4,
                staged: 5,
                number: 6,
            },
            Message::Replicated { segment, epoch: 1, ack: ReplicaAck::Put, version, timestamp, number: 7 },
        ];
        for message in all {
            let bytes = message.encode(CLOCK, &[]);
            assert_eq!(Message::decode(&bytes), Ok((message, CLOCK, &[][..])));
            for cut in 0..bytes.len() {
                let short = Message::decode(&bytes[..cut]);
                assert!(short.is_err() || matches!(message, Message::Offer { .. }));
            }
        }
    }

    #[test]
    fn call_has_the_tail_that_its_operation_names() {
        // If this broke, a home would commit bytes that nobody sent, or read them outside of staging memory.
        let (principal, segment) = (Principal { uid: 1, gid: 2 }, SegmentId::new(NodeId(1), 2, 3));
        let accepts = |operation, tail: &[u8]| {
            let call = Message::call(1, principal, 5, operation);
            let bytes = call.encode(CLOCK, tail);
            let decoded = Message::decode(&bytes);
            assert!(decoded.is_err() || decoded == Ok((call, CLOCK, tail)), "{operation:?}");
            decoded.is_ok()
        };
        let tail = [7; Message::PUT_BYTES_MAX];
        let (slot, end) = (ARENA_SLOT_BYTES as u32, STAGING_BYTES as u64);
        let put = |at, bytes, conditions| {
            let from = Payload::Arena(ArenaRange::staged(at, bytes));
            Operation::Put { segment, offset: 2, from, conditions }
        };
        let (plain, most) = (PutConditions::default(), Message::PUT_BYTES_MAX as u32);
        assert!(accepts(put(None, most, plain), &tail) && !accepts(put(None, most, plain), &tail[1..]));
        assert!(accepts(put(None, 0, plain), &[]) && !accepts(put(None, 0, plain), &[1]));
        assert!(accepts(put(Some(end - 9), 9, plain), &[]) && !accepts(put(Some(end - 9), 9, plain), &[1]));
        assert!(
            !accepts(put(Some(end - 8), 9, plain), &[]) && !accepts(put(Some(u64::from(u32::MAX) - 1), 1, plain), &[])
        );
        let kind = EntryChangeKind::Replace;
        let change = EntryChange { kind, key_bytes: 1024, value_bytes: 65_536, expected: u64::MAX };
        let entry = PutConditions { entry: Some(change), ..PutConditions::default() };
        assert!(accepts(put(None, most, entry), &tail));
        let table = [0; Ranges::ENTRY_BYTES];
        let many = |at, bytes| {
            let list = ArenaRange::staged(at, slot + bytes);
            Operation::PutMany { segment, list, ranges: 1, conditions: plain }
        };
        assert!(accepts(many(Some(end - 9), 9), &table) && !accepts(many(Some(end - 8), 9), &table));
        assert!(!accepts(many(Some(4), 9), &[]) && !accepts(many(None, 9), &table));
        let list = ArenaRange { slot: 0, bytes: slot + 9 };
        let gets = Operation::GetMany { segment, list, ranges: 1, options: ReadOptions::default() };
        assert!(accepts(gets, &table) && !accepts(gets, &table[1..]) && !accepts(gets, &[]));
        let text = ArenaRange { slot: 0, bytes: 3 };
        for named in [
            Operation::Open { name: text },
            Operation::Allocate { spec_and_name: text },
            Operation::List { node: NodeId(1), text },
        ] {
            assert!(accepts(named, b"abc") && !accepts(named, b"ab") && !accepts(named, b"abcd"));
        }
    }

    #[test]
    fn tail_that_no_buffer_holds_is_refused() {
        // If this broke, another node could end the daemon with a few bytes more than a put has in its message.
        let (segment, staged, number) = (SegmentId::new(NodeId(1), 2, 3), Message::NOT_STAGED, 0);
        let (version, timestamp) = (Version(1), Timestamp(2));
        let most = Message::PUT_BYTES_MAX as u32;
        for length in [most, most + 1, most + 24] {
            let tail = vec![7; length as usize];
            for message in [
                Message::Got { step: 1, version, timestamp, length, staged, number },
                Message::Piece { segment, epoch: 1, offset: 2, length, staged, number },
            ] {
                assert_eq!(Message::decode(&message.encode(CLOCK, &tail)).is_ok(), length == most, "{message:?}");
            }
        }
    }

    #[test]
    fn version_of_a_replica_that_no_state_word_holds_is_refused() {
        // If this broke, a home could give a replica a version after which the next put overflows.
        let (segment, timestamp, low) = (SegmentId::new(NodeId(1), 2, 3), Timestamp(2), Version(u64::MAX >> 1));
        let forward = |version: Version, row_version: Version| Message::Forward {
            segment,
            epoch: 1,
            version,
            row_version,
            timestamp,
            offset: 0,
            length: 0,
            staged: Message::NOT_STAGED,
            number: Message::NOT_STAGED,
            ranges: 0,
        };
        let high = Version(low.0 + 1);
        let whole = |version| Message::Whole { segment, epoch: 1, version, timestamp };
        let decode = |message: Message| Message::decode(&message.encode(CLOCK, &[])).map(drop);
        for good in [forward(low, low), whole(low)] {
            assert_eq!(decode(good), Ok(()));
        }
        for bad in [forward(high, low), forward(low, high), whole(high)] {
            assert_eq!(decode(bad), Err(Failure::Malformed), "{bad:?}");
        }
    }

    proptest! {
        #[test]
        fn message_decoder_never_panics(bytes in proptest::collection::vec(any::<u8>(), 0..MESSAGE_BYTES_MAX)) {
            // If this broke, a peer could end the daemon.
            let _ = Message::decode(&bytes);
            let _ = crate::PeerHello::decode(&bytes);
        }
    }
}
