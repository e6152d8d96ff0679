//! The data port, for those who have nothing: no key, and no packet of anybody who has it.

use super::frames::{self, CRC, ENHANCED, LIMITS, MARKERS, REJECT, is_refused, request, start};
use super::road::{PATIENCE, Target, crowd, dial, is_left_without_a_word, reset, rubbish, send, until_it_hangs_up};
use super::shake::{self, CONTROL, DATA, HELLO_BYTES, OTHER_KEY};
use crate::liar::{Found, wrong};
use ddss_core::{NodeId, PeerHello};
use std::time::{Duration, Instant};

/// More than may wait half open.
const CROWD: usize = 100;
const REQUEST: &[u8; 16] = b"MPA ID Req Frame";

pub(super) fn node_3() -> PeerHello {
    PeerHello { node: NodeId(3), run: 7, planes: 1 }
}

/// A first message that is right but for its key.
fn strange_hello() -> Result<[u8; HELLO_BYTES], String> {
    shake::begin(&OTHER_KEY, DATA, &node_3()).map(|(_, first)| first)
}

pub(super) fn silent_crowd(target: &Target) -> Found {
    crowd(target.data, CROWD, b"")?.into_iter().try_for_each(is_left_without_a_word)
}

pub(super) fn keeps_every_place(target: &Target) -> Found {
    // Whoever is sent away stands there again at once.
    let mut streams = crowd(target.data, CROWD, b"")?;
    let end = Instant::now() + Duration::from_secs(3);
    while Instant::now() < end {
        for stream in &mut streams {
            stream.set_nonblocking(true).map_err(wrong("a socket"))?;
            let waits = stream.peek(&mut [0]).is_err_and(|error| error.kind() == std::io::ErrorKind::WouldBlock);
            if !waits {
                *stream = dial(target.data)?;
            }
        }
    }
    Ok(())
}

pub(super) fn connects_and_goes(target: &Target) -> Found {
    (0..1000).try_for_each(|_| dial(target.data).map(drop))
}

pub(super) fn connects_and_resets(target: &Target) -> Found {
    (0..300).try_for_each(|_| reset(dial(target.data)?))
}

pub(super) fn speaks_something_else(target: &Target) -> Found {
    let words: [&[u8]; 4] = [
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc",
        b"SSH-2.0-x\r\n",
        &[0; 64 << 10],
    ];
    for words in words {
        let mut stream = dial(target.data)?;
        send(&mut stream, words);
        is_left_without_a_word(stream)?;
    }
    Ok(())
}

pub(super) fn request_by_the_byte(target: &Target) -> Found {
    let mut streams = crowd(target.data, 8, b"")?;
    for byte in request(&strange_hello()?) {
        streams.iter_mut().for_each(|stream| _ = send(stream, &[byte]));
        std::thread::sleep(Duration::from_millis(40));
    }
    streams.into_iter().try_for_each(is_left_without_a_word)
}

pub(super) fn half_a_request(target: &Target) -> Found {
    let whole = request(&strange_hello()?);
    let mut streams = Vec::new();
    for length in [1, 15, 16, 19, 20, 24, whole.len() - 1] {
        streams.extend(crowd(target.data, 1, &whole[..length])?);
    }
    streams.into_iter().try_for_each(is_left_without_a_word)
}

pub(super) fn request_and_reset(target: &Target) -> Found {
    let whole = request(&strange_hello()?);
    for length in (1..=whole.len()).rev() {
        let mut stream = dial(target.data)?;
        send(&mut stream, &whole[..length]);
        reset(stream)?;
    }
    Ok(())
}

pub(super) fn private_data_beyond_the_limit(target: &Target) -> Found {
    for length in [257_u16, 512, 513, u16::MAX] {
        let frame = start(REQUEST, CRC, 1, length, &rubbish(length.into()));
        is_refused(dial(target.data)?, &frame)?;
    }
    Ok(())
}

pub(super) fn private_data_of_nothing(target: &Target) -> Found {
    is_refused(dial(target.data)?, &start(REQUEST, CRC, 1, 0, &[]))?;
    is_refused(dial(target.data)?, &request(&[]))
}

pub(super) fn unknown_revisions(target: &Target) -> Found {
    for revision in [0, 3, 0x80, u8::MAX] {
        is_refused(dial(target.data)?, &start(REQUEST, CRC, revision, 56, &rubbish(56)))?;
    }
    Ok(())
}

pub(super) fn flags_of_every_kind(target: &Target) -> Found {
    let hello = strange_hello()?;
    for flags in (0..=u8::MAX).step_by(0x10).chain([0x0f, REJECT, MARKERS | CRC]) {
        let private = [&LIMITS[..], &hello].concat();
        is_refused(dial(target.data)?, &start(REQUEST, flags, 2, private.len() as u16, &private))?;
    }
    Ok(())
}

pub(super) fn limits_cut_short(target: &Target) -> Found {
    for length in 0..4 {
        let frame = start(REQUEST, CRC | ENHANCED, 2, length, &LIMITS[..length.into()]);
        is_refused(dial(target.data)?, &frame)?;
    }
    Ok(())
}

pub(super) fn reply_instead_of_a_request(target: &Target) -> Found {
    let mut stream = dial(target.data)?;
    send(&mut stream, &start(b"MPA ID Rep Frame", CRC, 1, 56, &strange_hello()?));
    is_left_without_a_word(stream)
}

pub(super) fn another_key(target: &Target) -> Found {
    for _ in 0..50 {
        is_refused(dial(target.data)?, &request(&strange_hello()?))?;
    }
    Ok(())
}

pub(super) fn another_key_without_end(target: &Target) -> Found {
    let request = request(&strange_hello()?);
    for _ in 0..500 {
        let mut stream = dial(target.data)?;
        send(&mut stream, &request);
    }
    Ok(())
}

pub(super) fn another_release(target: &Target) -> Found {
    for protocol in (0..=u8::MAX).filter(|&protocol| protocol != PeerHello::PROTOCOL).step_by(8) {
        let mut hello = strange_hello()?;
        hello[1] = protocol;
        is_refused(dial(target.data)?, &request(&hello))?;
    }
    Ok(())
}

pub(super) fn hellos_of_rubbish(target: &Target) -> Found {
    for length in [1, 2, 55, 56, 57, 128, 252] {
        let mut hello = rubbish(length);
        is_refused(dial(target.data)?, &request(&hello))?;
        hello.splice(..2.min(length), [b'D', PeerHello::PROTOCOL].into_iter().take(length));
        is_refused(dial(target.data)?, &request(&hello))?;
    }
    Ok(())
}

pub(super) fn hellos_of_one_kind_of_byte(target: &Target) -> Found {
    // A share of zeroes is a point of small order: it must not become a key.
    for byte in [0, 1, 0x7f, 0xff] {
        let mut hello = [byte; HELLO_BYTES];
        (hello[0], hello[1]) = (b'D', PeerHello::PROTOCOL);
        is_refused(dial(target.data)?, &request(&hello))?;
    }
    Ok(())
}

pub(super) fn frames_before_any_request(target: &Target) -> Found {
    for frame in [frames::read(1, 1, 0, 4096), frames::write(1, 0, &[7; 64]), frames::ready()] {
        let mut stream = dial(target.data)?;
        send(&mut stream, &frame);
        is_left_without_a_word(stream)?;
    }
    Ok(())
}

pub(super) fn frames_behind_a_refused_request(target: &Target) -> Found {
    let mut words = request(&strange_hello()?);
    for key in 0..64 {
        words.extend(frames::read(key + 1, key, 0, 1 << 20));
        words.extend(frames::write(key, 0, &[7; 512]));
    }
    is_refused(dial(target.data)?, &words)
}

pub(super) fn rubbish_behind_a_request(target: &Target) -> Found {
    let mut stream = dial(target.data)?;
    send(&mut stream, &request(&strange_hello()?));
    let begin = Instant::now();
    while begin.elapsed() < PATIENCE {
        if !send(&mut stream, &rubbish(64 << 10)) {
            return Ok(());
        }
    }
    Err("a stranger's bytes are taken without end".to_owned())
}

pub(super) fn control_words_on_the_data_port(target: &Target) -> Found {
    let (_, hello) = shake::begin(&OTHER_KEY, CONTROL, &node_3())?;
    let mut stream = dial(target.data)?;
    send(&mut stream, &hello);
    is_left_without_a_word(stream)?;
    is_refused(dial(target.data)?, &request(&hello))
}

pub(super) fn half_closes_and_waits(target: &Target) -> Found {
    for words in [&b""[..], b"MPA ID", &request(&strange_hello()?)] {
        let mut stream = dial(target.data)?;
        send(&mut stream, words);
        let _ = stream.shutdown(std::net::Shutdown::Write);
        until_it_hangs_up(&mut stream)?;
    }
    Ok(())
}

pub(super) fn never_reads_what_it_is_told(target: &Target) -> Found {
    let request = request(&strange_hello()?);
    let streams = crowd(target.data, CROWD, &request)?;
    std::thread::sleep(Duration::from_millis(700));
    streams.into_iter().try_for_each(reset)
}
