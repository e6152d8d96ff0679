//! Bytes of messages and hellos.

use ddss_sdp::codec::{Advertisement, Body, Flags, HELLO_BYTES, Header, Hello, HelloAck, MessageKind, SOURCE_BYTES};
use ddss_sdp::{Plan, SdpError, StreamConfig, accept, connect, finish_connect};
use proptest::prelude::*;

use crate::common::{addresses, enhanced_plan};

/// Returns a body of each kind of an open stream.
fn body(kind: MessageKind, word: u32, payload: usize) -> Option<Body> {
    let memory = Advertisement { len: word, rkey: !word, vaddr: u64::from(word) << 20 };
    Some(match kind {
        MessageKind::Hello | MessageKind::HelloAck => return None,
        MessageKind::DisConn => Body::DisConn,
        MessageKind::AbortConn => Body::AbortConn,
        MessageKind::SendSm => Body::SendSm,
        MessageKind::RdmaWrCompl => Body::RdmaWrCompl(word),
        MessageKind::RdmaRdCompl => Body::RdmaRdCompl(word),
        MessageKind::ModeChange => Body::ModeChange(word),
        MessageKind::SrcAvailCancel => Body::SrcAvailCancel,
        MessageKind::SinkAvailCancel => Body::SinkAvailCancel,
        MessageKind::SinkAvailCancelAck => Body::SinkAvailCancelAck,
        MessageKind::ChRcvBuf => Body::ChRcvBuf(word),
        MessageKind::ChRcvBufAck => Body::ChRcvBufAck(word),
        MessageKind::SuspComm => Body::SuspComm(word),
        MessageKind::SuspCommAck => Body::SuspCommAck,
        MessageKind::SinkAvail => Body::SinkAvail(memory),
        MessageKind::SrcAvail => Body::SrcAvail(memory, payload),
        MessageKind::Data => Body::Data(payload),
    })
}

proptest! {
    #[test]
    fn messages_decode_to_what_was_encoded(
        at in 0..MessageKind::ALL.len(), word: u32, payload in 0_usize..70_000, mseq: u32, mseq_ack: u32, bufs: u16,
    ) {
        // If this failed, both ends of this implementation would disagree on a field.
        let kind = MessageKind::ALL[at];
        let Some(body) = body(kind, word, payload) else { return Ok(()) };
        let (fixed, fixed_bytes) = body.encode_fixed();
        let len = (16 + fixed_bytes + body.payload_bytes()) as u32;
        let header = Header { kind, flags: Flags::ACK_WANTED, bufs, len, mseq, mseq_ack };
        prop_assert_eq!(Header::decode(&header.encode()), Ok(header));
        prop_assert_eq!(Body::decode(&header, &fixed), Ok(body));
    }

    #[test]
    fn no_bytes_make_the_decoder_panic(head: [u8; 16], fixed in proptest::collection::vec(any::<u8>(), 0..20)) {
        // If this failed, a peer could end this process.
        if let Ok(header) = Header::decode(&head) {
            let _ = Body::decode(&header, &fixed);
        }
        let _ = Hello::decode(&[&head[..], &fixed, &head, &head, &head].concat());
        let _ = HelloAck::decode(&[&head[..], &fixed].concat());
    }
}

#[test]
fn header_has_the_bytes_of_the_specification() {
    // If this failed, no other implementation could read this one.
    let header = Header {
        kind: MessageKind::SrcAvail,
        flags: Flags::ACK_WANTED,
        bufs: 0x0102,
        len: 0x0304_0506,
        mseq: 0x0708_090a,
        mseq_ack: 0x0b0c_0d0e,
    };
    assert_eq!(header.encode(), [0xfe, 8, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14]);
    let memory = Advertisement { len: 0x0102_0304, rkey: 0x0506_0708, vaddr: 0x090a_0b0c_0d0e_0f10 };
    assert_eq!(memory.encode(), [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16]);
}

#[test]
fn hello_has_the_bytes_of_the_specification() {
    // If this failed, a peer would read the buffers or the addresses at other places.
    let config = StreamConfig { buffers: 0x0140, buffer_bytes: 0x8000, ..StreamConfig::default() };
    let hello = connect(&config, Plan::basic(), addresses()).unwrap();
    let mut expected = [0; HELLO_BYTES];
    expected[2..4].copy_from_slice(&[1, 0x40]);
    expected[7] = 76;
    expected[16..18].copy_from_slice(&[0x22, 0x40]);
    expected[19] = 1;
    expected[22] = 0x80;
    expected[26] = 0x80;
    expected[28..30].copy_from_slice(&40_000_u16.to_be_bytes());
    expected[44..48].copy_from_slice(&[10, 0, 0, 1]);
    expected[60..64].copy_from_slice(&[10, 0, 0, 2]);
    assert_eq!(hello, expected);
    let (_, ack) = accept(&config, Plan::basic(), &hello).unwrap();
    assert_eq!(ack, [1, 0, 1, 0x40, 0, 0, 0, 24, 0, 0, 0, 0, 0, 0, 0, 0, 0x22, 0x40, 0, 1, 0, 0, 0x80, 0]);
}

#[test]
fn bodies_with_a_wrong_length_are_refused() {
    // If this failed, a message could be cut short, or bytes behind it would be lost silently.
    for kind in MessageKind::ALL {
        let Some(body) = body(*kind, 7, 0) else { continue };
        let (fixed, bytes) = body.encode_fixed();
        for wrong in [bytes.wrapping_sub(1), bytes + 5] {
            let has_payload = matches!(kind, MessageKind::Data | MessageKind::SrcAvail);
            if wrong > 64 || has_payload && wrong > bytes {
                continue;
            }
            let len = 16 + wrong as u32;
            let header = Header { kind: *kind, flags: Flags::default(), bufs: 0, len, mseq: 1, mseq_ack: 0 };
            let expected = Err(SdpError::MessageLength { mid: kind.mid(), len });
            assert_eq!(Body::decode(&header, &fixed[..wrong.min(SOURCE_BYTES)]), expected, "{kind:?}");
        }
    }
}

#[test]
fn malformed_hellos_are_refused() {
    // If this failed, a peer could make buffers of no bytes, or advertise without end.
    let config = StreamConfig::default();
    let good = connect(&config, Plan::basic(), addresses()).unwrap();
    let refused = |change: &dyn Fn(&mut Vec<u8>)| {
        let mut hello = good.to_vec();
        change(&mut hello);
        accept(&config, Plan::basic(), &hello).map(|_| ()).unwrap_err()
    };
    assert_eq!(refused(&|hello| hello.truncate(63)), SdpError::HelloLength(63));
    assert_eq!(refused(&|hello| hello.truncate(64)), SdpError::HelloLength(76));
    assert_eq!(refused(&|hello| hello[0] = 1), SdpError::UnexpectedMessage(1));
    assert_eq!(refused(&|hello| hello[0] = 0x77), SdpError::UnknownMessage(0x77));
    assert_eq!(refused(&|hello| hello[16] = 0x11), SdpError::Version(0x11));
    assert_eq!(refused(&|hello| hello[17] = 0x50), SdpError::HelloField("IP version", 5));
    assert_eq!(refused(&|hello| hello[19] = 0), SdpError::HelloField("max_adverts", 0));
    assert_eq!(refused(&|hello| hello[24..28].fill(0)), SdpError::HelloField("receive buffer", 0));
    assert_eq!(refused(&|hello| hello.resize(513, 0)), SdpError::HelloLength(76));
    // A FreeBSD peer pads its hello to the private data of InfiniBand.
    let mut padded = good.to_vec();
    padded.resize(92, 0);
    padded[7] = 92;
    assert!(accept(&config, Plan::basic(), &padded).is_ok());
}

#[test]
fn enhanced_plan_needs_both_sides() {
    // If this failed, one side would wait for credits that the other never gives.
    let config = StreamConfig::default();
    for (asks, answers) in [(true, true), (true, false), (false, true), (false, false)] {
        let plan = |is_enhanced| if is_enhanced { enhanced_plan() } else { Plan::basic() };
        let hello = connect(&config, plan(asks), addresses()).unwrap();
        let (there, ack) = accept(&config, plan(answers), &hello).unwrap();
        let here = finish_connect(plan(asks), &ack).unwrap();
        assert_eq!(here.plan, there.plan);
        assert_eq!(here.plan.is_enhanced(), asks && answers);
    }
    let hello = connect(&config, enhanced_plan(), addresses()).unwrap();
    let (_, ack) = accept(&config, enhanced_plan(), &hello).unwrap();
    assert!(finish_connect(Plan::basic(), &ack).is_err(), "a capability that was not offered");
}
