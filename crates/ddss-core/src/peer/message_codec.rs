//! Encoding and decoding of messages.

use super::message::Message;
use crate::codec::{Reader, Writer};
use crate::failure::{Failure, Outcome};
use crate::limits::{ARENA_SLOT_BYTES, STAGING_BYTES};
use crate::model::spec::Spec;
use crate::request::listing::Listing;
use crate::request::operation::{ArenaRange, LockToken, Operation, Part, Payload, UploadId};
use crate::request::ranges::Ranges;
use crate::{Timestamp, Version};
use arrayvec::ArrayVec;

impl Message {
    /// Encodes the message with the sender's clock. `tail` is what follows its fields.
    pub fn encode(&self, clock: Timestamp, tail: &[u8]) -> ArrayVec<u8, { Message::PLAIN_BYTES_MAX }> {
        let mut out = Writer::<{ Message::PLAIN_BYTES_MAX }>::default();
        out.u64(clock.0);
        match *self {
            Message::Welcome { staging } => out.u8(1).window(staging),
            Message::Describe { step, principal, segment } => {
                out.u8(3).u64(step).identity(principal).u64(segment.to_bits())
            }
            Message::Call { principal, lock, ref request } => {
                out.u8(32).identity(principal).u64(lock.0).request(request).bytes(tail)
            }
            Message::Found { step, info, window } => out.u8(5).u64(step).info(&info).window(window),
            Message::Ended { step, outcome, version, timestamp, word } => {
                let [kind, failure] = outcome.to_bytes();
                out.u8(8).u64(step).u8(kind).u8(failure).u64(version.0).u64(timestamp.0).u64(word)
            }
            Message::Forget { segment } => out.u8(9).u64(segment.to_bits()),
            Message::Forgotten { segment } => out.u8(10).u64(segment.to_bits()),
            Message::Got { step, version, timestamp, length, staged, number } => {
                out.u8(16).u64(step).u64(version.0).u64(timestamp.0).u32(length).u64(staged).u64(number).bytes(tail)
            }
            Message::Taken { number } => out.u8(17).u64(number),
            Message::Listed { step, more } => out.u8(20).u64(step).u8(more.into()).bytes(tail),
            Message::Changed { info } => out.u8(22).info(&info),
            Message::UploadPart { step, principal, segment, client, part, length, staged } => {
                out.u8(40).u64(step).identity(principal).u64(segment.to_bits()).client(client);
                out.u32(part.upload.0).u32(part.at).u32(part.total).u32(length).u64(staged).bytes(tail)
            }
            Message::CommitUpload { step, principal, segment, client, offset, upload, conditions, timeout_us } => {
                out.u8(41).u64(step).identity(principal).u64(segment.to_bits()).client(client).u64(offset);
                out.u32(upload.0).option(conditions.version.map(|version| version.0));
                out.option(conditions.token.map(|token| token.0)).model(conditions.requested_model).u32(timeout_us)
            }
            Message::DropUpload { client, upload } => out.u8(42).client(client).u32(upload.0),
            Message::Offer { segment, epoch, version, timestamp, spec, permissions, name } => {
                out.u8(24).u64(segment.to_bits()).u32(epoch).u64(version.0).u64(timestamp.0).bytes(&spec.encode());
                out.identity(permissions.owner).u16(permissions.mode).bytes(name.as_str().as_bytes())
            }
            Message::OfferAnswer { segment, epoch, reply } => {
                out.u8(25).u64(segment.to_bits()).u32(epoch).u8(reply.code())
            }
            Message::Piece { segment, epoch, offset, length, staged, number } => {
                out.u8(26).u64(segment.to_bits()).u32(epoch).u64(offset).u32(length).u64(staged).u64(number).bytes(tail)
            }
            Message::Whole { segment, epoch, version, timestamp } => {
                out.u8(27).u64(segment.to_bits()).u32(epoch).u64(version.0).u64(timestamp.0)
            }
            Message::Forward {
                segment,
                epoch,
                version,
                row_version,
                timestamp,
                offset,
                length,
                staged,
                number,
                ranges,
            } => {
                out.u8(28).u64(segment.to_bits()).u32(epoch).u64(version.0).u64(row_version.0).u64(timestamp.0);
                out.u64(offset).u32(length).u64(staged).u64(number).u8(ranges).bytes(tail)
            }
            Message::ForwardPart { segment, epoch, version, timestamp, offset, at, total, length, staged, number } => {
                out.u8(31).u64(segment.to_bits()).u32(epoch).u64(version.0).u64(timestamp.0).u64(offset);
                out.u32(at).u32(total).u32(length).u64(staged).u64(number).bytes(tail)
            }
            Message::Replicated { segment, epoch, ack, version, timestamp, number } => {
                out.u8(29).u64(segment.to_bits()).u32(epoch).u8(ack as u8);
                out.u64(version.0).u64(timestamp.0).u64(number)
            }
        };
        out.0
    }

    /// Decodes a copied message; returns it with the sender's clock and its tail.
    pub fn decode(bytes: &[u8]) -> Result<(Self, Timestamp, &[u8]), Failure> {
        let mut input = Reader(bytes);
        let clock = Timestamp(input.u64()?);
        let kind = input.u8()?;
        let message = match kind {
            1 => Message::Welcome { staging: input.window()? },
            3 => Message::Describe { step: input.u64()?, principal: input.identity()?, segment: input.segment()? },
            32 => {
                Message::Call { principal: input.identity()?, lock: LockToken(input.u64()?), request: input.request()? }
            }
            5 => Message::Found { step: input.u64()?, info: input.info()?, window: input.window()? },
            8 => Message::Ended {
                step: input.u64()?,
                outcome: Outcome::from_bytes(input.array()?),
                version: Version(input.u64()?),
                timestamp: Timestamp(input.u64()?),
                word: input.u64()?,
            },
            9 => Message::Forget { segment: input.segment()? },
            10 => Message::Forgotten { segment: input.segment()? },
            16 => Message::Got {
                step: input.u64()?,
                version: Version(input.u64()?),
                timestamp: Timestamp(input.u64()?),
                length: input.u32()?,
                staged: input.u64()?,
                number: input.u64()?,
            },
            17 => Message::Taken { number: input.u64()? },
            20 => Message::Listed { step: input.u64()?, more: input.u8()? != 0 },
            22 => Message::Changed { info: input.info()? },
            24 => Message::Offer {
                segment: input.segment()?,
                epoch: input.u32()?,
                version: input.stored_version()?,
                timestamp: Timestamp(input.u64()?),
                spec: Spec::decode(&input.array()?)?,
                permissions: input.permissions()?,
                name: input.name()?,
            },
            25 => Message::OfferAnswer { segment: input.segment()?, epoch: input.u32()?, reply: input.reply()? },
            26 => Message::Piece {
                segment: input.segment()?,
                epoch: input.u32()?,
                offset: input.u64()?,
                length: input.u32()?,
                staged: input.u64()?,
                number: input.u64()?,
            },
            27 => Message::Whole {
                segment: input.segment()?,
                epoch: input.u32()?,
                version: input.stored_version()?,
                timestamp: Timestamp(input.u64()?),
            },
            28 => Message::Forward {
                segment: input.segment()?,
                epoch: input.u32()?,
                version: input.stored_version()?,
                row_version: input.stored_version()?,
                timestamp: Timestamp(input.u64()?),
                offset: input.u64()?,
                length: input.u32()?,
                staged: input.u64()?,
                number: input.u64()?,
                ranges: input.ranges()?,
            },
            29 => Message::Replicated {
                segment: input.segment()?,
                epoch: input.u32()?,
                ack: input.ack()?,
                version: Version(input.u64()?),
                timestamp: Timestamp(input.u64()?),
                number: input.u64()?,
            },
            31 => Message::ForwardPart {
                segment: input.segment()?,
                epoch: input.u32()?,
                version: input.stored_version()?,
                timestamp: Timestamp(input.u64()?),
                offset: input.u64()?,
                at: input.u32()?,
                total: input.u32()?,
                length: input.u32()?,
                staged: input.u64()?,
                number: input.u64()?,
            },
            40 => Message::UploadPart {
                step: input.u64()?,
                principal: input.identity()?,
                segment: input.segment()?,
                client: input.client()?,
                part: Part { upload: UploadId(input.u32()?), at: input.u32()?, total: input.u32()? },
                length: input.u32()?,
                staged: input.u64()?,
            },
            41 => Message::CommitUpload {
                step: input.u64()?,
                principal: input.identity()?,
                segment: input.segment()?,
                client: input.client()?,
                offset: input.u64()?,
                upload: UploadId(input.u32()?),
                conditions: input.conditions()?,
                timeout_us: input.u32()?,
            },
            42 => Message::DropUpload { client: input.client()?, upload: UploadId(input.u32()?) },
            _ => return Err(Failure::Malformed),
        };
        if message.allows_tail(input.0.len()) { Ok((message, clock, input.0)) } else { Err(Failure::Malformed) }
    }

    /// Returns true if the message may have a tail of that length. A buffer of the engine holds each tail.
    fn allows_tail(&self, bytes: usize) -> bool {
        if bytes > Self::PUT_BYTES_MAX {
            return false;
        }
        let placed = |staged: u64, length: u32| staged.saturating_add(length.into()) <= STAGING_BYTES as u64;
        let table = |ranges: u8| bytes == usize::from(ranges) * Ranges::ENTRY_BYTES;
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
    use crate::limits::MESSAGE_BYTES_MAX;
    use crate::model::segment::{Name, PermissionUpdate, Permissions, Principal};
    use crate::peer::message::{RemoteWindow, SegmentInfo};
    use crate::peer::replica_reply::{OfferReply, ReplicaAck};
    use crate::request::entry_change::{EntryChange, EntryChangeKind};
    use crate::request::operation::{AtomicOp, LockRequest, PutConditions, ReadOptions};
    use crate::{Model, NodeId, RequestId, SegmentId, Storage};
    use proptest::prelude::*;

    const CLOCK: Timestamp = Timestamp(77);

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
