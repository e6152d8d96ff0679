//! The copy ledger, exactly: two copies a byte for basic over a fabric in software, one for enhanced.

use ddss_sdp::{BasicStream, CopyLedger, FrameReader, FrameWriter, Plan, StreamConfig};

use crate::common::{pattern, terms};
use crate::enhanced_simulation::{Sockets, framing};

const BYTES: u64 = 3_000_000;

/// Sends bytes from one basic stream to another over frames, as a fabric in software does.
fn basic(write: usize) -> CopyLedger {
    // A message is one frame.
    let config = StreamConfig { no_delay: true, buffer_bytes_max: 60 << 10, ..StreamConfig::default() };
    let [mut sender, mut receiver] =
        terms(&config, Plan::basic()).map(|terms| BasicStream::new(&config, &terms).unwrap());
    let mut writer = FrameWriter::new(config.ring_bytes, framing(true, true)).unwrap();
    let mut reader = FrameReader::new(config.ring_bytes, framing(true, true)).unwrap();
    let (mut written, mut read) = (0, 0);
    let mut out = vec![0; write];
    while read < BYTES {
        let wanted = write.min((BYTES - written) as usize);
        written += sender.write(&pattern(0, written, wanted)).unwrap() as u64;
        while writer.room_for_new() > 60_000 {
            let Some(message) = sender.next_message(0) else { break };
            let (header, fixed) = message.head().split_first_chunk().unwrap();
            assert!(writer.open(header));
            writer.append_body(fixed);
            assert_eq!(writer.append(message.payload), message.payload.len());
        }
        let bytes = writer.parts().concat();
        let room = reader.room();
        let taken = bytes.len().min(room.len());
        room[..taken].copy_from_slice(&bytes[..taken]);
        reader.fill(taken);
        writer.consume(taken);
        while let Some(frame) = reader.next_frame().unwrap() {
            let buffer = receiver.receive_buffer().unwrap();
            reader.copy_message(frame, 0, &mut buffer[..16]);
            // Only messages of the stream carry payload.
            if buffer[0] == 0xff {
                reader.copy_payload(frame, 0, &mut buffer[16..]);
            } else {
                reader.copy_message(frame, 16, &mut buffer[16..]);
            }
            reader.free(frame);
            receiver.received(frame.message_bytes).unwrap();
        }
        while let Some(taken) = receiver.read(&mut out).unwrap() {
            assert!(out[..taken] == pattern(0, read, taken));
            read += taken as u64;
        }
        // The way back carries credits only.
        while let Some(message) = receiver.next_message(0) {
            let bytes = [message.head(), message.payload].concat();
            sender.receive_buffer().unwrap()[..bytes.len()].copy_from_slice(&bytes);
            sender.received(bytes.len()).unwrap();
        }
    }
    let fabric = CopyLedger { send_copied: writer.copied(), receive_copied: reader.copied(), ..CopyLedger::default() };
    let ledger = sender.ledger().with(receiver.ledger()).with(fabric);
    assert_eq!((ledger.written, ledger.read), (BYTES, BYTES));
    ledger
}

fn enhanced(write: usize) -> CopyLedger {
    let mut sockets = Sockets::new(&StreamConfig::default(), true, true, 100_000);
    while sockets.read[1] < BYTES {
        let wanted = write.min((BYTES - sockets.written[0]) as usize);
        sockets.write(0, wanted);
        sockets.flush(0, usize::MAX);
        sockets.receive(1, usize::MAX);
        while sockets.read(1, write) > 0 {}
    }
    let ledger = sockets.streams[0].ledger().with(sockets.streams[1].ledger());
    assert_eq!((ledger.written, ledger.read), (BYTES, BYTES));
    ledger
}

#[test]
fn enhanced_copies_once_where_basic_copies_twice() {
    // If this failed, the enhanced plan would not do what it is for, or basic would be made worse than it is.
    for write in [64, 1000, 16 << 10, 64 << 10, 200_000] {
        let (basic, enhanced) = (basic(write), enhanced(write));
        assert_eq!((basic.send_copied, basic.receive_copied), (2 * BYTES, 2 * BYTES), "basic, {write} bytes");
        assert_eq!((enhanced.send_copied, enhanced.receive_copied), (BYTES, BYTES), "enhanced, {write} bytes");
        assert_eq!((basic.send_cache_bytes(), basic.receive_cache_bytes()), (4 * BYTES, 3 * BYTES));
        assert_eq!((enhanced.send_cache_bytes(), enhanced.receive_cache_bytes()), (2 * BYTES, BYTES));
    }
}

#[test]
fn data_path_does_not_allocate() {
    // If this failed, a stream would wait for the allocator in the middle of a transfer.
    let config = StreamConfig { no_delay: true, ..StreamConfig::default() };
    let [mut a, mut b] = terms(&config, Plan::basic()).map(|terms| BasicStream::new(&config, &terms).unwrap());
    let [mut c, mut d] = terms(&config, crate::common::enhanced_plan()).map(|terms| {
        let framing = framing(true, true);
        ddss_sdp::EnhancedStream::new(&config, &terms, framing, framing).unwrap()
    });
    let (data, mut out, mut bytes) = (vec![7; 100_000], vec![0; 100_000], 0);
    let counted = allocation_counter::measure(|| {
        for _ in 0..50 {
            a.write(&data).unwrap();
            for (from, to) in [(&mut a, &mut b)] {
                while let Some(message) = from.next_message(0) {
                    let buffer = to.receive_buffer().unwrap();
                    let (head, payload) = (message.head(), message.payload);
                    buffer[..head.len()].copy_from_slice(head);
                    buffer[head.len()..][..payload.len()].copy_from_slice(payload);
                    to.received(head.len() + payload.len()).unwrap();
                }
            }
            bytes += b.read(&mut out).unwrap().unwrap_or(0);
            while let Some(message) = b.next_message(0) {
                let head = message.head();
                a.receive_buffer().unwrap()[..head.len()].copy_from_slice(head);
                a.received(head.len()).unwrap();
            }
            c.write(&data).unwrap();
            let [first, second] = c.outgoing();
            let mut sent = 0;
            for part in [first, second] {
                let room = d.receive_room();
                let taken = part.len().min(room.len());
                room[..taken].copy_from_slice(&part[..taken]);
                d.received(taken).unwrap();
                sent += taken;
            }
            c.sent(sent);
            bytes += d.read(&mut out).unwrap().unwrap_or(0);
        }
    });
    assert!(bytes > 5_000_000, "{bytes}");
    assert_eq!(counted.count_total, 0);
}
