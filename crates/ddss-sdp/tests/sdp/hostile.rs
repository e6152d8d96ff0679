//! Messages that break the protocol: a typed error, never a panic.

use ddss_sdp::{BasicStream, FrameWriter, Plan, SdpError};

use crate::common::{Random, SMALL, terms, zero_copy_plan};
use crate::enhanced_simulation::{Sockets, framing};
use crate::play;
use crate::reading::mid;

/// Returns a message of `kind` with number `mseq`.
fn message(kind: u8, mseq: u32, body: &[u8]) -> Vec<u8> {
    let mut out = vec![kind, 0, 0, 6];
    out.extend((16 + body.len() as u32).to_be_bytes());
    out.extend(mseq.to_be_bytes());
    out.extend([0; 4]);
    out.extend(body);
    out
}

fn stream(plan: Plan) -> BasicStream {
    BasicStream::new(&SMALL, &terms(&SMALL, plan)[0]).unwrap()
}

fn receive(stream: &mut BasicStream, message: &[u8]) -> Result<(), SdpError> {
    let buffer = stream.receive_buffer()?;
    buffer[..message.len()].copy_from_slice(message);
    stream.received(message.len())
}

#[track_caller]
fn refused(messages: &[Vec<u8>], expected: SdpError) {
    let mut stream = stream(zero_copy_plan());
    let (last, before) = messages.split_last().unwrap();
    for message in before {
        receive(&mut stream, message).unwrap();
    }
    assert_eq!(receive(&mut stream, last), Err(expected));
    assert_eq!(stream.read(&mut [0; 8]), Err(expected), "the stream is at its end");
    assert_eq!(stream.write(b"x"), Err(expected));
    assert!(stream.next_message(0).is_none());
}

fn source(len: u32) -> Vec<u8> {
    [&len.to_be_bytes()[..], &[0; 12]].concat()
}

#[test]
fn wrong_headers_are_refused() {
    // If this failed, a peer could skip, repeat or invent messages.
    refused(&[message(0x55, 1, &[])], SdpError::UnknownMessage(0x55));
    refused(&[message(mid::DATA, 2, &[])], SdpError::Sequence { last: 0, got: 2 });
    refused(&[message(mid::DATA, 0, &[])], SdpError::Sequence { last: 0, got: 0 });
    let twice = message(mid::DATA, 1, b"x");
    refused(&[twice.clone(), twice], SdpError::Sequence { last: 1, got: 1 });
    for (at, len) in [(4, 0x0100_0011), (7, 0x12), (7, 0)] {
        let mut wrong = message(mid::DATA, 1, b"x");
        wrong[at] = if at == 4 { 1 } else { len as u8 };
        refused(&[wrong], SdpError::MessageLength { mid: mid::DATA, len });
    }
    let mut early = message(mid::DATA, 1, &[]);
    early[15] = 1;
    refused(&[early], SdpError::Acknowledgement(1));
    refused(&[vec![mid::DATA; 9]], SdpError::MessageLength { mid: 0, len: 9 });
    refused(&[vec![]], SdpError::MessageLength { mid: 0, len: 0 });
}

#[test]
fn acknowledgement_is_never_taken_back() {
    // If this failed, a peer could raise its credits by going back.
    let mut stream = stream(Plan::basic());
    stream.write(b"x").unwrap();
    assert!(stream.next_message(0).is_some());
    let mut first = message(mid::DATA, 1, &[]);
    first[15] = 1;
    receive(&mut stream, &first).unwrap();
    assert_eq!(receive(&mut stream, &message(mid::DATA, 2, &[])), Err(SdpError::Acknowledgement(0)));
}

#[test]
fn wrong_order_of_messages_is_refused() {
    // If this failed, a peer could send after its end, or complete reads of memory that was not advertised.
    let unexpected = SdpError::UnexpectedMessage;
    refused(&[message(mid::DIS_CONN, 1, &[]), message(mid::DATA, 2, b"x")], SdpError::DataAfterClose);
    refused(&[message(mid::DIS_CONN, 1, &[]), message(mid::DIS_CONN, 2, &[])], unexpected(mid::DIS_CONN));
    refused(&[message(0x00, 1, &[])], unexpected(0x00));
    refused(&[message(0x01, 1, &[])], unexpected(0x01));
    refused(&[message(0x05, 1, &[0; 4])], unexpected(0x05));
    refused(&[message(0x0d, 1, &[0; 4])], unexpected(0x0d));
    refused(&[message(0x0e, 1, &[])], unexpected(0x0e));
    let advertise = |mseq| message(mid::SRC_AVAIL, mseq, &source(100));
    refused(&[advertise(1), message(mid::DATA, 2, b"x")], unexpected(mid::DATA));
    refused(&[advertise(1), advertise(2)], unexpected(mid::DATA));
    refused(&[advertise(1), message(mid::DIS_CONN, 2, &[])], unexpected(mid::DIS_CONN));
    refused(&[message(mid::SRC_AVAIL, 1, &source(0))], SdpError::AdvertisedBytes(0));
    let long = [&source(3)[..], b"four"].concat();
    refused(&[message(mid::SRC_AVAIL, 1, &long)], SdpError::AdvertisedBytes(3));
    let wraps = [&8_u32.to_be_bytes()[..], &[0; 4], &[0xff; 8]].concat();
    refused(&[message(mid::SRC_AVAIL, 1, &wraps)], SdpError::AdvertisedBytes(8));
}

#[test]
fn messages_that_need_no_answer_are_ignored() {
    // If this failed, a peer of the specification could not use what this side does not.
    let mut stream = stream(Plan::basic());
    let ignored = [
        (mid::SINK_AVAIL, &[0; 16][..]),
        (mid::SINK_AVAIL, &[0; 20]),
        (0x07, &[0; 4]),
        (0x0a, &[]),
        (mid::SEND_SM, &[]),
    ];
    let stale = [(mid::RDMA_RD_COMPL, &[0xff; 4][..]), (mid::SRC_AVAIL_CANCEL, &[])];
    for (mseq, (kind, body)) in ignored.into_iter().chain(stale).enumerate() {
        receive(&mut stream, &message(kind, mseq as u32 + 1, body)).unwrap();
    }
    while let Some(message) = stream.next_message(0) {
        assert_eq!((message.head()[0], message.payload.len()), (mid::DATA, 0), "only credits are given");
    }
    receive(&mut stream, &message(0x09, 8, &[])).unwrap();
    assert_eq!(stream.next_message(0).map(|message| message.head()[0]), Some(0x0a));
}

#[test]
fn completion_of_more_than_was_advertised_is_refused() {
    // If this failed, a peer could make this side believe that bytes arrived.
    let mut stream = stream(zero_copy_plan());
    let memory = ddss_sdp::codec::Advertisement { len: 10, rkey: 0, vaddr: 0 };
    stream.advertise(memory, b"abc").unwrap();
    assert!(stream.next_message(0).is_some());
    let completed = |mseq, bytes: u32| {
        let mut message = message(mid::RDMA_RD_COMPL, mseq, &bytes.to_be_bytes());
        message[15] = 1;
        message
    };
    receive(&mut stream, &completed(1, 5)).unwrap();
    assert_eq!(stream.take_outcome(), None);
    assert_eq!(receive(&mut stream, &completed(2, 3)), Err(SdpError::AdvertisedBytes(3)));
}

#[test]
fn more_messages_than_buffers_are_refused() {
    // If this failed, a peer without regard for credits would overwrite unread bytes.
    let mut stream = stream(Plan::basic());
    for mseq in 1..=u32::from(SMALL.buffers) {
        receive(&mut stream, &message(mid::DATA, mseq, b"unread")).unwrap();
    }
    assert_eq!(receive(&mut stream, &message(mid::DATA, 7, b"one too many")), Err(SdpError::NoBuffer));
}

#[test]
fn wrong_messages_in_frames_are_refused() {
    // If this failed, the integrated buffer would check less than the private one.
    let good = message(mid::DATA, 1, b"abcd");
    let changed = |at: usize, value: u8| {
        let mut message = good.clone();
        message[at] = value;
        message
    };
    for (bytes, expected) in [
        (changed(0, 0x55), SdpError::UnknownMessage(0x55)),
        (changed(7, 19), SdpError::MessageLength { mid: mid::DATA, len: 19 }),
        (changed(11, 2), SdpError::Sequence { last: 0, got: 2 }),
        (changed(15, 1), SdpError::Acknowledgement(1)),
        (changed(0, mid::DIS_CONN), SdpError::MessageLength { mid: mid::DIS_CONN, len: 20 }),
    ] {
        let mut sockets = Sockets::new(&SMALL, true, true, 1 << 20);
        let mut writer = FrameWriter::new(SMALL.ring_bytes, framing(true, true)).unwrap();
        assert!(writer.open(bytes.first_chunk().unwrap()));
        writer.append_body(&bytes[16..]);
        let frame = writer.parts().concat();
        let stream = &mut sockets.streams[0];
        stream.receive_room()[..frame.len()].copy_from_slice(&frame);
        assert_eq!(stream.received(frame.len()), Err(expected));
        assert_eq!(stream.received(0), Err(expected));
        assert_eq!(stream.read(&mut [0; 8]), Err(expected));
    }
    for (length, expected) in [(33, SdpError::FrameLength(33)), (65_000, SdpError::FrameLength(65_000))] {
        let mut sockets = Sockets::new(&SMALL, false, true, 1 << 20);
        let stream = &mut sockets.streams[0];
        stream.receive_room()[..2].copy_from_slice(&(length as u16).to_be_bytes());
        assert_eq!(stream.received(2), Err(expected));
    }
}

#[test]
fn random_input_never_panics() {
    // If this failed, the fuzzer would find it as well, but later.
    let mut random = Random::new(77);
    for _ in 0..4000 {
        let data: Vec<u8> = (0..random.below(600)).map(|_| random.word() as u8).collect();
        play::play(&data);
    }
}
