//! Frames of read requests and read responses against a plain encoder.

use ddss_sdp::{FrameReader, FrameWriter, IncomingSegment, OutgoingSegment, ReadRequest, SdpError, Segment};

use crate::common::{Random, framing, pattern, plain_frame};

const RING: usize = 128 << 10;
const HEADER: [u8; 16] = *b"BSDH of 16 bytes";
const REQUEST: ReadRequest =
    ReadRequest { sink_key: 0x0102_0304, sink_offset: 5, len: 6, source_key: 7, source_address: 8 };

fn plain_segment(segment: Segment, payload: &[u8]) -> Vec<u8> {
    let mut ulpdu = vec![if segment.is_last { 0xc1 } else { 0x81 }, 0x42];
    ulpdu.extend(segment.key.to_be_bytes());
    ulpdu.extend(segment.offset.to_be_bytes());
    ulpdu.extend(payload);
    ulpdu
}

fn plain_request(number: u32) -> Vec<u8> {
    let mut ulpdu = vec![0x41, 0x41, 0, 0, 0, 0];
    ulpdu.extend(1_u32.to_be_bytes());
    ulpdu.extend(number.to_be_bytes());
    ulpdu.extend([0; 4]);
    ulpdu.extend([1, 2, 3, 4, 0, 0, 0, 0, 0, 0, 0, 5, 0, 0, 0, 6, 0, 0, 0, 7, 0, 0, 0, 0, 0, 0, 0, 8]);
    ulpdu
}

fn take(writer: &mut FrameWriter) -> Vec<u8> {
    let bytes = writer.parts().concat();
    writer.consume(bytes.len());
    bytes
}

/// Sends a segment in pieces of random length.
fn send(writer: &mut FrameWriter, segment: Segment, payload: &[u8], random: &mut Random) -> Vec<u8> {
    let mut outgoing = OutgoingSegment::new(writer, segment, payload).expect("the ring is empty");
    let mut bytes = Vec::new();
    loop {
        let left: Vec<u8> = outgoing.unsent(payload).flatten().copied().collect();
        let taken = left.len().min(1 + random.below(2 * payload.len()));
        bytes.extend(&left[..taken]);
        if outgoing.sent(taken) {
            return bytes;
        }
    }
}

/// Receives no more than the reader asks for, until a segment begins.
fn begin(reader: &mut FrameReader, bytes: &mut &[u8]) -> Result<IncomingSegment, SdpError> {
    loop {
        let (now, rest) = bytes.split_at(reader.missing());
        reader.room()[..now.len()].copy_from_slice(now);
        reader.fill(now.len());
        *bytes = rest;
        if let Some(segment) = IncomingSegment::new(reader)? {
            return Ok(segment);
        }
        while let Some(frame) = reader.next_frame()? {
            reader.free(frame);
        }
    }
}

/// Receives a segment in pieces of random length.
fn receive(reader: &mut FrameReader, mut bytes: &[u8], random: &mut Random) -> Result<(Segment, Vec<u8>), SdpError> {
    let mut incoming = begin(reader, &mut bytes)?;
    let mut payload = vec![0; incoming.segment().bytes];
    loop {
        let mut left = bytes.len().min(1 + random.below(2 * payload.len()));
        let mut filled = 0;
        for slice in incoming.unfilled(&mut payload) {
            let taken = left.min(slice.len());
            let (now, rest) = bytes.split_at(taken);
            slice[..taken].copy_from_slice(now);
            bytes = rest;
            filled += taken;
            left -= taken;
        }
        if incoming.filled(filled) {
            assert!(bytes.is_empty());
            incoming.check(reader, &payload)?;
            return Ok((incoming.segment(), payload));
        }
    }
}

#[test]
fn segments_equal_the_plain_encoder_at_every_start_and_length() {
    // If this failed, an adapter would place other bytes than the peer's, or refuse the stream.
    let mut random = Random::new(11);
    for (markers, crc) in [(true, true), (true, false), (false, true), (false, false)] {
        let framing = framing(markers, crc);
        let mut writer = FrameWriter::new(RING, framing).unwrap();
        let mut reader = FrameReader::new(RING, framing).unwrap().with_read_requests();
        let (mut position, mut starts) = (0, [false; 128]);
        let lengths = (1..1300).chain([4_000, 63 << 10, 2]).cycle().take(if markers { 4_000 } else { 1_400 });
        for (number, length) in lengths.enumerate() {
            let segment = Segment { key: 9, offset: number as u64, bytes: length, is_last: number % 3 == 0 };
            let payload = pattern(4, position as u64, length);
            starts[position % 512 / 4] = true;
            let bytes = send(&mut writer, segment, &payload, &mut random);
            let plain = plain_frame(position, &plain_segment(segment, &payload), markers, crc);
            assert!(bytes == plain, "position {position}, length {length}");
            assert_eq!(receive(&mut reader, &bytes, &mut random), Ok((segment, payload)));
            position += bytes.len();
            // Messages and requests between the segments go through the rings.
            if number % 5 == 0 {
                assert!(writer.request_read(&REQUEST));
                let bytes = take(&mut writer);
                let request_number = number as u32 / 5 + 1;
                assert!(bytes == plain_frame(position, &plain_request(request_number), markers, crc));
                reader.room()[..bytes.len()].copy_from_slice(&bytes);
                reader.fill(bytes.len());
                let frame = reader.next_frame().unwrap().expect("the whole frame is there");
                assert_eq!(reader.read_request(frame), Some(REQUEST));
                reader.free(frame);
                position += bytes.len();
            }
        }
        // No frame ends right behind a marker.
        assert!(!markers || starts.iter().enumerate().all(|(at, is_reached)| *is_reached != (at == 1)), "{starts:?}");
    }
}

#[test]
fn segment_behind_messages_waits_for_them() {
    // If this failed, the payload would enter the middle of another frame.
    let mut writer = FrameWriter::new(RING, framing(true, true)).unwrap();
    assert!(writer.open(&HEADER));
    let segment = Segment { key: 1, offset: 0, bytes: 4, is_last: true };
    assert!(OutgoingSegment::new(&mut writer, segment, b"1234").is_none());
    let bytes = writer.parts().concat();
    writer.consume(bytes.len() - 1);
    assert!(OutgoingSegment::new(&mut writer, segment, b"1234").is_none());
    writer.consume(1);
    assert!(OutgoingSegment::new(&mut writer, segment, b"1234").is_some());
}

#[test]
fn every_changed_byte_of_a_segment_is_found() {
    // If this failed, bytes that the network changed would reach the program.
    let framing = framing(true, true);
    let mut random = Random::new(3);
    let payload = pattern(5, 0, 700);
    let segment = Segment { key: 1, offset: 0, bytes: 700, is_last: true };
    let bytes = send(&mut FrameWriter::new(RING, framing).unwrap(), segment, &payload, &mut random);
    for at in 0..bytes.len() {
        // The first marker's reserved bits are covered by the checksum as well. A longer frame only waits for more.
        let mut changed = bytes.clone();
        changed[at] ^= 0x10;
        changed.resize(bytes.len() + (64 << 10), 0);
        let mut reader = FrameReader::new(RING, framing).unwrap();
        let received = receive_some(&mut reader, &changed);
        assert!(received.is_err(), "byte {at}: {received:?}");
    }
}

/// Receives a segment and ignores what follows.
fn receive_some(reader: &mut FrameReader, mut bytes: &[u8]) -> Result<Segment, SdpError> {
    let mut incoming = begin(reader, &mut bytes)?;
    let mut payload = vec![0; incoming.segment().bytes];
    let mut filled = 0;
    for slice in incoming.unfilled(&mut payload) {
        let (now, rest) = bytes.split_at(slice.len());
        slice.copy_from_slice(now);
        bytes = rest;
        filled += slice.len();
    }
    assert!(incoming.filled(filled));
    incoming.check(reader, &payload).map(|()| incoming.segment())
}

#[test]
fn malformed_heads_are_refused() {
    // If this failed, a peer could choose where its bytes are placed, or how many.
    let framing = framing(false, false);
    let good = plain_segment(Segment { key: 1, offset: 0, bytes: 8, is_last: true }, b"12345678");
    let with = |at: usize, byte: u8| {
        let mut ulpdu = good.clone();
        ulpdu[at] = byte;
        ulpdu
    };
    let long = plain_segment(Segment { key: 1, offset: 0, bytes: 0, is_last: true }, &vec![0; (63 << 10) + 4]);
    for (ulpdu, error) in [
        (with(0, 0xc2), SdpError::FrameLength(22)),
        (with(0, 0xe1), SdpError::ReadResponse),
        (with(1, 0x40), SdpError::ReadResponse),
        (good[..14].to_vec(), SdpError::FrameLength(14)),
        (long.clone(), SdpError::FrameLength(long.len())),
        // A request on a stream without reads, and one that is not the first.
        (plain_request(1), SdpError::FrameHeader(1)),
    ] {
        let mut bytes = plain_frame(0, &ulpdu, false, false);
        bytes.resize(bytes.len() + 40_000, 0);
        let mut reader = FrameReader::new(RING, framing).unwrap();
        assert_eq!(begin(&mut reader, &mut &bytes[..]).err(), Some(error), "{:?}", &ulpdu[..14]);
    }
    let mut reader = FrameReader::new(RING, framing).unwrap().with_read_requests();
    let mut bytes = plain_frame(0, &plain_request(2), false, false);
    bytes.resize(bytes.len() + 400, 0);
    assert_eq!(begin(&mut reader, &mut &bytes[..]).err(), Some(SdpError::FrameHeader(1)));
}

#[test]
fn head_with_payload_in_the_ring_is_refused() {
    // If this failed, payload that a receiver took by accident would be lost.
    let payload = plain_segment(Segment { key: 1, offset: 0, bytes: 8, is_last: true }, b"12345678");
    let bytes = plain_frame(0, &payload, true, true);
    let mut reader = FrameReader::new(RING, framing(true, true)).unwrap();
    reader.room()[..bytes.len()].copy_from_slice(&bytes);
    reader.fill(bytes.len());
    assert_eq!(IncomingSegment::new(&reader).err(), Some(SdpError::ReadResponse));
    assert!(reader.next_frame().is_err());
}
