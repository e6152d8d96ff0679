//! Replays of a node's recorded first message on the data port.
//!
//! The message is authentic, so the node answers it. The node must not trust any byte that follows.

use super::frames::{self, CRC, ENHANCED, REJECT, hear_reply, is_refused, request, start};
use super::noise::{self, CONTROL, DATA, HELLO_BYTES, SECOND_PLANE};
use super::target::{PATIENCE, Target, dial, random_bytes, reset, send};
use super::unauthenticated::node_3;
use crate::byzantine_client::{AttackResult, contains_secret, expect_failure};
use ddss_core::PeerHello;
use std::net::TcpStream;
use std::time::{Duration, Instant};

/// A first message of node 3, recorded on the network.
pub(super) fn recorded(purpose: &[u8; 10]) -> Result<[u8; HELLO_BYTES], String> {
    let run = u32::from_le_bytes(random_bytes(4).try_into().unwrap_or_default());
    let ours = PeerHello { run, ..node_3() };
    noise::begin(&noise::right_key(), purpose, &ours).map(|(_, first)| first)
}

/// Sends the message again until it is answered: the node may be connecting to the real node 3 at this moment.
fn say_again(target: &Target, hello: &[u8]) -> Result<TcpStream, String> {
    let begin = Instant::now();
    loop {
        let mut stream = dial(target.data)?;
        send(&mut stream, &request(hello));
        match hear_reply(&mut stream) {
            Ok((true, answer)) if answer.len() == HELLO_BYTES => return Ok(stream),
            other => {
                expect_failure(&format!("a good first message is not answered: {other:?}"), begin.elapsed() > PATIENCE)?
            }
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Expects that the node ends the connection, and that it sent no data.
fn comes_to_nothing(mut stream: TcpStream) -> AttackResult {
    while let Some(ulpdu) = frames::receive_frame(&mut stream) {
        expect_failure("the secret was read", contains_secret(&ulpdu))?;
        let terminate = ulpdu.first().is_some_and(|control| control & 0x80 == 0) && ulpdu.get(1) == Some(&0x47);
        expect_failure("an unauthenticated peer was answered", !terminate)?;
    }
    let kept =
        matches!(stream.take_error(), Ok(None)) && std::io::Read::read(&mut stream, &mut [0]).is_err_and(is_wait);
    expect_failure("the connection stays open", kept)
}

fn is_wait(error: std::io::Error) -> bool {
    matches!(error.kind(), std::io::ErrorKind::WouldBlock | std::io::ErrorKind::TimedOut)
}

/// Sends a recorded first message, then these bytes, and expects no effect.
fn followed_by(target: &Target, words: &[u8]) -> AttackResult {
    let mut stream = say_again(target, &recorded(DATA)?)?;
    send(&mut stream, words);
    comes_to_nothing(stream)
}

pub(super) fn replays_hello(target: &Target) -> AttackResult {
    let hello = recorded(DATA)?;
    // More connections than the node keeps unauthenticated; the oldest ones make room.
    let streams = (0..8).map(|_| say_again(target, &hello)).collect::<Result<Vec<_>, _>>()?;
    streams.into_iter().try_for_each(comes_to_nothing)
}

pub(super) fn replays_hello_without_end(target: &Target) -> AttackResult {
    let request = request(&recorded(DATA)?);
    for _ in 0..300 {
        let mut stream = dial(target.data)?;
        send(&mut stream, &request);
    }
    Ok(())
}

pub(super) fn flips_each_byte(target: &Target) -> AttackResult {
    let hello = recorded(DATA)?;
    for index in 0..HELLO_BYTES {
        let mut altered = hello;
        altered[index] ^= 0x10;
        is_refused(dial(target.data)?, &request(&altered))?;
    }
    Ok(())
}

pub(super) fn truncates_or_extends_hello(target: &Target) -> AttackResult {
    let hello = recorded(DATA)?;
    for length in [0, 2, 40, 55] {
        is_refused(dial(target.data)?, &request(&hello[..length]))?;
    }
    is_refused(dial(target.data)?, &request(&[&hello[..], &[0]].concat()))
}

pub(super) fn replays_control_hello(target: &Target) -> AttackResult {
    is_refused(dial(target.data)?, &request(&recorded(CONTROL)?))
}

pub(super) fn replays_hello_of_another_shard(target: &Target) -> AttackResult {
    is_refused(dial(target.data)?, &request(&recorded(SECOND_PLANE)?))
}

pub(super) fn replays_with_invalid_limits(target: &Target) -> AttackResult {
    // Peer to peer, without a way to announce readiness.
    let private = [&[0x80, 64, 0, 64], &recorded(DATA)?[..]].concat();
    let frame = start(b"MPA ID Req Frame", CRC | ENHANCED, 2, private.len() as u16, &private);
    is_refused(dial(target.data)?, &frame)?;
    let frame = start(b"MPA ID Req Frame", CRC | ENHANCED | REJECT, 2, private.len() as u16, &private);
    is_refused(dial(target.data)?, &frame)
}

pub(super) fn replays_then_reads(target: &Target) -> AttackResult {
    let words = (1..=64).flat_map(|key| frames::read(key, key, 0, 4096)).collect::<Vec<u8>>();
    followed_by(target, &words)
}

pub(super) fn replays_then_writes(target: &Target) -> AttackResult {
    let words = (1..=64).flat_map(|key| frames::write(key, 0, &[7; 512])).collect::<Vec<u8>>();
    followed_by(target, &words)
}

pub(super) fn replays_then_sends_atomics(target: &Target) -> AttackResult {
    followed_by(target, &[frames::ready(), frames::fetch_add(1, 1, 0)].concat())
}

pub(super) fn replays_then_sends_random_bytes(target: &Target) -> AttackResult {
    for length in [0, 1, 16, 40, 512] {
        let message = frames::frame(&frames::untagged(3, 0, 1, &random_bytes(length)));
        followed_by(target, &[frames::ready(), message].concat())?;
    }
    Ok(())
}

pub(super) fn replays_then_sends_endless_message(target: &Target) -> AttackResult {
    let mut words = frames::ready();
    let mut offset = 0_u32;
    while offset < 64 << 10 {
        let mut ulpdu = frames::untagged(3, 0, 1, &[7; 1024]);
        // Without the flag of a last segment.
        ulpdu[0] = 0x01;
        ulpdu[14..18].copy_from_slice(&offset.to_be_bytes());
        words.extend(frames::frame(&ulpdu));
        offset += 1024;
    }
    followed_by(target, &words)
}

pub(super) fn replays_then_sends_wrong_checksum(target: &Target) -> AttackResult {
    let mut words = frames::ready();
    if let Some(last) = words.last_mut() {
        *last ^= 1;
    }
    followed_by(target, &words)
}

pub(super) fn replays_then_uses_wrong_queues(target: &Target) -> AttackResult {
    for queue in [2, 3, 4, u32::MAX] {
        followed_by(target, &frames::frame(&frames::untagged(3, queue, 1, b"x")))?;
    }
    Ok(())
}

pub(super) fn replays_then_sends_empty_frames(target: &Target) -> AttackResult {
    followed_by(target, &frames::frame(&[]).repeat(1000))
}

pub(super) fn replays_then_sends_half_a_frame(target: &Target) -> AttackResult {
    let ready = frames::ready();
    followed_by(target, &ready[..ready.len() - 1])
}

pub(super) fn replays_then_resets(target: &Target) -> AttackResult {
    for _ in 0..20 {
        reset(say_again(target, &recorded(DATA)?)?)?;
    }
    Ok(())
}
