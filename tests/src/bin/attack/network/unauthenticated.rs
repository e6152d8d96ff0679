//! Attacks on the data port without a key and without a recorded packet.

use super::frames::{self, CRC, ENHANCED, LIMITS, MARKERS, REJECT, is_refused, request, start};
use super::noise::{self, CONTROL, DATA, HELLO_BYTES, OTHER_KEY};
use super::target::{
    PATIENCE, Target, dial, expect_silent_close, open_connections, random_bytes, read_until_close, reset, send,
};
use crate::byzantine_client::{AttackResult, context};
use ddss_core::{NodeId, PeerHello};
use std::time::{Duration, Instant};

/// More connections than may be half open.
const CROWD: usize = 100;
const REQUEST: &[u8; 16] = b"MPA ID Req Frame";

pub(super) fn node_3() -> PeerHello {
    PeerHello { node: NodeId(3), run: 7, shards: 1 }
}

/// Returns a first message that is correct except for its key.
fn strange_hello() -> Result<[u8; HELLO_BYTES], String> {
    noise::begin(&OTHER_KEY, DATA, &node_3()).map(|(_, first)| first)
}

pub(super) fn opens_silent_connections(target: &Target) -> AttackResult {
    open_connections(target.data, CROWD, b"")?.into_iter().try_for_each(expect_silent_close)
}

pub(super) fn holds_every_connection_slot(target: &Target) -> AttackResult {
    // A refused attacker reconnects immediately.
    let mut streams = open_connections(target.data, CROWD, b"")?;
    let end = Instant::now() + Duration::from_secs(3);
    while Instant::now() < end {
        for stream in &mut streams {
            stream.set_nonblocking(true).map_err(context("a socket"))?;
            let waits = stream.peek(&mut [0]).is_err_and(|error| error.kind() == std::io::ErrorKind::WouldBlock);
            if !waits {
                *stream = dial(target.data)?;
            }
        }
    }
    Ok(())
}

pub(super) fn connects_and_disconnects(target: &Target) -> AttackResult {
    (0..1000).try_for_each(|_| dial(target.data).map(drop))
}

pub(super) fn connects_and_resets(target: &Target) -> AttackResult {
    (0..300).try_for_each(|_| reset(dial(target.data)?))
}

pub(super) fn speaks_another_protocol(target: &Target) -> AttackResult {
    let words: [&[u8]; 4] = [
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc",
        b"SSH-2.0-x\r\n",
        &[0; 64 << 10],
    ];
    for words in words {
        let mut stream = dial(target.data)?;
        send(&mut stream, words);
        expect_silent_close(stream)?;
    }
    Ok(())
}

pub(super) fn sends_request_byte_by_byte(target: &Target) -> AttackResult {
    let mut streams = open_connections(target.data, 8, b"")?;
    for byte in request(&strange_hello()?) {
        streams.iter_mut().for_each(|stream| _ = send(stream, &[byte]));
        std::thread::sleep(Duration::from_millis(40));
    }
    streams.into_iter().try_for_each(expect_silent_close)
}

pub(super) fn sends_half_a_request(target: &Target) -> AttackResult {
    let whole = request(&strange_hello()?);
    let mut streams = Vec::new();
    for length in [1, 15, 16, 19, 20, 24, whole.len() - 1] {
        streams.extend(open_connections(target.data, 1, &whole[..length])?);
    }
    streams.into_iter().try_for_each(expect_silent_close)
}

pub(super) fn sends_request_and_resets(target: &Target) -> AttackResult {
    let whole = request(&strange_hello()?);
    for length in (1..=whole.len()).rev() {
        let mut stream = dial(target.data)?;
        send(&mut stream, &whole[..length]);
        reset(stream)?;
    }
    Ok(())
}

pub(super) fn sends_oversized_private_data(target: &Target) -> AttackResult {
    for length in [257_u16, 512, 513, u16::MAX] {
        let frame = start(REQUEST, CRC, 1, length, &random_bytes(length.into()));
        is_refused(dial(target.data)?, &frame)?;
    }
    Ok(())
}

pub(super) fn sends_empty_private_data(target: &Target) -> AttackResult {
    is_refused(dial(target.data)?, &start(REQUEST, CRC, 1, 0, &[]))?;
    is_refused(dial(target.data)?, &request(&[]))
}

pub(super) fn sends_unknown_revisions(target: &Target) -> AttackResult {
    for revision in [0, 3, 0x80, u8::MAX] {
        is_refused(dial(target.data)?, &start(REQUEST, CRC, revision, 56, &random_bytes(56)))?;
    }
    Ok(())
}

pub(super) fn sends_every_flag(target: &Target) -> AttackResult {
    let hello = strange_hello()?;
    for flags in (0..=u8::MAX).step_by(0x10).chain([0x0f, REJECT, MARKERS | CRC]) {
        let private = [&LIMITS[..], &hello].concat();
        is_refused(dial(target.data)?, &start(REQUEST, flags, 2, private.len() as u16, &private))?;
    }
    Ok(())
}

pub(super) fn sends_truncated_limits(target: &Target) -> AttackResult {
    for length in 0..4 {
        let frame = start(REQUEST, CRC | ENHANCED, 2, length, &LIMITS[..length.into()]);
        is_refused(dial(target.data)?, &frame)?;
    }
    Ok(())
}

pub(super) fn sends_reply_as_request(target: &Target) -> AttackResult {
    let mut stream = dial(target.data)?;
    send(&mut stream, &start(b"MPA ID Rep Frame", CRC, 1, 56, &strange_hello()?));
    expect_silent_close(stream)
}

pub(super) fn uses_another_key(target: &Target) -> AttackResult {
    for _ in 0..50 {
        is_refused(dial(target.data)?, &request(&strange_hello()?))?;
    }
    Ok(())
}

pub(super) fn uses_another_key_without_end(target: &Target) -> AttackResult {
    let request = request(&strange_hello()?);
    for _ in 0..500 {
        let mut stream = dial(target.data)?;
        send(&mut stream, &request);
    }
    Ok(())
}

pub(super) fn announces_another_release(target: &Target) -> AttackResult {
    for protocol in (0..=u8::MAX).filter(|&protocol| protocol != PeerHello::HANDSHAKE).step_by(8) {
        let mut hello = strange_hello()?;
        hello[1] = protocol;
        is_refused(dial(target.data)?, &request(&hello))?;
    }
    Ok(())
}

pub(super) fn sends_random_hellos(target: &Target) -> AttackResult {
    for length in [1, 2, 55, 56, 57, 128, 252] {
        let mut hello = random_bytes(length);
        is_refused(dial(target.data)?, &request(&hello))?;
        hello.splice(..2.min(length), [b'D', PeerHello::HANDSHAKE].into_iter().take(length));
        is_refused(dial(target.data)?, &request(&hello))?;
    }
    Ok(())
}

pub(super) fn sends_hellos_of_one_repeated_byte(target: &Target) -> AttackResult {
    // A share of zeroes is a point of small order: it must not become a key.
    for byte in [0, 1, 0x7f, 0xff] {
        let mut hello = [byte; HELLO_BYTES];
        (hello[0], hello[1]) = (b'D', PeerHello::HANDSHAKE);
        is_refused(dial(target.data)?, &request(&hello))?;
    }
    Ok(())
}

pub(super) fn sends_frames_before_request(target: &Target) -> AttackResult {
    for frame in [frames::read(1, 1, 0, 4096), frames::write(1, 0, &[7; 64]), frames::ready()] {
        let mut stream = dial(target.data)?;
        send(&mut stream, &frame);
        expect_silent_close(stream)?;
    }
    Ok(())
}

pub(super) fn sends_frames_after_refused_request(target: &Target) -> AttackResult {
    let mut words = request(&strange_hello()?);
    for key in 0..64 {
        words.extend(frames::read(key + 1, key, 0, 1 << 20));
        words.extend(frames::write(key, 0, &[7; 512]));
    }
    is_refused(dial(target.data)?, &words)
}

pub(super) fn sends_random_bytes_after_request(target: &Target) -> AttackResult {
    let mut stream = dial(target.data)?;
    send(&mut stream, &request(&strange_hello()?));
    let begin = Instant::now();
    while begin.elapsed() < PATIENCE {
        if !send(&mut stream, &random_bytes(64 << 10)) {
            return Ok(());
        }
    }
    Err("a stranger's bytes are taken without end".to_owned())
}

pub(super) fn sends_control_hello_to_data_port(target: &Target) -> AttackResult {
    let (_, hello) = noise::begin(&OTHER_KEY, CONTROL, &node_3())?;
    let mut stream = dial(target.data)?;
    send(&mut stream, &hello);
    expect_silent_close(stream)?;
    is_refused(dial(target.data)?, &request(&hello))
}

pub(super) fn half_closes_and_waits(target: &Target) -> AttackResult {
    for words in [&b""[..], b"MPA ID", &request(&strange_hello()?)] {
        let mut stream = dial(target.data)?;
        send(&mut stream, words);
        let _ = stream.shutdown(std::net::Shutdown::Write);
        read_until_close(&mut stream)?;
    }
    Ok(())
}

pub(super) fn never_reads_replies(target: &Target) -> AttackResult {
    let request = request(&strange_hello()?);
    let streams = open_connections(target.data, CROWD, &request)?;
    std::thread::sleep(Duration::from_millis(700));
    streams.into_iter().try_for_each(reset)
}
