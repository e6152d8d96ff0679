//! In a node's place: somebody listens where the attacked node looks for node 3, and has no key.

use super::doors::node_3;
use super::frames::{CRC, ENHANCED, LIMITS, start};
use super::road::{PATIENCE, Target, prepare, rubbish, send, until_it_hangs_up};
use super::shake::{HELLO_BYTES, forged_answer};
use crate::liar::{Found, must_not, wrong};
use std::io::Read;
use std::net::{TcpListener, TcpStream};
use std::time::{Duration, Instant};

const REPLY: &[u8; 16] = b"MPA ID Rep Frame";

/// Takes the place; the next call of the attacked node, and the first message in it.
fn called(target: &Target) -> Result<(TcpStream, [u8; HELLO_BYTES]), String> {
    let listener = TcpListener::bind(target.place).map_err(wrong("the place is taken"))?;
    listener.set_nonblocking(true).map_err(wrong("a listener"))?;
    let begin = Instant::now();
    let mut stream = loop {
        if let Ok((stream, _)) = listener.accept() {
            break stream;
        }
        must_not("the node does not look for node 3 any more", begin.elapsed() > PATIENCE)?;
        std::thread::sleep(Duration::from_millis(1));
    };
    stream.set_nonblocking(false).map_err(wrong("a socket"))?;
    prepare(&stream)?;
    let mut request = [0; 20 + LIMITS.len() + HELLO_BYTES];
    stream.read_exact(&mut request).map_err(wrong("it says no request"))?;
    let mut hello = [0; HELLO_BYTES];
    hello.copy_from_slice(&request[24..]);
    Ok((stream, hello))
}

fn reply(private: &[u8]) -> Vec<u8> {
    let private = [&LIMITS, private].concat();
    start(REPLY, CRC | ENHANCED, 2, private.len() as u16, &private)
}

/// Answers with that; the node believes none of it, and says nothing more than its request.
fn answers(target: &Target, answer: impl Fn(&[u8; HELLO_BYTES]) -> Vec<u8>) -> Found {
    let (mut stream, hello) = called(target)?;
    send(&mut stream, &answer(&hello));
    // An empty write says that it is ready: that much it owes to whoever answers.
    must_not("a stranger in a node's place is told something", until_it_hangs_up(&mut stream)?.len() > 64)
}

pub(super) fn answers_rubbish(target: &Target) -> Found {
    answers(target, |_| rubbish(4096))
}

pub(super) fn answers_a_hello_of_rubbish(target: &Target) -> Found {
    answers(target, |_| reply(&rubbish(HELLO_BYTES)))
}

pub(super) fn sends_its_own_words_back(target: &Target) -> Found {
    answers(target, |hello| reply(hello))
}

pub(super) fn answers_with_another_key(target: &Target) -> Found {
    let forged = forged_answer(&node_3())?;
    answers(target, |_| reply(&forged))
}

pub(super) fn answers_more_than_fits(target: &Target) -> Found {
    answers(target, |_| start(REPLY, CRC, 1, u16::MAX, &rubbish(1 << 20)))
}

pub(super) fn answers_half_and_waits(target: &Target) -> Found {
    answers(target, |hello| reply(hello)[..30].to_vec())
}

pub(super) fn turns_away_with_a_lie(target: &Target) -> Found {
    // What it says is for the log only: letters that would paint there must not reach a terminal as they are.
    answers(target, |_| {
        start(REPLY, CRC | super::frames::REJECT, 2, 40, &b"\x1b[31mstop the daemon\r\n\0".repeat(2)[..40])
    })
}
