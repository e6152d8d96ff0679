//! A member of the cluster, node 3, that has the key: it meets the attacked node as a good one does, and then says what it likes.

use super::doors::node_3;
use super::frames::{self, hear_reply, request};
use super::road::{PATIENCE, Target, dial, rubbish, send};
use super::shake::{self, DATA, HELLO_BYTES, right_key};
use crate::liar::{Found, must_not, shows_secret, wrong};
use ddss_core::limits::STAGING_BYTES;
use ddss_core::{Message, Name, NodeId, Outcome, PeerHello, Principal, RemoteWindow, SegmentId, Spec, Timestamp};
use snow::TransportState;
use std::io::ErrorKind;
use std::net::TcpStream;
use std::time::{Duration, Instant};

pub(super) const WHO: Principal = Principal { uid: 0, gid: 0 };
/// Bytes of a sealed message, with room.
const SEALED_MAX: usize = 600;

/// A message between engines as bytes, before it is sealed.
pub(super) fn plain(message: &Message, tail: &[u8]) -> Vec<u8> {
    message.encode(Timestamp::default(), tail).to_vec()
}

/// The message in such bytes.
fn message_in(plain: &[u8]) -> Option<Message> {
    Message::decode(plain).ok().map(|(message, ..)| message)
}

/// What comes from the attacked node.
#[derive(Debug)]
pub(super) enum Heard {
    /// A message.
    Said(Message),
    /// Bytes that were read.
    Read(Vec<u8>),
    /// The connection is over.
    Cut,
}

/// See the module.
pub(super) struct Member {
    pub(super) stream: TcpStream,
    state: TransportState,
    /// The number of the next message, and of the next read or atomic request.
    pub(super) sends: u32,
    pub(super) requests: u32,
    /// Where the node takes what this one puts.
    pub(super) staging: RemoteWindow,
    step: u64,
}

impl Member {
    /// Connects and proves that it has the key; it has not said that it is there now.
    pub(super) fn greet(target: &Target) -> Result<Member, String> {
        let begin = Instant::now();
        loop {
            // A new run each time: it takes the place of the connection before.
            let run = u32::from_le_bytes(rubbish(4).try_into().unwrap_or_default());
            let (state, first) = shake::begin(&right_key(), DATA, &PeerHello { run, ..node_3() })?;
            let mut stream = dial(target.data)?;
            send(&mut stream, &request(&first));
            match hear_reply(&mut stream) {
                Ok((true, answer)) if answer.len() == HELLO_BYTES => {
                    let (theirs, state) = shake::finish(state, &answer)?;
                    must_not("another node answers", theirs.node != NodeId(1))?;
                    send(&mut stream, &frames::ready());
                    let staging = RemoteWindow::default();
                    return Ok(Member { stream, state, sends: 1, requests: 1, staging, step: 100 });
                }
                // It may be calling node 3 in this moment.
                other => must_not(&format!("a member is not let in: {other:?}"), begin.elapsed() > PATIENCE)?,
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// The same, and it is up.
    pub(super) fn meet(target: &Target) -> Result<Member, String> {
        let mut member = Member::greet(target)?;
        let staging = RemoteWindow { key: 1, base: 0, bytes: STAGING_BYTES as u64 };
        member.say(&plain(&Message::Welcome { staging }, &[]))?;
        match member.hear()? {
            Heard::Said(Message::Welcome { staging }) => member.staging = staging,
            other => return Err(format!("a member is not welcomed: {other:?}")),
        }
        Ok(member)
    }

    pub(super) fn seal(&mut self, plain: &[u8]) -> Result<Vec<u8>, String> {
        let mut sealed = [0; SEALED_MAX];
        let length = self.state.write_message(plain, &mut sealed).map_err(wrong("sealing"))?;
        Ok(sealed[..length].to_vec())
    }

    /// A message that is sealed already, or never was.
    pub(super) fn say_as_it_is(&mut self, sealed: &[u8]) -> bool {
        let frame = frames::frame(&frames::untagged(3, 0, self.sends, sealed));
        self.sends += 1;
        send(&mut self.stream, &frame)
    }

    /// Says something; whether it is taken is seen by what comes.
    pub(super) fn say(&mut self, plain: &[u8]) -> Found {
        let sealed = self.seal(plain)?;
        self.say_as_it_is(&sealed);
        Ok(())
    }

    /// Whatever comes next; an error if nothing does for long, or what nobody may see.
    pub(super) fn hear(&mut self) -> Result<Heard, String> {
        let begin = Instant::now();
        loop {
            let Some(ulpdu) = frames::hear(&mut self.stream) else {
                // A connection that is over says so at once when it is asked again.
                let again = std::io::Read::read(&mut self.stream, &mut [0]);
                let waits =
                    again.is_err_and(|error| matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut));
                must_not("nothing comes", waits || begin.elapsed() > 2 * PATIENCE)?;
                return Ok(Heard::Cut);
            };
            must_not("the secret was read", shows_secret(&ulpdu))?;
            match (ulpdu.first().map(|control| control & 0x80), ulpdu.get(1).map(|control| control & 0x0f)) {
                (Some(0), Some(3 | 5)) => {
                    let (sealed, mut plain) = (ulpdu.get(18..).unwrap_or_default(), [0; SEALED_MAX]);
                    let length = self.state.read_message(sealed, &mut plain).map_err(wrong("opening"))?;
                    must_not("the secret was told", shows_secret(&plain[..length]))?;
                    return message_in(&plain[..length]).map(Heard::Said).ok_or_else(|| "no message".to_owned());
                }
                (Some(0x80), Some(2)) => return Ok(Heard::Read(ulpdu.get(14..).unwrap_or_default().to_vec())),
                // A terminate, or a write: its end follows, or what it says behind it.
                _ => {}
            }
        }
    }

    /// Asks, with a number of its own; the answer to it.
    pub(super) fn ask(&mut self, message: impl FnOnce(u64) -> Message, tail: &[u8]) -> Result<Message, String> {
        self.step += 1;
        let asked = plain(&message(self.step), tail);
        self.say(&asked)?;
        loop {
            match self.hear()? {
                Heard::Said(answer @ (Message::Ended { step, .. } | Message::Found { step, .. }))
                    if step == self.step =>
                {
                    return Ok(answer);
                }
                Heard::Cut => return Err("it was cut off for a question".to_owned()),
                _ => {}
            }
        }
    }

    pub(super) fn is_denied(&mut self, message: impl FnOnce(u64) -> Message, tail: &[u8]) -> Found {
        match self.ask(message, tail)? {
            Message::Ended { outcome: Outcome::Failed(_), .. } => Ok(()),
            other => Err(format!("it was not denied: {other:?}")),
        }
    }

    /// Makes a segment at the node's; its id and the window over it. It is let go in the end.
    pub(super) fn make(&mut self, spec: Spec) -> Result<(SegmentId, RemoteWindow), String> {
        let name = format!("hostile/{:016x}", u64::from_le_bytes(rubbish(8).try_into().unwrap_or_default()));
        let name = Name::new(&name).map_err(wrong("a name"))?;
        match self.ask(|step| Message::Allocate { step, who: WHO, spec, name }, &[])? {
            Message::Found { facts, window, .. } => Ok((facts.segment, window)),
            other => Err(format!("no segment is made: {other:?}")),
        }
    }

    /// Lets a segment go, as a good member would.
    pub(super) fn release(&mut self, segment: SegmentId) -> Found {
        self.ask(|step| Message::Release { step, who: WHO, segment }, &[]).map(drop)
    }

    pub(super) fn read(&mut self, key: u32, address: u64, bytes: u32) {
        let frame = frames::read(self.requests, key, address, bytes);
        self.requests += 1;
        send(&mut self.stream, &frame);
    }

    pub(super) fn write(&mut self, key: u32, address: u64, bytes: &[u8]) {
        send(&mut self.stream, &frames::write(key, address, bytes));
    }

    /// It is served as before.
    pub(super) fn ends_served(mut self) -> Found {
        let name = Name::new("nothing").map_err(wrong("a name"))?;
        self.ask(|step| Message::Lookup { step, who: WHO, name }, &[]).map(drop)
    }

    /// Its connection ends, and nothing that it read came.
    pub(super) fn ends_cut(mut self) -> Found {
        loop {
            match self.hear()? {
                Heard::Cut => return Ok(()),
                Heard::Read(bytes) => must_not("it read something", !bytes.is_empty())?,
                Heard::Said(_) => {}
            }
        }
    }
}
