//! A byzantine cluster member: node 3 with the key. It completes a correct handshake and then sends arbitrary messages.

use super::frames::{self, hear_reply, request};
use super::noise::{self, DATA, HELLO_BYTES, right_key};
use super::target::{PATIENCE, Target, dial, random_bytes, send};
use super::unauthenticated::node_3;
use crate::byzantine_client::{AttackResult, contains_secret, context, expect_failure};
use ddss_core::limits::STAGING_BYTES;
use ddss_core::{
    ArenaRange, Message, NodeId, Operation, Outcome, PeerHello, Principal, RemoteWindow, SegmentId, Spec, Timestamp,
};
use snow::TransportState;
use std::io::ErrorKind;
use std::net::TcpStream;
use std::time::{Duration, Instant};

pub(super) const PRINCIPAL: Principal = Principal { uid: 0, gid: 0 };
/// Bytes of a sealed message, with room.
const SEALED_MAX: usize = 600;

/// Name that no segment has.
pub(super) const ABSENT: &[u8] = b"nothing";

/// Looks that name up.
pub(super) fn lookup(step: u64) -> Message {
    let name = ArenaRange { slot: 0, bytes: ABSENT.len() as u32 };
    Message::call(step, PRINCIPAL, 1_000_000, Operation::Open { name })
}

/// A message between engines as bytes, before it is sealed.
pub(super) fn plain(message: &Message, tail: &[u8]) -> Vec<u8> {
    message.encode(Timestamp::default(), tail).to_vec()
}

/// Parses the message in plain bytes.
fn message_in(plain: &[u8]) -> Option<Message> {
    Message::decode(plain).ok().map(|(message, ..)| message)
}

/// A message of the attacked node.
#[derive(Debug)]
pub(super) enum Received {
    /// A message.
    Message(Message),
    /// Bytes that were read.
    Read(Vec<u8>),
    /// The node has ended the connection.
    Cut,
}

/// A byzantine member of the cluster.
pub(super) struct Member {
    pub(super) stream: TcpStream,
    state: TransportState,
    /// The number of the next message, and of the next read or atomic request.
    pub(super) sends: u32,
    pub(super) requests: u32,
    /// The node's staging window for puts of this member.
    pub(super) staging: RemoteWindow,
    step: u64,
}

impl Member {
    /// Connects and authenticates, without the welcome that would announce the member.
    pub(super) fn greet(target: &Target) -> Result<Member, String> {
        let begin = Instant::now();
        loop {
            // Each connection has a new run number, so that it replaces the previous one.
            let run = u32::from_le_bytes(random_bytes(4).try_into().unwrap_or_default());
            let (state, first) = noise::begin(&right_key(), DATA, &PeerHello { run, ..node_3() })?;
            let mut stream = dial(target.data)?;
            send(&mut stream, &request(&first));
            match hear_reply(&mut stream) {
                Ok((true, answer)) if answer.len() == HELLO_BYTES => {
                    let (theirs, state) = noise::finish(state, &answer)?;
                    expect_failure("another node answers", theirs.node != NodeId(1))?;
                    send(&mut stream, &frames::ready());
                    let staging = RemoteWindow::default();
                    return Ok(Member { stream, state, sends: 1, requests: 1, staging, step: 100 });
                }
                // The node may be connecting to node 3 at this moment.
                other => expect_failure(&format!("a member is not let in: {other:?}"), begin.elapsed() > PATIENCE)?,
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Connects, authenticates, and announces the member with its welcome.
    pub(super) fn authenticate(target: &Target) -> Result<Member, String> {
        let mut member = Member::greet(target)?;
        let staging = RemoteWindow { key: 1, base: 0, bytes: STAGING_BYTES as u64 };
        member.send_message(&plain(&Message::Welcome { staging }, &[]))?;
        match member.receive()? {
            Received::Message(Message::Welcome { staging }) => member.staging = staging,
            other => return Err(format!("a member is not welcomed: {other:?}")),
        }
        Ok(member)
    }

    pub(super) fn seal(&mut self, plain: &[u8]) -> Result<Vec<u8>, String> {
        let mut sealed = [0; SEALED_MAX];
        let length = self.state.write_message(plain, &mut sealed).map_err(context("sealing"))?;
        Ok(sealed[..length].to_vec())
    }

    /// Sends bytes without sealing them. Returns false if the peer does not accept them.
    pub(super) fn say_as_it_is(&mut self, sealed: &[u8]) -> bool {
        let frame = frames::frame(&frames::untagged(3, 0, self.sends, sealed));
        self.sends += 1;
        send(&mut self.stream, &frame)
    }

    /// Sends a message; the replies show whether the node accepts it.
    pub(super) fn send_message(&mut self, plain: &[u8]) -> AttackResult {
        let sealed = self.seal(plain)?;
        self.say_as_it_is(&sealed);
        Ok(())
    }

    /// Returns the next message. Returns an error after a time limit, or if it contains forbidden data.
    pub(super) fn receive(&mut self) -> Result<Received, String> {
        let begin = Instant::now();
        loop {
            let Some(ulpdu) = frames::receive_frame(&mut self.stream) else {
                // A closed connection reports its end when it is read again.
                let again = std::io::Read::read(&mut self.stream, &mut [0]);
                let waits =
                    again.is_err_and(|error| matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut));
                expect_failure("nothing comes", waits || begin.elapsed() > 2 * PATIENCE)?;
                return Ok(Received::Cut);
            };
            expect_failure("the secret was read", contains_secret(&ulpdu))?;
            match (ulpdu.first().map(|control| control & 0x80), ulpdu.get(1).map(|control| control & 0x0f)) {
                (Some(0), Some(3 | 5)) => {
                    let (sealed, mut plain) = (ulpdu.get(18..).unwrap_or_default(), [0; SEALED_MAX]);
                    let length = self.state.read_message(sealed, &mut plain).map_err(context("opening"))?;
                    expect_failure("the secret was disclosed", contains_secret(&plain[..length]))?;
                    return message_in(&plain[..length]).map(Received::Message).ok_or_else(|| "no message".to_owned());
                }
                (Some(0x80), Some(2)) => return Ok(Received::Read(ulpdu.get(14..).unwrap_or_default().to_vec())),
                // A terminate or a write: the end of the connection or a message follows.
                _ => {}
            }
        }
    }

    /// Sends a request with a new number, and returns the answer to it.
    pub(super) fn ask(&mut self, message: impl FnOnce(u64) -> Message, tail: &[u8]) -> Result<Message, String> {
        self.step += 1;
        let asked = plain(&message(self.step), tail);
        self.send_message(&asked)?;
        loop {
            match self.receive()? {
                Received::Message(answer @ (Message::Ended { step, .. } | Message::Found { step, .. }))
                    if step == self.step =>
                {
                    return Ok(answer);
                }
                Received::Cut => return Err("it was cut off for a question".to_owned()),
                _ => {}
            }
        }
    }

    pub(super) fn is_denied(&mut self, message: impl FnOnce(u64) -> Message, tail: &[u8]) -> AttackResult {
        match self.ask(message, tail)? {
            Message::Ended { outcome: Outcome::Failed(_), .. } => Ok(()),
            other => Err(format!("it was not denied: {other:?}")),
        }
    }

    /// Creates a segment at the node, and returns its id and the window over it. The caller releases it.
    pub(super) fn make(&mut self, spec: Spec) -> Result<(SegmentId, RemoteWindow), String> {
        let name = format!("attack/{:016x}", u64::from_le_bytes(random_bytes(8).try_into().unwrap_or_default()));
        match self.allocate(&name, spec)? {
            Message::Found { info, window, .. } => Ok((info.segment, window)),
            other => Err(format!("no segment is made: {other:?}")),
        }
    }

    /// Asks the node for a segment of that name.
    pub(super) fn allocate(&mut self, name: &str, spec: Spec) -> Result<Message, String> {
        let text = [&spec.encode()[..], name.as_bytes()].concat();
        let spec_and_name = ArenaRange { slot: 0, bytes: text.len() as u32 };
        self.ask(|step| Message::call(step, PRINCIPAL, 1_000_000, Operation::Allocate { spec_and_name }), &text)
    }

    /// Releases a segment, as a correct member would.
    pub(super) fn release(&mut self, segment: SegmentId) -> AttackResult {
        let release = Operation::Release { segment };
        self.ask(|step| Message::call(step, PRINCIPAL, 1_000_000, release), &[]).map(drop)
    }

    pub(super) fn read(&mut self, key: u32, address: u64, bytes: u32) {
        let frame = frames::read(self.requests, key, address, bytes);
        self.requests += 1;
        send(&mut self.stream, &frame);
    }

    pub(super) fn write(&mut self, key: u32, address: u64, bytes: &[u8]) {
        send(&mut self.stream, &frames::write(key, address, bytes));
    }

    /// Expects that the member is still served.
    pub(super) fn ends_served(mut self) -> AttackResult {
        self.ask(lookup, ABSENT).map(drop)
    }

    /// Expects that the node ends the connection, and that no read was answered.
    pub(super) fn expect_disconnect(mut self) -> AttackResult {
        loop {
            match self.receive()? {
                Received::Cut => return Ok(()),
                Received::Read(bytes) => expect_failure("it read something", !bytes.is_empty())?,
                Received::Message(_) => {}
            }
        }
    }
}
