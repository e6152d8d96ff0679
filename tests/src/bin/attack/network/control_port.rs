//! Attacks on the control port and the metrics port without the cluster key.

use super::frames::request;
use super::noise::{self, CONTROL, DATA, HELLO_BYTES, OTHER_KEY};
use super::replay::recorded;
use super::target::{
    PATIENCE, Target, dial, expect_bare_refusal, expect_silent_close, open_connections, random_bytes, read_until_close,
    reset, send,
};
use super::unauthenticated::node_3;
use crate::byzantine_client::{AttackResult, context, expect_failure};
use std::io::Read;
use std::net::TcpStream;
use std::time::{Duration, Instant};

/// More streams than the control plane serves at the same time.
const CROWD: usize = 300;

pub(super) fn opens_silent_connections(target: &Target) -> AttackResult {
    open_connections(target.control, CROWD, b"")?.into_iter().try_for_each(expect_silent_close)
}

pub(super) fn connects_and_disconnects(target: &Target) -> AttackResult {
    (0..1000).try_for_each(|_| dial(target.control).map(drop))
}

pub(super) fn connects_and_resets(target: &Target) -> AttackResult {
    (0..300).try_for_each(|_| reset(dial(target.control)?))
}

pub(super) fn speaks_another_protocol(target: &Target) -> AttackResult {
    let data = request(&recorded(DATA)?);
    for words in [&b"GET / HTTP/1.1\r\nHost: somewhere.example\r\nAccept: text/html\r\n\r\n"[..], &[0; 4096], &data] {
        let mut stream = dial(target.control)?;
        send(&mut stream, words);
        expect_silent_close(stream)?;
    }
    Ok(())
}

pub(super) fn sends_half_a_hello(target: &Target) -> AttackResult {
    let (_, hello) = noise::begin(&OTHER_KEY, CONTROL, &node_3())?;
    let mut streams = Vec::new();
    for length in [1, 2, 34, 55] {
        streams.extend(open_connections(target.control, 10, &hello[..length])?);
    }
    streams.into_iter().try_for_each(expect_silent_close)
}

pub(super) fn sends_hello_byte_by_byte(target: &Target) -> AttackResult {
    let mut streams = open_connections(target.control, 16, b"")?;
    for byte in recorded(CONTROL)? {
        streams.iter_mut().for_each(|stream| _ = send(stream, &[byte]));
        std::thread::sleep(Duration::from_millis(50));
    }
    streams.into_iter().try_for_each(expect_silent_close)
}

pub(super) fn uses_another_key(target: &Target) -> AttackResult {
    for _ in 0..50 {
        let (_, hello) = noise::begin(&OTHER_KEY, CONTROL, &node_3())?;
        let mut stream = dial(target.control)?;
        send(&mut stream, &hello);
        expect_bare_refusal(stream)?;
    }
    Ok(())
}

pub(super) fn sends_data_hello_to_control_port(target: &Target) -> AttackResult {
    let mut stream = dial(target.control)?;
    send(&mut stream, &recorded(DATA)?);
    expect_bare_refusal(stream)
}

/// Replays an old first message, which the node answers, then sends `bytes` and nothing more.
fn followed_by(target: &Target, words: &[u8]) -> AttackResult {
    let mut stream = say_again(target, &recorded(CONTROL)?)?;
    send(&mut stream, words);
    expect_silent_close(stream)
}

fn say_again(target: &Target, hello: &[u8]) -> Result<TcpStream, String> {
    let mut stream = dial(target.control)?;
    send(&mut stream, hello);
    stream.read_exact(&mut [0; HELLO_BYTES]).map_err(context("a good first message is not answered"))?;
    Ok(stream)
}

pub(super) fn replays_then_sends_random_bytes(target: &Target) -> AttackResult {
    for length in [17_u16, 40, 4096, u16::MAX] {
        followed_by(target, &[&length.to_le_bytes()[..], &random_bytes(length.into())].concat())?;
    }
    Ok(())
}

pub(super) fn replays_then_sends_empty_frames(target: &Target) -> AttackResult {
    for length in [0_u16, 1, 16] {
        followed_by(target, &[&length.to_le_bytes()[..], &random_bytes(length.into())].concat())?;
    }
    Ok(())
}

pub(super) fn replays_on_silent_connections(target: &Target) -> AttackResult {
    // An unauthenticated peer must not hold the slots of members: it gets an answer, or makes room for the next peer.
    let (hello, begin) = (recorded(CONTROL)?, Instant::now());
    let streams: Vec<_> = (0..CROWD).filter_map(|_| say_again(target, &hello).ok()).collect();
    expect_failure("no stream is answered any more", streams.is_empty() || begin.elapsed() > PATIENCE)?;
    streams.into_iter().try_for_each(expect_silent_close)
}

pub(super) fn replays_then_sends_half_a_frame(target: &Target) -> AttackResult {
    followed_by(target, &[&[0xff, 0xff][..], &random_bytes(100)].concat())
}

/// Sends one request to the metrics port, and returns the first line of the answer.
fn ask(target: &Target, question: &[u8]) -> Result<String, String> {
    let mut stream = dial(target.metrics)?;
    send(&mut stream, question);
    let answer = read_until_close(&mut stream)?;
    let text = String::from_utf8_lossy(&answer);
    Ok(text.lines().next().unwrap_or_default().to_owned())
}

pub(super) fn sends_random_metrics_requests(target: &Target) -> AttackResult {
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
        expect_failure(&format!("{:?} was answered", String::from_utf8_lossy(question)), line.contains(" 200 "))?;
    }
    Ok(())
}

pub(super) fn sends_metrics_request_byte_by_byte(target: &Target) -> AttackResult {
    let mut streams = open_connections(target.metrics, 32, b"GET /metrics HTTP/1.1\r\nX: ")?;
    for _ in 0..20 {
        streams.iter_mut().for_each(|stream| _ = send(stream, b"x"));
        std::thread::sleep(Duration::from_millis(50));
    }
    streams.into_iter().try_for_each(expect_silent_close)
}

pub(super) fn requests_metrics_without_end(target: &Target) -> AttackResult {
    let streams = open_connections(target.metrics, 200, b"GET /metrics HTTP/1.1\r\n\r\n")?;
    streams.into_iter().try_for_each(reset)
}
