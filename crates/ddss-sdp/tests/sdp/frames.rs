//! The gap writer against a plain encoder, and the reader against both.

use ddss_sdp::{FrameReader, FrameWriter, Framing, SdpError};

use crate::common::{Random, framing, pattern, plain_frame};
use crate::reading::PlainDecoder;

const RING: usize = 128 << 10;
const HEADER: [u8; 16] = *b"BSDH of 16 bytes";

/// Encodes an untagged segment and a header before the payload.
fn plain_message(position: usize, number: u32, payload: &[u8], markers: bool, crc: bool) -> Vec<u8> {
    let mut ulpdu = vec![0x41, 0x43, 0, 0, 0, 0, 0, 0, 0, 0];
    ulpdu.extend(number.to_be_bytes());
    ulpdu.extend([0; 4]);
    ulpdu.extend(HEADER);
    ulpdu.extend(payload);
    plain_frame(position, &ulpdu, markers, crc)
}

fn take(writer: &mut FrameWriter) -> Vec<u8> {
    let bytes = writer.parts().concat();
    writer.consume(bytes.len());
    bytes
}

/// Returns a writer whose next frame starts at `position`, and the number of frames before it.
fn writer_at(position: usize, framing: Framing) -> (FrameWriter, u32) {
    let mut writer = FrameWriter::new(RING, framing).unwrap();
    let (mut at, mut number) = (0, 0);
    while at < position {
        let left = position - at;
        // The last frame ends at the position, or leaves room for another one.
        let fits = |payload: &usize| {
            let bytes = plain_message(at, number + 1, &vec![0; *payload], framing.markers, false).len();
            bytes == left || bytes + 100 <= left
        };
        let payload = (0..=left).rev().step_by(4).find(fits).expect("frames of every length reach the position");
        assert!(writer.open(&HEADER));
        assert_eq!(writer.append(&vec![0; payload]), payload);
        at += take(&mut writer).len();
        number += 1;
    }
    assert_eq!(at, position, "the frames before end where the next one starts");
    (writer, number)
}

#[test]
fn gap_writer_equals_the_plain_encoder_at_every_start_and_length() {
    // If this failed, an adapter that follows the markers would find payload where a marker should be.
    // No frame ends right behind a marker: its checksum would stand where the marker does.
    for start in (1024..1536).step_by(4).filter(|start| start % 512 != 4) {
        let (mut writer, mut number) = writer_at(start, framing(true, true));
        let mut position = start;
        // Each frame starts where the one before ends, so the starts vary with the lengths as well.
        for length in (0..560).chain([4_000, 63 << 10]) {
            number += 1;
            let payload = pattern(1, position as u64, length);
            assert!(writer.open(&HEADER));
            let (first, second) = payload.split_at(length / 3);
            assert_eq!(writer.append(first) + writer.append(second), length);
            let bytes = take(&mut writer);
            let plain = plain_message(position, number, &payload, true, true);
            assert!(bytes == plain, "start {start}, position {position}, length {length}");
            position += bytes.len();
        }
    }
}

#[test]
fn every_length_at_one_start_equals_the_plain_encoder() {
    // If this failed, a frame could be right only behind others of a certain length.
    for start in [0, 512, 1020] {
        for length in (0..1100).chain([64_511, 64_512]) {
            let (mut writer, number) = writer_at(start, framing(true, true));
            assert!(writer.open(&HEADER));
            let payload = pattern(2, 0, length);
            assert_eq!(writer.append(&payload), length);
            assert!(take(&mut writer) == plain_message(start, number + 1, &payload, true, true), "{start} {length}");
        }
    }
}

#[test]
fn appending_after_sealing_gives_the_same_frame() {
    // If this failed, a frame that was offered to a full socket could not grow any more, or would be damaged.
    let mut random = Random::new(5);
    for (markers, crc) in [(true, true), (true, false), (false, true), (false, false)] {
        for round in 0..200 {
            let mut writer = FrameWriter::new(RING, framing(markers, crc)).unwrap();
            assert!(writer.open(&HEADER));
            let payload = pattern(3, round, 1 + random.below(4000));
            let mut done = 0;
            while done < payload.len() {
                let end = payload.len().min(done + 1 + random.below(700));
                done += writer.append(&payload[done..end]);
                if random.below(2) == 0 {
                    let _ = writer.parts();
                    writer.consume(0);
                }
            }
            assert_eq!(take(&mut writer), plain_message(0, 1, &payload, markers, crc));
            assert_eq!(writer.copied(), payload.len() as u64, "appending copies each byte once");
            assert_eq!(writer.open_payload(), None, "a frame that left is closed");
        }
    }
}

#[test]
fn frame_stays_open_until_its_first_byte_leaves() {
    // If this failed, small writes against a slow receiver would become one message each.
    let mut writer = FrameWriter::new(RING, framing(true, true)).unwrap();
    assert!(writer.open(&HEADER));
    writer.append(b"first");
    let first = writer.parts().concat().len();
    assert!(writer.open(&HEADER));
    writer.append(b"second");
    let _ = writer.parts();
    writer.consume(first - 1);
    assert_eq!(writer.open_payload(), Some(6));
    writer.append(b" and more");
    let rest = writer.parts().concat();
    writer.consume(2);
    assert_eq!(writer.open_payload(), None);
    assert_eq!(rest[1..], plain_message(first, 2, b"second and more", true, true));
}

#[test]
fn ring_reports_no_room_before_it_overwrites() {
    // If this failed, bytes that wait for a slow socket would be lost.
    for markers in [true, false] {
        let mut writer = FrameWriter::new(RING, framing(markers, true)).unwrap();
        let mut decoder = PlainDecoder::new(markers, true);
        let (mut written, mut read, mut random) = (0_u64, 0_u64, Random::new(9));
        while written < 3_000_000 {
            while writer.room_for_new() > 0 && writer.open(&HEADER) {
                let bytes = 1 + random.below(3 * writer.room().max(1));
                written += writer.append(&pattern(4, written, bytes)) as u64;
            }
            assert_eq!(writer.append(&[]), 0);
            let waiting = writer.parts().concat();
            assert!(waiting.len() <= RING);
            let taken = 1 + random.below(waiting.len());
            for message in decoder.push(&waiting[..taken]) {
                assert_eq!(message[16..], pattern(4, read, message.len() - 16));
                read += message.len() as u64 - 16;
            }
            writer.consume(taken);
        }
        assert!(read > 2_500_000);
    }
}

#[test]
fn reader_returns_every_payload_however_the_bytes_are_cut() {
    // If this failed, a stream would depend on how TCP cuts its segments.
    for (markers, crc) in [(true, true), (false, true), (true, false)] {
        let mut writer = FrameWriter::new(RING, framing(markers, crc)).unwrap();
        let mut reader = FrameReader::new(RING, framing(markers, crc)).unwrap();
        let (mut random, mut read) = (Random::new(3), 0_u64);
        for round in 0..3000 {
            let payload = pattern(5, round, random.below(if round % 50 == 0 { 60_000 } else { 900 }));
            assert!(writer.open(&HEADER));
            assert_eq!(writer.append(&payload), payload.len());
            let bytes = take(&mut writer);
            let mut rest = &bytes[..];
            while !rest.is_empty() {
                assert_eq!(reader.next_frame(), Ok(None), "the frame is not complete");
                let room = reader.room();
                let taken = rest.len().min(room.len()).min(1 + random.below(2000));
                room[..taken].copy_from_slice(&rest[..taken]);
                reader.fill(taken);
                rest = &rest[taken..];
            }
            let frame = reader.next_frame().unwrap().unwrap();
            let mut out = vec![0; frame.message_bytes - 16];
            assert_eq!(reader.copy_payload(frame, 0, &mut out), payload.len());
            assert_eq!(out, payload);
            reader.free(frame);
            read += payload.len() as u64;
        }
        assert_eq!(reader.copied(), read);
    }
}

#[test]
fn damaged_frames_are_refused() {
    // If this failed, a flipped bit would reach the application.
    let mut writer = FrameWriter::new(RING, framing(true, true)).unwrap();
    assert!(writer.open(&HEADER));
    writer.append(&pattern(6, 0, 900));
    let good = take(&mut writer);
    for at in 0..good.len() {
        let mut reader = FrameReader::new(RING, framing(true, true)).unwrap();
        reader.room()[..good.len()].copy_from_slice(&good);
        reader.room()[at] ^= 0x10;
        reader.fill(good.len());
        // A longer length field waits for bytes that never come: the deadline of the caller ends that.
        let is_length = (4..6).contains(&at);
        match reader.next_frame() {
            Ok(Some(_)) => panic!("byte {at} was changed"),
            Ok(None) => assert!(is_length, "byte {at}"),
            Err(error) => {
                assert!(matches!(error, SdpError::Checksum(0) | SdpError::Marker(_)) || is_length, "byte {at}: {error}")
            }
        }
    }
}

#[test]
fn wrong_marker_is_refused_without_a_checksum() {
    // If this failed, a stream without checksums would continue after it lost its position.
    let mut writer = FrameWriter::new(RING, framing(true, false)).unwrap();
    assert!(writer.open(&HEADER));
    writer.append(&pattern(6, 0, 900));
    let good = take(&mut writer);
    // The last two bits of a marker are reserved, and so are its first two bytes.
    for (at, change, is_refused) in [(2, 1, true), (515, 4, true), (514, 2, true), (515, 3, false), (512, 9, false)] {
        let mut reader = FrameReader::new(RING, framing(true, false)).unwrap();
        reader.room()[..good.len()].copy_from_slice(&good);
        reader.room()[at] ^= change;
        reader.fill(good.len());
        let position = at as u64 / 512 * 512;
        let expected = if is_refused { Some(SdpError::Marker(position)) } else { None };
        assert_eq!(reader.next_frame().err(), expected, "byte {at}");
    }
}

#[test]
fn rings_outside_their_limits_are_refused() {
    // If this failed, a marker could be split by the end of the ring.
    for bytes in [0, 512, (128 << 10) + 4, (128 << 10) - 512, 32 << 20] {
        let expected = Some(SdpError::Config("ring_bytes", bytes));
        assert_eq!(FrameWriter::new(bytes, Framing::default()).err(), expected);
        assert_eq!(FrameReader::new(bytes, Framing::default()).err(), expected);
    }
}
