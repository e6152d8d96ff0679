//! Impersonation of node 3: an attacker without the key listens at the address where the attacked node expects node 3.

use super::frames::{CRC, ENHANCED, LIMITS, start};
use super::noise::{HELLO_BYTES, forged_answer};
use super::target::{PATIENCE, Target, prepare, random_bytes, read_until_close, send};
use super::unauthenticated::node_3;
use crate::byzantine_client::{AttackResult, context, expect_failure};
use std::io::Read;
use std::net::{TcpListener, TcpStream};
use std::time::{Duration, Instant};

const REPLY: &[u8; 16] = b"MPA ID Rep Frame";

/// Listens in the place of node 3. Returns the next connection of the attacked node, with the first message on it.
fn called(target: &Target) -> Result<(TcpStream, [u8; HELLO_BYTES]), String> {
    let listener = TcpListener::bind(target.place).map_err(context("the place is taken"))?;
    listener.set_nonblocking(true).map_err(context("a listener"))?;
    let begin = Instant::now();
    let mut stream = loop {
        if let Ok((stream, _)) = listener.accept() {
            break stream;
        }
        expect_failure("the node does not look for node 3 any more", begin.elapsed() > PATIENCE)?;
        std::thread::sleep(Duration::from_millis(1));
    };
    stream.set_nonblocking(false).map_err(context("a socket"))?;
    prepare(&stream)?;
    let mut request = [0; 20 + LIMITS.len() + HELLO_BYTES];
    stream.read_exact(&mut request).map_err(context("it says no request"))?;
    let mut hello = [0; HELLO_BYTES];
    hello.copy_from_slice(&request[24..]);
    Ok((stream, hello))
}

fn reply(private: &[u8]) -> Vec<u8> {
    let private = [&LIMITS, private].concat();
    start(REPLY, CRC | ENHANCED, 2, private.len() as u16, &private)
}

/// Answers with these bytes. The node must not trust them, and must send no more than its request.
fn answers(target: &Target, answer: impl Fn(&[u8; HELLO_BYTES]) -> Vec<u8>) -> AttackResult {
    let (mut stream, hello) = called(target)?;
    send(&mut stream, &answer(&hello));
    // An empty write announces that the node is ready, which it owes to any answering peer.
    expect_failure("an impersonator receives data", read_until_close(&mut stream)?.len() > 64)
}

pub(super) fn answers_random_bytes(target: &Target) -> AttackResult {
    answers(target, |_| random_bytes(4096))
}

pub(super) fn answers_random_hello(target: &Target) -> AttackResult {
    answers(target, |_| reply(&random_bytes(HELLO_BYTES)))
}

pub(super) fn reflects_hello(target: &Target) -> AttackResult {
    answers(target, |hello| reply(hello))
}

pub(super) fn answers_with_another_key(target: &Target) -> AttackResult {
    let forged = forged_answer(&node_3())?;
    answers(target, |_| reply(&forged))
}

pub(super) fn answers_oversized_hello(target: &Target) -> AttackResult {
    answers(target, |_| start(REPLY, CRC, 1, u16::MAX, &random_bytes(1 << 20)))
}

pub(super) fn answers_half_and_waits(target: &Target) -> AttackResult {
    answers(target, |hello| reply(hello)[..30].to_vec())
}

pub(super) fn refuses_with_control_characters(target: &Target) -> AttackResult {
    // The refusal text goes to the log only. Control characters in it must not reach a terminal unescaped.
    answers(target, |_| {
        start(REPLY, CRC | super::frames::REJECT, 2, 40, &b"\x1b[31mstop the daemon\r\n\0".repeat(2)[..40])
    })
}
