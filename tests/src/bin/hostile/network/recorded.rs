//! The data port, for somebody who has recorded a node's first message and sends it again: it is answered, since it is
//! good, and nothing that comes behind it is believed.

use super::doors::node_3;
use super::frames::{self, CRC, ENHANCED, REJECT, hear_reply, is_refused, request, start};
use super::road::{PATIENCE, Target, dial, reset, rubbish, send};
use super::shake::{self, CONTROL, DATA, HELLO_BYTES, SECOND_PLANE};
use crate::liar::{Found, must_not, shows_secret};
use ddss_core::PeerHello;
use std::net::TcpStream;
use std::time::{Duration, Instant};

/// What somebody on the road has seen node 3 say once.
pub(super) fn recorded(purpose: &[u8; 10]) -> Result<[u8; HELLO_BYTES], String> {
    let run = u32::from_le_bytes(rubbish(4).try_into().unwrap_or_default());
    let ours = PeerHello { run, ..node_3() };
    shake::begin(&shake::right_key(), purpose, &ours).map(|(_, first)| first)
}

/// Says it again until it is answered: the node may be calling the real node 3 in this moment.
fn say_again(target: &Target, hello: &[u8]) -> Result<TcpStream, String> {
    let begin = Instant::now();
    loop {
        let mut stream = dial(target.data)?;
        send(&mut stream, &request(hello));
        match hear_reply(&mut stream) {
            Ok((true, answer)) if answer.len() == HELLO_BYTES => return Ok(stream),
            other => must_not(&format!("a good first message is not answered: {other:?}"), begin.elapsed() > PATIENCE)?,
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// The connection ends, and nothing was read on it and nothing said but that it ends.
fn comes_to_nothing(mut stream: TcpStream) -> Found {
    while let Some(ulpdu) = frames::hear(&mut stream) {
        must_not("the secret was read", shows_secret(&ulpdu))?;
        let terminate = ulpdu.first().is_some_and(|control| control & 0x80 == 0) && ulpdu.get(1) == Some(&0x47);
        must_not("one who proved nothing was answered", !terminate)?;
    }
    let kept =
        matches!(stream.take_error(), Ok(None)) && std::io::Read::read(&mut stream, &mut [0]).is_err_and(is_wait);
    must_not("the connection is kept", kept)
}

fn is_wait(error: std::io::Error) -> bool {
    matches!(error.kind(), std::io::ErrorKind::WouldBlock | std::io::ErrorKind::TimedOut)
}

/// Says an old first message, then that; and it comes to nothing.
fn followed_by(target: &Target, words: &[u8]) -> Found {
    let mut stream = say_again(target, &recorded(DATA)?)?;
    send(&mut stream, words);
    comes_to_nothing(stream)
}

pub(super) fn said_again(target: &Target) -> Found {
    let hello = recorded(DATA)?;
    // More than may wait to prove themselves; the first ones make room.
    let streams = (0..8).map(|_| say_again(target, &hello)).collect::<Result<Vec<_>, _>>()?;
    streams.into_iter().try_for_each(comes_to_nothing)
}

pub(super) fn said_again_without_end(target: &Target) -> Found {
    let request = request(&recorded(DATA)?);
    for _ in 0..300 {
        let mut stream = dial(target.data)?;
        send(&mut stream, &request);
    }
    Ok(())
}

pub(super) fn altered_in_each_byte(target: &Target) -> Found {
    let hello = recorded(DATA)?;
    for index in 0..HELLO_BYTES {
        let mut altered = hello;
        altered[index] ^= 0x10;
        is_refused(dial(target.data)?, &request(&altered))?;
    }
    Ok(())
}

pub(super) fn cut_short_or_too_long(target: &Target) -> Found {
    let hello = recorded(DATA)?;
    for length in [0, 2, 40, 55] {
        is_refused(dial(target.data)?, &request(&hello[..length]))?;
    }
    is_refused(dial(target.data)?, &request(&[&hello[..], &[0]].concat()))
}

pub(super) fn of_the_control_plane(target: &Target) -> Found {
    is_refused(dial(target.data)?, &request(&recorded(CONTROL)?))
}

pub(super) fn of_another_plane(target: &Target) -> Found {
    is_refused(dial(target.data)?, &request(&recorded(SECOND_PLANE)?))
}

pub(super) fn with_terms_that_cannot_be(target: &Target) -> Found {
    // Peer to peer, and no way named in which it would say that it is ready.
    let private = [&[0x80, 64, 0, 64], &recorded(DATA)?[..]].concat();
    let frame = start(b"MPA ID Req Frame", CRC | ENHANCED, 2, private.len() as u16, &private);
    is_refused(dial(target.data)?, &frame)?;
    let frame = start(b"MPA ID Req Frame", CRC | ENHANCED | REJECT, 2, private.len() as u16, &private);
    is_refused(dial(target.data)?, &frame)
}

pub(super) fn then_reads(target: &Target) -> Found {
    let words = (1..=64).flat_map(|key| frames::read(key, key, 0, 4096)).collect::<Vec<u8>>();
    followed_by(target, &words)
}

pub(super) fn then_writes(target: &Target) -> Found {
    let words = (1..=64).flat_map(|key| frames::write(key, 0, &[7; 512])).collect::<Vec<u8>>();
    followed_by(target, &words)
}

pub(super) fn then_changes_words(target: &Target) -> Found {
    followed_by(target, &[frames::ready(), frames::fetch_add(1, 1, 0)].concat())
}

pub(super) fn then_says_rubbish(target: &Target) -> Found {
    for length in [0, 1, 16, 40, 512] {
        let message = frames::frame(&frames::untagged(3, 0, 1, &rubbish(length)));
        followed_by(target, &[frames::ready(), message].concat())?;
    }
    Ok(())
}

pub(super) fn then_a_message_without_end(target: &Target) -> Found {
    let mut words = frames::ready();
    let mut offset = 0_u32;
    while offset < 64 << 10 {
        let mut ulpdu = frames::untagged(3, 0, 1, &[7; 1024]);
        // Not the last part of it.
        ulpdu[0] = 0x01;
        ulpdu[14..18].copy_from_slice(&offset.to_be_bytes());
        words.extend(frames::frame(&ulpdu));
        offset += 1024;
    }
    followed_by(target, &words)
}

pub(super) fn then_a_wrong_checksum(target: &Target) -> Found {
    let mut words = frames::ready();
    if let Some(last) = words.last_mut() {
        *last ^= 1;
    }
    followed_by(target, &words)
}

pub(super) fn then_wrong_queues(target: &Target) -> Found {
    for queue in [2, 3, 4, u32::MAX] {
        followed_by(target, &frames::frame(&frames::untagged(3, queue, 1, b"x")))?;
    }
    Ok(())
}

pub(super) fn then_frames_of_nothing(target: &Target) -> Found {
    followed_by(target, &frames::frame(&[]).repeat(1000))
}

pub(super) fn then_half_a_frame(target: &Target) -> Found {
    let ready = frames::ready();
    followed_by(target, &ready[..ready.len() - 1])
}

pub(super) fn then_resets(target: &Target) -> Found {
    for _ in 0..20 {
        reset(say_again(target, &recorded(DATA)?)?)?;
    }
    Ok(())
}
