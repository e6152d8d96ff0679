//! Two messages with which two nodes prove to each other that they have the cluster's key, and say who they are.
//!
//! Noise, pattern NNpsk0: the key goes in first, so that a stranger's message is refused before any costly
//! arithmetic; both sides give a fresh Diffie-Hellman share, so that what was recorded stays sealed when the key
//! gets out later. Both messages have the same fixed size:
//!
//! ```text
//!   0     1          2                 34                        40      56
//!  +-----+----------+-----------------+-------------------------+-------+
//!  | 'D' | protocol | ephemeral share | node, planes, run       |  tag  |
//!  +-----+----------+-----------------+-------------------------+-------+
//!                                      \_ encrypted under the key _/
//! ```
//!
//! 56 bytes is what the narrowest fabric has for its private data (an RDMA connection manager's request over
//! InfiniBand). The first two bytes are open so that another release can be told from another key; they are bound
//! into the proof, as is what the connection is for, so that a handshake of one plane is none on another.
//!
//! The one who answers does not know yet that the first message is not an old one sent again: that is proved by the
//! first sealed message that opens.

use super::channel::Channel;
use super::cipher::Primitives;
use super::key::ClusterKey;
use ddss_core::{HelloError, NodeId, PeerHello};
use snow::{Builder, HandshakeState};
use std::fmt;

/// Bytes of each of the two messages.
pub(crate) const HELLO_BYTES: usize = OPEN_BYTES + SHARE_BYTES + PeerHello::BYTES + TAG_BYTES;

const PATTERN: &str = "Noise_NNpsk0_25519_AESGCM_BLAKE2s";
const OPEN_BYTES: usize = 2;
const SHARE_BYTES: usize = 32;
const TAG_BYTES: usize = 16;
const MARK: u8 = b'D';

const _: () = assert!(HELLO_BYTES == 56);
const _: () = assert!(HELLO_BYTES <= ddss_core::limits::HELLO_BYTES_MAX);

/// What a connection is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Purpose {
    /// Memory and the engines' messages of one plane, through a fabric.
    Data(u8),
    /// Membership and directory.
    Control,
}

impl Purpose {
    fn prologue(self, protocol: u8) -> [u8; 12] {
        let name: &[u8; 10] = match self {
            Purpose::Data(_) => b"DDSS  data",
            Purpose::Control => b"DDSS  ctrl",
        };
        let mut out = [0; 12];
        out[..10].copy_from_slice(name);
        if let Purpose::Data(plane) = self {
            out[4] += plane;
        }
        (out[10], out[11]) = (MARK, protocol);
        out
    }
}

/// Why a handshake came to nothing. The words are for both sides, and tell a stranger nothing.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum TrustError {
    /// Not one of us, or of another release.
    #[error(transparent)]
    Hello(#[from] HelloError),
    /// Another key, or none.
    #[error("another cluster key: use the key of this cluster on all its nodes (ddss cluster token)")]
    WrongKey,
    /// The other side's daemon has another number of planes.
    #[error(
        "{node} has {theirs} progress thread{} and this one {ours}: all nodes of a cluster need the same number (progress-threads)",
        if *theirs == 1 { "" } else { "s" }
    )]
    Planes {
        /// Who it is.
        node: NodeId,
        /// How many this node has.
        ours: u8,
        /// How many the other one has.
        theirs: u8,
    },
    /// The one who answers is another node than the one that was called.
    #[error("{0} answers in its place")]
    WrongNode(NodeId),
    /// The system has no random bytes, or the cryptography refused.
    #[error("the handshake cannot be made here")]
    Unable,
}

fn builder<'a>(key: &'a ClusterKey, prologue: &'a [u8]) -> Result<Builder<'a>, TrustError> {
    let pattern = PATTERN.parse().map_err(|_| TrustError::Unable)?;
    let builder =
        Builder::with_resolver(pattern, Box::new(Primitives)).psk(0, key.bytes()).map_err(|_| TrustError::Unable)?;
    builder.prologue(prologue).map_err(|_| TrustError::Unable)
}

fn write(state: &mut HandshakeState, ours: &PeerHello) -> Result<[u8; HELLO_BYTES], TrustError> {
    let mut out = [0; HELLO_BYTES];
    (out[0], out[1]) = (MARK, PeerHello::PROTOCOL);
    let length = state.write_message(&ours.encode(), &mut out[OPEN_BYTES..]).map_err(|_| TrustError::Unable)?;
    assert_eq!(length, HELLO_BYTES - OPEN_BYTES, "both messages have one size");
    Ok(out)
}

fn read(state: &mut HandshakeState, theirs: &[u8]) -> Result<PeerHello, TrustError> {
    check_open(theirs)?;
    let mut plain = [0; HELLO_BYTES];
    let length = state.read_message(&theirs[OPEN_BYTES..], &mut plain).map_err(|_| TrustError::WrongKey)?;
    Ok(PeerHello::decode(&plain[..length])?)
}

/// What can be said of a message without the key.
fn check_open(theirs: &[u8]) -> Result<(), TrustError> {
    match *theirs {
        [MARK, theirs, ..] if theirs != PeerHello::PROTOCOL => {
            Err(HelloError::Version { ours: PeerHello::PROTOCOL, theirs }.into())
        }
        [MARK, ..] if theirs.len() == HELLO_BYTES => Ok(()),
        _ => Err(HelloError::NotOurs.into()),
    }
}

/// Whether two nodes that have met can work together: the planes of both have to be the same.
pub(crate) fn agree(ours: &PeerHello, theirs: &PeerHello) -> Result<(), TrustError> {
    let (node, ours, theirs) = (theirs.node, ours.planes, theirs.planes);
    if ours == theirs { Ok(()) } else { Err(TrustError::Planes { node, ours, theirs }) }
}

/// The side that connects.
pub(crate) struct Initiator {
    state: Box<HandshakeState>,
    ours: PeerHello,
}

impl Initiator {
    /// The first message.
    pub(crate) fn begin(
        key: &ClusterKey,
        purpose: Purpose,
        ours: &PeerHello,
    ) -> Result<(Self, [u8; HELLO_BYTES]), TrustError> {
        let prologue = purpose.prologue(PeerHello::PROTOCOL);
        let mut state = builder(key, &prologue)?.build_initiator().map_err(|_| TrustError::Unable)?;
        let message = write(&mut state, ours)?;
        Ok((Self { state: Box::new(state), ours: *ours }, message))
    }

    /// Takes the answer: who it is, and the channel to it. What comes from there is fresh. That both agree is checked
    /// here; who answers has to check it, too ([`agree`]), and answers first: so both sides can say what is wrong.
    pub(crate) fn finish(mut self, answer: &[u8]) -> Result<(PeerHello, Channel), TrustError> {
        let theirs = read(&mut self.state, answer)?;
        agree(&self.ours, &theirs)?;
        let state = self.state.into_transport_mode().map_err(|_| TrustError::Unable)?;
        Ok((theirs, Channel::new(state)))
    }
}

impl fmt::Debug for Initiator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Initiator(..)")
    }
}

/// What the side that is connected to has after one message.
#[derive(Debug)]
pub(crate) struct Answer {
    /// Who asks; fresh only once a sealed message of the channel has opened.
    pub(crate) theirs: PeerHello,
    /// The second message.
    pub(crate) message: [u8; HELLO_BYTES],
    /// The channel that it opens.
    pub(crate) channel: Channel,
}

/// The side that is connected to.
pub(crate) fn respond(
    key: &ClusterKey,
    purpose: Purpose,
    ours: &PeerHello,
    hello: &[u8],
) -> Result<Answer, TrustError> {
    check_open(hello)?;
    let prologue = purpose.prologue(PeerHello::PROTOCOL);
    let mut state = builder(key, &prologue)?.build_responder().map_err(|_| TrustError::Unable)?;
    let theirs = read(&mut state, hello)?;
    let message = write(&mut state, ours)?;
    let state = state.into_transport_mode().map_err(|_| TrustError::Unable)?;
    Ok(Answer { theirs, message, channel: Channel::new(state) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::auth::channel::{SEAL_BYTES, SealError};

    fn hello(node: u16) -> PeerHello {
        PeerHello { node: NodeId(node), run: u32::from(node) * 7, planes: 1 }
    }

    #[test]
    fn two_nodes_with_one_key_meet_and_each_word_opens_once_and_in_its_place() {
        // If this broke, no cluster would form, or words could be said twice by somebody on the road.
        let key = ClusterKey::generate().unwrap();
        let (initiator, first) = Initiator::begin(&key, Purpose::Data(0), &hello(1)).unwrap();
        let mut answer = respond(&key, Purpose::Data(0), &hello(2), &first).unwrap();
        assert_eq!(answer.theirs, hello(1));
        let (theirs, mut channel) = initiator.finish(&answer.message).unwrap();
        assert_eq!(theirs, hello(2));
        let (mut sealed, mut plain) = ([0; 64], [0; 64]);
        let length = channel.seal(b"one", &mut sealed).unwrap();
        assert_eq!(length, 3 + SEAL_BYTES);
        assert!(!sealed[..length].windows(3).any(|part| part == b"one"));
        let mut altered = sealed;
        altered[1] ^= 1;
        assert_eq!(answer.channel.open(&altered[..length], &mut plain), Err(SealError));
        assert_eq!(answer.channel.open(&sealed[..length], &mut plain), Ok(3));
        assert_eq!(answer.channel.open(&sealed[..length], &mut plain), Err(SealError), "said again");
        assert_eq!(channel.open(&sealed[..length], &mut plain), Err(SealError), "sent back");
    }

    #[test]
    fn another_key_another_plane_and_another_release_are_refused_and_told_apart() {
        // If this broke, a stranger could join or read, or an operator would look for the wrong cause.
        let (key, other) = (ClusterKey::generate().unwrap(), ClusterKey::generate().unwrap());
        let (initiator, first) = Initiator::begin(&key, Purpose::Data(0), &hello(1)).unwrap();
        let refused = |key: &ClusterKey, plane, message: &[u8]| respond(key, plane, &hello(2), message).unwrap_err();
        assert_eq!(refused(&other, Purpose::Data(0), &first), TrustError::WrongKey);
        assert_eq!(refused(&key, Purpose::Control, &first), TrustError::WrongKey);
        assert_eq!(refused(&key, Purpose::Data(1), &first), TrustError::WrongKey);
        let mut newer = first;
        newer[1] += 1;
        let version = HelloError::Version { ours: PeerHello::PROTOCOL, theirs: PeerHello::PROTOCOL + 1 };
        assert_eq!(refused(&key, Purpose::Data(0), &newer), version.into());
        for message in [&b""[..], b"D", b"GET / HTTP/1.1", &first[..55], &[0; 56]] {
            assert_eq!(refused(&key, Purpose::Data(0), message), HelloError::NotOurs.into(), "{message:?}");
        }
        for index in 2..HELLO_BYTES {
            let mut altered = first;
            altered[index] ^= 0x40;
            assert_eq!(refused(&key, Purpose::Data(0), &altered), TrustError::WrongKey, "byte {index}");
        }
        // One who answers without the key is found out by the one who connects.
        let (_, forged) = Initiator::begin(&other, Purpose::Data(0), &hello(2)).unwrap();
        assert_eq!(initiator.finish(&forged).unwrap_err(), TrustError::WrongKey);
    }

    #[test]
    fn nodes_with_other_numbers_of_planes_both_know_why_they_part() {
        // If this broke, a node would look for names in a plane where they are not, or nobody would know what to set.
        let key = ClusterKey::generate().unwrap();
        let many = PeerHello { planes: 4, ..hello(1) };
        let (initiator, first) = Initiator::begin(&key, Purpose::Data(0), &many).unwrap();
        let answer = respond(&key, Purpose::Data(0), &hello(2), &first).unwrap();
        let here = agree(&hello(2), &answer.theirs).unwrap_err();
        let there = initiator.finish(&answer.message).unwrap_err();
        assert_eq!(here, TrustError::Planes { node: NodeId(1), ours: 1, theirs: 4 });
        assert_eq!(there, TrustError::Planes { node: NodeId(2), ours: 4, theirs: 1 });
        for (error, words) in [(here, "node 1 has 4 progress threads and"), (there, "node 2 has 1 progress thread and")]
        {
            assert!(error.to_string().contains(words), "{error}");
        }
        assert!(agree(&many, &PeerHello { planes: 4, ..hello(2) }).is_ok());
    }

    #[test]
    fn a_first_message_sent_again_gets_an_answer_and_opens_nothing() {
        // If this broke, who recorded one connection could take a node's place later.
        let key = ClusterKey::generate().unwrap();
        let (initiator, first) = Initiator::begin(&key, Purpose::Data(0), &hello(1)).unwrap();
        let answer = respond(&key, Purpose::Data(0), &hello(2), &first).unwrap();
        let (_, mut channel) = initiator.finish(&answer.message).unwrap();
        let (mut sealed, mut plain) = ([0; 64], [0; 64]);
        let length = channel.seal(b"welcome", &mut sealed).unwrap();
        let mut again = respond(&key, Purpose::Data(0), &hello(2), &first).unwrap();
        assert_ne!(again.message, answer.message);
        assert_eq!(again.channel.open(&sealed[..length], &mut plain), Err(SealError));
    }
}
