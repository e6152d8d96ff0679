//! What a member says to the control plane that makes no sense.

use super::road::{Target, crowd, dial, rubbish, send, until_it_hangs_up};
use super::shake::{self, CONTROL, HELLO_BYTES, right_key};
use crate::liar::{Found, must_not, wrong};
use ddss_core::{NodeId, PeerHello};
use snow::TransportState;
use std::io::Read;
use std::net::TcpStream;
use std::time::{Duration, Instant};

/// Bytes of one part of a word.
const PART_BYTES: usize = 60_000;
/// A word is never longer than this.
const WORD_BYTES_MAX: usize = 8 << 20;

/// A stream to the control plane, met as a good member meets it.
struct Stream {
    stream: TcpStream,
    state: TransportState,
}

impl Stream {
    fn meet(target: &Target) -> Result<Stream, String> {
        let ours = PeerHello { node: NodeId(9), run: 1, planes: 1 };
        let (state, first) = shake::begin(&right_key(), CONTROL, &ours)?;
        let mut stream = dial(target.control)?;
        send(&mut stream, &first);
        let mut answer = [0; HELLO_BYTES];
        stream.read_exact(&mut answer).map_err(wrong("a member is not answered"))?;
        let (_, state) = shake::finish(state, &answer)?;
        Ok(Stream { stream, state })
    }

    /// One part of a word, with more to come or not; false when it is not taken.
    fn say(&mut self, more: u8, part: &[u8]) -> Result<bool, String> {
        let mut sealed = vec![0; part.len() + 64];
        let plain = [&[more], part].concat();
        let length = self.state.write_message(&plain, &mut sealed).map_err(wrong("sealing"))?;
        let length_first = (length as u16).to_le_bytes();
        Ok(send(&mut self.stream, &[&length_first[..], &sealed[..length]].concat()))
    }

    /// The answer, as text.
    fn hear(&mut self) -> Result<String, String> {
        let mut length = [0; 2];
        self.stream.read_exact(&mut length).map_err(wrong("no answer"))?;
        let mut sealed = vec![0; usize::from(u16::from_le_bytes(length))];
        self.stream.read_exact(&mut sealed).map_err(wrong("half an answer"))?;
        let mut plain = vec![0; sealed.len()];
        let length = self.state.read_message(&sealed, &mut plain).map_err(wrong("opening"))?;
        Ok(String::from_utf8_lossy(plain.get(1..length).unwrap_or_default()).into_owned())
    }

    /// The stream ends without an answer.
    fn ends_unanswered(mut self) -> Found {
        must_not("nonsense was answered", !until_it_hangs_up(&mut self.stream)?.is_empty())
    }
}

pub(super) fn words_that_are_none(target: &Target) -> Found {
    let deep = "[".repeat(50_000);
    let words =
        ["", "null", "{}", "\"Append\"", "{\"Propose\":{\"Claim\":{}}}", "{\"Append\":7}", &deep, &"9".repeat(50_000)];
    for word in words {
        let mut stream = Stream::meet(target)?;
        stream.say(0, word.as_bytes())?;
        stream.ends_unanswered()?;
    }
    Ok(())
}

pub(super) fn words_of_rubbish(target: &Target) -> Found {
    for length in [0, 1, 1000, PART_BYTES] {
        let mut stream = Stream::meet(target)?;
        stream.say(0, &rubbish(length))?;
        stream.ends_unanswered()?;
    }
    Ok(())
}

pub(super) fn a_word_without_end(target: &Target) -> Found {
    let mut stream = Stream::meet(target)?;
    let mut said = 0;
    while said < 4 * WORD_BYTES_MAX && stream.say(1, &[b' '; PART_BYTES])? {
        said += PART_BYTES;
    }
    stream.ends_unanswered()
}

pub(super) fn parts_of_nothing_without_end(target: &Target) -> Found {
    // Its parts have no bytes, so that no length is ever reached.
    let mut stream = Stream::meet(target)?;
    let begin = Instant::now();
    while begin.elapsed() < Duration::from_millis(200) && stream.say(1, &[])? {}
    Ok(())
}

pub(super) fn words_that_do_not_open(target: &Target) -> Found {
    let mut stream = Stream::meet(target)?;
    send(&mut stream.stream, &[&[40, 0][..], &rubbish(40)].concat());
    stream.ends_unanswered()
}

pub(super) fn names_that_cannot_be(target: &Target) -> Found {
    let long = "n".repeat(129);
    for (name, home) in [("", 9), ("a\\nb", 9), (long.as_str(), 9), ("x", 0), ("x", 1025)] {
        let mut stream = Stream::meet(target)?;
        let claim = format!("{{\"Propose\":{{\"Claim\":{{\"name\":\"{name}\",\"home\":{home},\"claim\":1}}}}}}");
        stream.say(0, claim.as_bytes())?;
        let answer = stream.hear()?;
        must_not(&format!("{claim}: {answer}"), !answer.contains("Refused"))?;
    }
    Ok(())
}

pub(super) fn nodes_that_cannot_be(target: &Target) -> Found {
    for words in ["{\"Propose\":{\"Dead\":{\"node\":0,\"epoch\":1}}}", "{\"Propose\":{\"Gone\":{\"node\":60000}}}"] {
        let mut stream = Stream::meet(target)?;
        stream.say(0, words.as_bytes())?;
        let answer = stream.hear()?;
        must_not(&format!("{words}: {answer}"), !answer.contains("Refused"))?;
    }
    Ok(())
}

pub(super) fn questions_that_nobody_listens_to(target: &Target) -> Found {
    let mut stream = Stream::meet(target)?;
    for _ in 0..2000 {
        if !stream.say(0, b"\"Newest\"")? {
            break;
        }
    }
    drop(crowd(target.control, 10, b"")?);
    Ok(())
}
