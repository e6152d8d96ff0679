//! Hostile peers: no message of them ends a member, overfills a ring or a send slot.

mod play;

use ddss_river_core::codec::{Message, encode};
use ddss_river_core::{
    Attempt, ChunkReply, ChunkRequest, ConsumerId, EdgeId, Flags, Header, Load, PartId, ProducerId, Progress, ReaderId,
    Route, ToConsumer, ToProducer,
};
use proptest::prelude::*;

const ROUTE: Route = Route { edge: EdgeId(0), producer: ProducerId(0), consumer: ConsumerId(0) };

fn attempt() -> impl Strategy<Value = Attempt> {
    (0_u64..4, 0_u16..4, 1_u16..4).prop_map(|(index, place, number)| Attempt { index, place, number })
}

/// Returns a message that often fits what a queue has sent.
fn message() -> impl Strategy<Value = Vec<u8>> {
    let put = (attempt(), 0_u16..3, 0_u32..70).prop_map(|(attempt, slot, length)| {
        let header = Header { attempt, slot, length, checksum: 0, unit: None, flags: Flags::default() };
        Message::Put { route: ROUTE, header, inline: None }
    });
    let notice = (0..8, attempt()).prop_map(|(kind, attempt)| {
        let load = Load { messages: attempt.number.into(), service_us: u32::MAX };
        match kind {
            0 => Message::ToConsumer(ROUTE, ToConsumer::Recall(attempt)),
            1 => Message::ToConsumer(ROUTE, ToConsumer::Closed),
            2 => Message::ToProducer(ROUTE, ToProducer::Ask),
            3 => Message::ToProducer(ROUTE, ToProducer::Acknowledged { attempt, load }),
            4 => Message::ToProducer(ROUTE, ToProducer::Begun(attempt)),
            5 => Message::ToProducer(ROUTE, ToProducer::Recalled(attempt)),
            6 => Message::ToProducer(ROUTE, ToProducer::Rejected(attempt)),
            _ => Message::ToProducer(ROUTE, ToProducer::Withdrawn),
        }
    });
    let field = || prop_oneof![0_u32..12, Just(u32::MAX >> 8)];
    let request = (field(), field(), 0_u16..5, 0_u32..13).prop_map(|(chunk, done, slot, total)| {
        let (reader, part, progress) = (ReaderId(1), PartId(0), Progress { done, total });
        Message::ChunkRequest(ChunkRequest { reader, part, generation: 1, chunk, slot, progress })
    });
    let reply = (0_u32..12, 0_u16..5, 0_u32..16, 0_u64..4).prop_map(|(chunk, slot, checksum, generation)| {
        let (reader, part, generation) = (ReaderId(1), PartId(0), Some(generation.min(1)));
        Message::ChunkReply(ChunkReply { reader, part, generation, chunk, slot, checksum })
    });
    prop_oneof![put, notice, request, reply].prop_map(|message| {
        let mut bytes = Vec::new();
        encode(&message, &mut bytes);
        bytes
    })
}

fn step() -> impl Strategy<Value = Vec<u8>> {
    let driven = (0_u8..86, any::<u8>()).prop_map(|(kind, argument)| vec![3 * kind, argument]);
    let driven_consumer = (0_u8..85, any::<u8>()).prop_map(|(kind, argument)| vec![3 * kind + 1, argument]);
    let received = (message(), any::<bool>()).prop_map(|(mut bytes, has_odd_length)| {
        // The length selects the peer.
        bytes.resize(bytes.len() + usize::from(has_odd_length), 0);
        [&[2, bytes.len() as u8], bytes.as_slice()].concat()
    });
    prop_oneof![driven, driven_consumer, received]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    // If this failed, a peer could end a member, or have it hold more than its limits.
    #[test]
    fn both_ends_survive_any_message(flags in any::<u8>(), steps in proptest::collection::vec(step(), 1..60)) {
        play::play(&[vec![flags], steps.concat()].concat());
    }
}
