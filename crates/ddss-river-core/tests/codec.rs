//! Messages: each survives its way, and no bytes of a peer cause more than an error.

use ddss_river_core::codec::{Message, decode, encode};
use ddss_river_core::limits::{HEADER_BYTES, INLINE_BYTES_MAX, NOTICE_BYTES_MAX};
use ddss_river_core::{
    Attempt, ChunkReply, ChunkRequest, ConsumerId, EdgeId, Flags, Header, Load, PartId, ProducerId, Progress, ReaderId,
    Route, ToConsumer, ToProducer, UnitId,
};
use proptest::prelude::*;

const ROUTE: Route = Route { edge: EdgeId(70_000), producer: ProducerId(300), consumer: ConsumerId(65_535) };
const ATTEMPT: Attempt = Attempt { index: 1 << 40, place: 4095, number: 255 };

fn header(length: u32, unit: Option<UnitId>) -> Header {
    let flags = Flags { is_redelivered: true, is_recalled: unit.is_none() };
    Header { attempt: ATTEMPT, slot: 63, length, checksum: 0xdead_beef, unit, flags }
}

fn messages() -> Vec<Message<'static>> {
    let load = Load { messages: 7, service_us: 1 << 30 };
    let notices = [
        ToProducer::Ask,
        ToProducer::Acknowledged { attempt: ATTEMPT, load },
        ToProducer::Begun(ATTEMPT),
        ToProducer::Recalled(ATTEMPT),
        ToProducer::Rejected(ATTEMPT),
        ToProducer::Withdrawn,
    ];
    let mut messages = vec![
        Message::Put { route: ROUTE, header: header(64 << 20, None), inline: None },
        Message::Put { route: ROUTE, header: header(5, Some(UnitId(9))), inline: Some(b"hello") },
        Message::Put { route: ROUTE, header: header(400, None), inline: Some(&[7; INLINE_BYTES_MAX]) },
        Message::ToConsumer(ROUTE, ToConsumer::Recall(ATTEMPT)),
        Message::ToConsumer(ROUTE, ToConsumer::Closed),
    ];
    let (reader, part, chunk, slot) = (ReaderId(1 << 20), PartId(9), (1 << 24) - 1, 31);
    let progress = Progress { done: 8, total: 1 << 24 };
    messages.push(Message::ChunkRequest(ChunkRequest { reader, part, generation: 1 << 40, chunk, slot, progress }));
    for generation in [Some(7), None] {
        messages.push(Message::ChunkReply(ChunkReply { reader, part, generation, chunk, slot, checksum: 5 }));
    }
    messages.extend(notices.map(|notice| Message::ToProducer(ROUTE, notice)));
    messages
}

// If this failed, two members of one release would not understand each other.
#[test]
fn every_message_survives_its_way_and_no_shorter_one_does() {
    for message in messages() {
        let mut bytes = Vec::new();
        encode(&message, &mut bytes);
        match message {
            Message::Put { inline, .. } => assert_eq!(bytes.len(), HEADER_BYTES + inline.map_or(0, <[u8]>::len)),
            _ => assert!(bytes.len() <= NOTICE_BYTES_MAX),
        }
        assert_eq!(decode(&bytes), Ok((message, &[][..])));
        for length in 0..bytes.len() {
            assert!(decode(&bytes[..length]).is_err(), "{message:?} of {length} bytes");
        }
    }
}

// If this failed, a driver could not send several messages in one transfer.
#[test]
fn messages_follow_one_another() {
    let mut bytes = Vec::new();
    messages().iter().for_each(|message| encode(message, &mut bytes));
    let mut rest = bytes.as_slice();
    let mut decoded = Vec::new();
    while !rest.is_empty() {
        let (message, behind) = decode(rest).unwrap();
        decoded.push(message);
        rest = behind;
    }
    assert_eq!(decoded, messages());
}

// If this failed, a peer could name a slot, a length or a flag that no member has.
#[test]
fn fields_outside_their_limits_are_refused() {
    let mut bytes = Vec::new();
    encode(&Message::Put { route: ROUTE, header: header(5, None), inline: Some(b"hello") }, &mut bytes);
    // Kind, flags, send slot, attempt, slot, length, padding.
    let changes: &[(usize, &[u8])] =
        &[(0, &[0]), (0, &[200]), (1, &[8]), (18, &[0, 16]), (20, &[0, 0]), (22, &[64, 0]), (24, &[0, 0, 0, 5])];
    for (at, change) in changes.iter().chain(&[(24, &[145, 1, 0, 0][..]), (63, &[1])]) {
        let mut changed = bytes.clone();
        changed.resize(600, 0);
        changed[*at..at + change.len()].copy_from_slice(change);
        assert!(decode(&changed).is_err(), "{change:?} at {at}");
    }
}

proptest! {
    // If this failed, a peer could end a member by a message.
    #[test]
    fn no_bytes_cause_a_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200), kind in 0_u8..14) {
        let mut bytes = bytes;
        if let Some(first) = bytes.first_mut() {
            *first = kind;
        }
        if let Ok((message, rest)) = decode(&bytes) {
            let mut again = Vec::new();
            encode(&message, &mut again);
            prop_assert_eq!(&again, &bytes[..bytes.len() - rest.len()]);
        }
    }
}
