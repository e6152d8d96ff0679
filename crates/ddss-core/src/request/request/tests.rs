//! Tests of requests in ring entries.

use super::*;
use crate::model::segment::{PermissionUpdate, Principal};
use proptest::prelude::*;

fn options() -> impl Strategy<Value = ReadOptions> {
    (0..=7u8, any::<u32>(), any::<Option<u64>>()).prop_map(|(kind, parameter, version)| {
        let parameter = if kind > 5 { parameter } else { 0 };
        ReadOptions { requested_model: Model::from_parts(kind, parameter).ok(), version: version.map(Version) }
    })
}

fn operations() -> impl Strategy<Value = Operation> {
    let segment = any::<u64>().prop_map(SegmentId::from_bits);
    let range = |most: usize| (any::<u32>(), 0..=most as u32).prop_map(|(slot, bytes)| ArenaRange { slot, bytes });
    prop_oneof![
        Just(Operation::Null),
        Just(Operation::Collect),
        range(Spec::ENCODED_BYTES + NAME_BYTES_MAX).prop_map(|spec_and_name| Operation::Allocate { spec_and_name }),
        range(NAME_BYTES_MAX).prop_map(|name| Operation::Open { name }),
        segment.clone().prop_map(|segment| Operation::Release { segment }),
        (segment.clone(), any::<u64>(), range(INLINE_REPLY_BYTES_MAX), any::<bool>(), options()).prop_map(
            |(segment, offset, into, inline, options)| Operation::Get { segment, offset, into, inline, options }
        ),
        (segment.clone(), any::<u32>(), 1..=RANGES_MAX as u8, options()).prop_map(
            |(segment, slot, ranges, options)| {
                let list = ArenaRange { slot, bytes: ARENA_SLOT_BYTES as u32 + 5 };
                Operation::GetMany { segment, list, ranges, options }
            }
        ),
        (segment.clone(), any::<u32>(), 1..=256usize, 1..=3000usize, options()).prop_map(
            |(segment, slot, rows, row_bytes, ReadOptions { requested_model, .. })| {
                let list = RowList::new(rows, row_bytes).expect("a transfer has room for them");
                let range = ArenaRange { slot, bytes: list.bytes() as u32 };
                Operation::GetRows { segment, range, list, requested_model }
            }
        ),
        (segment.clone(), any::<u32>(), 1..=RANGES_MAX as u8, any::<u64>()).prop_map(|(segment, slot, ranges, a)| {
            let list = ArenaRange { slot, bytes: ARENA_SLOT_BYTES as u32 + 5 };
            let conditions = PutConditions {
                version: Some(Version(a)),
                token: None,
                requested_model: Some(Model::Strict),
                entry: None,
            };
            Operation::PutMany { segment, list, ranges, conditions }
        }),
        (any::<u16>(), range(LIST_TEXT_BYTES_MAX))
            .prop_map(|(node, text)| Operation::List { node: NodeId(node), text }),
        (segment.clone(), range(400)).prop_map(|(segment, page)| Operation::Stat { segment, page }),
        segment.clone().prop_map(|segment| Operation::Break { segment }),
        (segment.clone(), any::<u64>(), any::<u64>()).prop_map(|(segment, first, buckets)| Operation::Sweep {
            segment,
            first,
            buckets
        }),
        (segment.clone(), any::<u64>()).prop_map(|(segment, id)| Operation::Cancel { segment, request: RequestId(id) }),
        (segment.clone(), prop::option::of(0..=0o777u16), prop::option::of(any::<(u32, u32)>())).prop_map(
            |(segment, mode, owner)| {
                let owner = owner.map(|(uid, gid)| Principal { uid, gid });
                Operation::Permit { segment, update: PermissionUpdate { mode, owner } }
            }
        ),
        (segment.clone(), any::<u64>(), range(TRANSFER_BYTES_MAX)).prop_map(|(segment, offset, range)| {
            Operation::Put { segment, offset, from: Payload::Arena(range), conditions: PutConditions::default() }
        }),
        (segment.clone(), any::<u64>(), any::<u64>(), any::<u64>()).prop_map(|(segment, offset, a, b)| {
            let from = Payload::Arena(ArenaRange { slot: 1, bytes: 9 });
            let conditions = PutConditions {
                version: Some(Version(a)),
                token: Some(LockToken(b)),
                requested_model: None,
                entry: None,
            };
            Operation::Put { segment, offset, from, conditions }
        }),
        (segment.clone(), any::<u64>(), 1..=5u64, 1..=1024u64, 0..=65_536u64).prop_map(
            |(segment, offset, kind, key, value)| {
                let expected = if kind == 4 { value } else { 0 };
                let change = EntryChange::from_words(kind << 48 | key << 32 | value, expected).expect("sizes of a map");
                let from = Payload::Arena(ArenaRange { slot: 1, bytes: change.payload_bytes() });
                Operation::Put {
                    segment,
                    offset,
                    from,
                    conditions: PutConditions { entry: Some(change), ..PutConditions::default() },
                }
            }
        ),
        (segment.clone(), 0..1_000_000u64, 1..=5u8, any::<u64>(), any::<u64>()).prop_map(
            |(segment, word, kind, a, b)| {
                let b = if kind == 3 { b } else { 0 };
                let change = AtomicOp::from_parts(kind, a, b).expect("a good kind");
                let token = (a % 2 == 0).then_some(LockToken(a.wrapping_mul(b | 1)));
                Operation::Atomic { segment, offset: word * 8, change, token }
            }
        ),
        (segment.clone(), any::<u64>(), any::<u64>()).prop_map(|(segment, offset, above)| Operation::Await {
            segment,
            offset,
            above: Version(above)
        }),
        (segment.clone(), any::<bool>(), any::<bool>(), 1..=LEASE_MAX_US, any::<Option<u64>>()).prop_map(
            |(segment, shared, no_wait, lease_us, row_offset)| {
                Operation::Lock { segment, lock_request: LockRequest { shared, no_wait, lease_us, row_offset } }
            }
        ),
        (segment.clone(), any::<u64>())
            .prop_map(|(segment, token)| { Operation::Unlock { segment, token: LockToken(token) } }),
        (segment.clone(), any::<u64>(), 1..=LEASE_MAX_US).prop_map(|(segment, token, lease_us)| Operation::Renew {
            segment,
            token: LockToken(token),
            lease_us
        }),
        (segment.clone(), 0..1000u32, any::<u32>(), range(TRANSFER_BYTES_MAX)).prop_filter_map(
            "an empty part",
            |(segment, at, upload, from)| {
                let part = Part { upload: UploadId(upload | 1), at, total: at + from.bytes };
                (from.bytes > 0).then_some(Operation::UploadPart { segment, part, from })
            }
        ),
        (segment.clone(), any::<u64>(), any::<u32>(), any::<u64>()).prop_map(|(segment, offset, upload, a)| {
            let conditions = PutConditions {
                version: Some(Version(a)),
                token: None,
                requested_model: Some(Model::Write),
                entry: None,
            };
            Operation::CommitUpload { segment, offset, upload: UploadId(upload), conditions }
        }),
        (segment.clone(), any::<u32>())
            .prop_map(|(segment, upload)| Operation::DropUpload { segment, upload: UploadId(upload) }),
        (segment, any::<u64>(), any::<[u8; 16]>(), 0..=16u8).prop_map(|(segment, offset, mut bytes, length)| {
            bytes[length as usize..].fill(0);
            Operation::Put {
                segment,
                offset,
                from: Payload::Inline { bytes, length },
                conditions: PutConditions::default(),
            }
        }),
    ]
}

proptest! {
    #[test]
    fn request_round_trips(
        operation in operations(), id in any::<u64>(), timeout_us in 1..=TIMEOUT_MAX_US, parks in any::<bool>()
    ) {
        // If this broke, a put could land elsewhere than the client said.
        let parks = parks && (operation.can_park() || matches!(operation, Operation::Cancel { .. }));
        let request = Request { id: RequestId(id), timeout_us, operation, parks };
        let mut entry = request.encode();
        entry[0] |= 0xffff_ffff; // the ring's half is nobody else's business
        prop_assert_eq!(Request::decode(&entry), Ok(request));
    }

    #[test]
    fn request_decoder_never_panics(entry in any::<[u64; 8]>()) {
        // If this broke, a malicious client could end the daemon.
        if let Ok(request) = Request::decode(&entry) {
            prop_assert!(request.timeout_us <= TIMEOUT_MAX_US && request.timeout_us > 0);
            if let Operation::Get { into, .. } = request.operation {
                prop_assert!(into.bytes as usize <= TRANSFER_BYTES_MAX);
            }
            if let Operation::GetRows { range, list, .. } = request.operation {
                prop_assert!(range.bytes as usize == list.bytes() && list.bytes() <= TRANSFER_BYTES_MAX);
            }
        }
    }
}

#[test]
fn lease_beyond_the_maximum_is_refused() {
    // If this broke, a lock would end sooner than its holder was promised.
    let segment = SegmentId::from_bits(7);
    let of = |operation| Request::decode(&Request::new(RequestId(3), operation).encode());
    for lease_us in [0, LEASE_MAX_US + 1, u32::MAX] {
        let refused = Err(BadRequest { id: RequestId(3), failure: Failure::BadLease });
        let lock_request = LockRequest { shared: false, no_wait: false, lease_us, row_offset: None };
        assert_eq!(of(Operation::Lock { segment, lock_request }), refused);
        assert_eq!(of(Operation::Renew { segment, token: LockToken(1), lease_us }), refused);
    }
}

#[test]
fn arena_range_never_wraps() {
    // If this broke, a slot number could name memory outside the arena.
    let range = ArenaRange { slot: u32::MAX, bytes: u32::MAX };
    assert!(!range.fits(1 << 30));
    assert!(ArenaRange { slot: 1, bytes: 4096 }.fits(8192));
    assert!(!ArenaRange { slot: 1, bytes: 4097 }.fits(8192));
}
