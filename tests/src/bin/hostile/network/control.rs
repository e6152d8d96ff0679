//! The control port and the one of the metrics, for those without the key.

use super::doors::node_3;
use super::frames::request;
use super::recorded::recorded;
use super::road::{PATIENCE, Target, crowd, dial, is_left_without_a_word, reset, rubbish, send, until_it_hangs_up};
use super::shake::{self, CONTROL, DATA, HELLO_BYTES, OTHER_KEY};
use crate::liar::{Found, must_not, wrong};
use std::io::Read;
use std::net::TcpStream;
use std::time::{Duration, Instant};

/// More streams than a control plane works on at the same time.
const CROWD: usize = 300;

pub(super) fn silent_crowd(target: &Target) -> Found {
    crowd(target.control, CROWD, b"")?.into_iter().try_for_each(is_left_without_a_word)
}

pub(super) fn connects_and_goes(target: &Target) -> Found {
    (0..1000).try_for_each(|_| dial(target.control).map(drop))
}

pub(super) fn connects_and_resets(target: &Target) -> Found {
    (0..300).try_for_each(|_| reset(dial(target.control)?))
}

pub(super) fn speaks_something_else(target: &Target) -> Found {
    let data = request(&recorded(DATA)?);
    for words in [&b"GET / HTTP/1.1\r\nHost: somewhere.example\r\nAccept: text/html\r\n\r\n"[..], &[0; 4096], &data] {
        let mut stream = dial(target.control)?;
        send(&mut stream, words);
        is_left_without_a_word(stream)?;
    }
    Ok(())
}

pub(super) fn half_a_hello(target: &Target) -> Found {
    let (_, hello) = shake::begin(&OTHER_KEY, CONTROL, &node_3())?;
    let mut streams = Vec::new();
    for length in [1, 2, 34, 55] {
        streams.extend(crowd(target.control, 10, &hello[..length])?);
    }
    streams.into_iter().try_for_each(is_left_without_a_word)
}

pub(super) fn hello_by_the_byte(target: &Target) -> Found {
    let mut streams = crowd(target.control, 16, b"")?;
    for byte in recorded(CONTROL)? {
        streams.iter_mut().for_each(|stream| _ = send(stream, &[byte]));
        std::thread::sleep(Duration::from_millis(50));
    }
    streams.into_iter().try_for_each(is_left_without_a_word)
}

pub(super) fn another_key(target: &Target) -> Found {
    for _ in 0..50 {
        let (_, hello) = shake::begin(&OTHER_KEY, CONTROL, &node_3())?;
        let mut stream = dial(target.control)?;
        send(&mut stream, &hello);
        is_left_without_a_word(stream)?;
    }
    Ok(())
}

pub(super) fn hello_of_the_data_plane(target: &Target) -> Found {
    let mut stream = dial(target.control)?;
    send(&mut stream, &recorded(DATA)?);
    is_left_without_a_word(stream)
}

/// Says an old first message, which is answered, then that; and nothing more is said.
fn followed_by(target: &Target, words: &[u8]) -> Found {
    let mut stream = say_again(target, &recorded(CONTROL)?)?;
    send(&mut stream, words);
    is_left_without_a_word(stream)
}

fn say_again(target: &Target, hello: &[u8]) -> Result<TcpStream, String> {
    let mut stream = dial(target.control)?;
    send(&mut stream, hello);
    stream.read_exact(&mut [0; HELLO_BYTES]).map_err(wrong("a good first message is not answered"))?;
    Ok(stream)
}

pub(super) fn said_again_then_rubbish(target: &Target) -> Found {
    for length in [17_u16, 40, 4096, u16::MAX] {
        followed_by(target, &[&length.to_le_bytes()[..], &rubbish(length.into())].concat())?;
    }
    Ok(())
}

pub(super) fn said_again_then_frames_of_nothing(target: &Target) -> Found {
    for length in [0_u16, 1, 16] {
        followed_by(target, &[&length.to_le_bytes()[..], &rubbish(length.into())].concat())?;
    }
    Ok(())
}

pub(super) fn said_again_by_a_silent_crowd(target: &Target) -> Found {
    // Whoever proved nothing must not keep the places of those who could: he is answered, or makes room for the next one.
    let (hello, begin) = (recorded(CONTROL)?, Instant::now());
    let streams: Vec<_> = (0..CROWD).filter_map(|_| say_again(target, &hello).ok()).collect();
    must_not("nobody is heard any more", streams.is_empty() || begin.elapsed() > PATIENCE)?;
    streams.into_iter().try_for_each(is_left_without_a_word)
}

pub(super) fn said_again_then_half_a_frame(target: &Target) -> Found {
    followed_by(target, &[&[0xff, 0xff][..], &rubbish(100)].concat())
}

/// One question to the metrics, and the first line of the answer.
fn ask(target: &Target, question: &[u8]) -> Result<String, String> {
    let mut stream = dial(target.metrics)?;
    send(&mut stream, question);
    let answer = until_it_hangs_up(&mut stream)?;
    let text = String::from_utf8_lossy(&answer);
    Ok(text.lines().next().unwrap_or_default().to_owned())
}

pub(super) fn metrics_of_rubbish(target: &Target) -> Found {
    let long = [&b"GET /"[..], &[b'a'; 64 << 10], b" HTTP/1.1\r\n\r\n"].concat();
    let questions: [&[u8]; 6] = [
        b"\0\0\0\0\r\n\r\n",
        b"GET\r\n\r\n",
        b"POST /metrics HTTP/1.1\r\n\r\n",
        b"GET /../../state/cluster.key HTTP/1.1\r\n\r\n",
        b"GET http://somewhere.example/ HTTP/1.1\r\n\r\n",
        &long,
    ];
    for question in questions {
        let line = ask(target, question)?;
        must_not(&format!("{:?} was answered", String::from_utf8_lossy(question)), line.contains(" 200 "))?;
    }
    Ok(())
}

pub(super) fn metrics_by_the_byte(target: &Target) -> Found {
    let mut streams = crowd(target.metrics, 32, b"GET /metrics HTTP/1.1\r\nX: ")?;
    for _ in 0..20 {
        streams.iter_mut().for_each(|stream| _ = send(stream, b"x"));
        std::thread::sleep(Duration::from_millis(50));
    }
    streams.into_iter().try_for_each(is_left_without_a_word)
}

pub(super) fn metrics_without_end(target: &Target) -> Found {
    let streams = crowd(target.metrics, 200, b"GET /metrics HTTP/1.1\r\n\r\n")?;
    streams.into_iter().try_for_each(reset)
}
