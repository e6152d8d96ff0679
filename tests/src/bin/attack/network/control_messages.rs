//! Invalid control-plane messages of an authenticated member.

use super::noise::{self, CONTROL, HELLO_BYTES, right_key};
use super::target::{Target, dial, open_connections, random_bytes, read_until_close, send};
use crate::byzantine_client::{AttackResult, context, expect_failure};
use ddss_core::{NodeId, PeerHello};
use snow::TransportState;
use std::io::Read;
use std::net::TcpStream;
use std::time::{Duration, Instant};

/// Bytes of one part of a message.
const PART_BYTES: usize = 60_000;
/// Longest message.
const WORD_BYTES_MAX: usize = 8 << 20;

/// A control stream after a correct handshake.
struct Stream {
    stream: TcpStream,
    state: TransportState,
}

impl Stream {
    fn open(target: &Target) -> Result<Stream, String> {
        let ours = PeerHello { node: NodeId(9), run: 1, shards: 1 };
        let (state, first) = noise::begin(&right_key(), CONTROL, &ours)?;
        let mut stream = dial(target.control)?;
        send(&mut stream, &first);
        let mut answer = [0; HELLO_BYTES];
        stream.read_exact(&mut answer).map_err(context("a member is not answered"))?;
        let (_, state) = noise::finish(state, &answer)?;
        Ok(Stream { stream, state })
    }

    /// Sends one part of a message, with more to come or not. Returns false if the peer does not accept it.
    fn send_message(&mut self, more: u8, part: &[u8]) -> Result<bool, String> {
        let mut sealed = vec![0; part.len() + 64];
        let plain = [&[more], part].concat();
        let length = self.state.write_message(&plain, &mut sealed).map_err(context("sealing"))?;
        let length_first = (length as u16).to_le_bytes();
        Ok(send(&mut self.stream, &[&length_first[..], &sealed[..length]].concat()))
    }

    /// Receives the answer, as text.
    fn receive(&mut self) -> Result<String, String> {
        let mut length = [0; 2];
        self.stream.read_exact(&mut length).map_err(context("no answer"))?;
        let mut sealed = vec![0; usize::from(u16::from_le_bytes(length))];
        self.stream.read_exact(&mut sealed).map_err(context("half an answer"))?;
        let mut plain = vec![0; sealed.len()];
        let length = self.state.read_message(&sealed, &mut plain).map_err(context("opening"))?;
        Ok(String::from_utf8_lossy(plain.get(1..length).unwrap_or_default()).into_owned())
    }

    /// Expects that the stream ends without an answer.
    fn ends_unanswered(mut self) -> AttackResult {
        expect_failure("nonsense was answered", !read_until_close(&mut self.stream)?.is_empty())
    }
}

pub(super) fn sends_invalid_messages(target: &Target) -> AttackResult {
    let deep = "[".repeat(50_000);
    let words =
        ["", "null", "{}", "\"Append\"", "{\"Propose\":{\"Claim\":{}}}", "{\"Append\":7}", &deep, &"9".repeat(50_000)];
    for word in words {
        let mut stream = Stream::open(target)?;
        stream.send_message(0, word.as_bytes())?;
        stream.ends_unanswered()?;
    }
    Ok(())
}

pub(super) fn sends_random_messages(target: &Target) -> AttackResult {
    for length in [0, 1, 1000, PART_BYTES] {
        let mut stream = Stream::open(target)?;
        stream.send_message(0, &random_bytes(length))?;
        stream.ends_unanswered()?;
    }
    Ok(())
}

pub(super) fn sends_endless_message(target: &Target) -> AttackResult {
    let mut stream = Stream::open(target)?;
    let mut said = 0;
    while said < 4 * WORD_BYTES_MAX && stream.send_message(1, &[b' '; PART_BYTES])? {
        said += PART_BYTES;
    }
    stream.ends_unanswered()
}

pub(super) fn sends_empty_parts_without_end(target: &Target) -> AttackResult {
    // The parts have no bytes, so that the message never reaches the maximum length.
    let mut stream = Stream::open(target)?;
    let begin = Instant::now();
    while begin.elapsed() < Duration::from_millis(200) && stream.send_message(1, &[])? {}
    Ok(())
}

pub(super) fn sends_undecryptable_messages(target: &Target) -> AttackResult {
    let mut stream = Stream::open(target)?;
    send(&mut stream.stream, &[&[40, 0][..], &random_bytes(40)].concat());
    stream.ends_unanswered()
}

pub(super) fn sends_invalid_names(target: &Target) -> AttackResult {
    let long = "n".repeat(129);
    for (name, home) in [("", 9), ("a\\nb", 9), (long.as_str(), 9), ("x", 0), ("x", 1025)] {
        let mut stream = Stream::open(target)?;
        let claim = format!("{{\"Propose\":{{\"Claim\":{{\"name\":\"{name}\",\"home\":{home},\"claim\":1}}}}}}");
        stream.send_message(0, claim.as_bytes())?;
        let answer = stream.receive()?;
        expect_failure(&format!("{claim}: {answer}"), !answer.contains("Refused"))?;
    }
    Ok(())
}

pub(super) fn sends_invalid_nodes(target: &Target) -> AttackResult {
    for words in ["{\"Propose\":{\"Dead\":{\"node\":0,\"epoch\":1}}}", "{\"Propose\":{\"Gone\":{\"node\":60000}}}"] {
        let mut stream = Stream::open(target)?;
        stream.send_message(0, words.as_bytes())?;
        let answer = stream.receive()?;
        expect_failure(&format!("{words}: {answer}"), !answer.contains("Refused"))?;
    }
    Ok(())
}

pub(super) fn requests_and_never_reads(target: &Target) -> AttackResult {
    let mut stream = Stream::open(target)?;
    for _ in 0..2000 {
        if !stream.send_message(0, b"\"Newest\"")? {
            break;
        }
    }
    drop(open_connections(target.control, 10, b"")?);
    Ok(())
}
