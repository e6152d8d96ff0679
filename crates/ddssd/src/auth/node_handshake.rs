//! Handshake of two messages: two nodes prove to each other that they have the cluster key, and exchange their
//! identities.
//!
//! The protocol is Noise, pattern NNpsk0. The key is mixed in first, so that a message of an unauthenticated peer is
//! refused before any costly arithmetic. Both sides send a fresh Diffie-Hellman share, so that recorded traffic stays
//! sealed if the key leaks later. Both messages have the same fixed size:
//!
//! ```text
//!   0     1          2                 34                        40      56
//!  +-----+----------+-----------------+-------------------------+-------+
//!  | 'D' | protocol | ephemeral share | node, shards, run       |  tag  |
//!  +-----+----------+-----------------+-------------------------+-------+
//!                                      \_ encrypted under the key _/
//! ```
//!
//! 56 bytes is the smallest private data of any fabric (an RDMA connection manager's request over InfiniBand). The
//! first two bytes are in the clear, so that another release can be told from another key. They are bound into the
//! proof, as is the purpose of the connection, so that a handshake of one shard is invalid on another.
//!
//! The responder cannot know yet if the first message is a replay: the first sealed message that opens proves that it
//! is fresh.

use super::channel::Channel;
use super::cipher::Primitives;
use ddss_admin::ClusterKey;
use ddss_core::{HelloError, NodeId, PeerHello};
use snow::{Builder, HandshakeState};
use std::fmt;

/// Bytes of each of the two messages.
pub(crate) const HELLO_BYTES: usize = CLEAR_BYTES + SHARE_BYTES + PeerHello::BYTES + TAG_BYTES;

const PATTERN: &str = "Noise_NNpsk0_25519_AESGCM_BLAKE2s";
const CLEAR_BYTES: usize = 2;
const SHARE_BYTES: usize = 32;
const TAG_BYTES: usize = 16;
const MARK: u8 = b'D';

const _: () = assert!(HELLO_BYTES == 56);
const _: () = assert!(HELLO_BYTES <= ddss_core::limits::HELLO_BYTES_MAX);

/// Purpose of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Purpose {
    /// Memory and engine messages of one shard, through a fabric.
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
        if let Purpose::Data(shard) = self {
            out[4] += shard;
        }
        (out[10], out[11]) = (MARK, protocol);
        out
    }
}

/// Failure of a handshake. Both sides see the text, so it reveals nothing to an unauthenticated peer.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum HandshakeError {
    /// The message is not from DDSS, or from another release.
    #[error(transparent)]
    Hello(#[from] HelloError),
    /// The peer has another key, or none.
    #[error("another cluster key: use the key of this cluster on all its nodes (ddss cluster token)")]
    WrongKey,
    /// The peer has another number of shards.
    #[error(
        "{node} has {theirs} progress thread{} and this one {ours}: all nodes of a cluster need the same number (progress-threads)",
        if *theirs == 1 { "" } else { "s" }
    )]
    ShardCount {
        /// Peer.
        node: NodeId,
        /// Shards of this node.
        ours: u8,
        /// Shards of the peer.
        theirs: u8,
    },
    /// Another node answers at the address.
    #[error("{0} answers in its place")]
    WrongNode(NodeId),
    /// The system has no random bytes, or the cryptography failed.
    #[error("this node cannot make a handshake: no random bytes, or a failure of the cryptography")]
    Unable,
}

fn builder<'a>(key: &'a ClusterKey, prologue: &'a [u8]) -> Result<Builder<'a>, HandshakeError> {
    let pattern = PATTERN.parse().map_err(|_| HandshakeError::Unable)?;
    let builder = Builder::with_resolver(pattern, Box::new(Primitives))
        .psk(0, key.bytes())
        .map_err(|_| HandshakeError::Unable)?;
    builder.prologue(prologue).map_err(|_| HandshakeError::Unable)
}

fn write(state: &mut HandshakeState, ours: &PeerHello) -> Result<[u8; HELLO_BYTES], HandshakeError> {
    let mut out = [0; HELLO_BYTES];
    (out[0], out[1]) = (MARK, PeerHello::PROTOCOL);
    let length = state.write_message(&ours.encode(), &mut out[CLEAR_BYTES..]).map_err(|_| HandshakeError::Unable)?;
    assert_eq!(length, HELLO_BYTES - CLEAR_BYTES, "both messages have one size");
    Ok(out)
}

fn read(state: &mut HandshakeState, theirs: &[u8]) -> Result<PeerHello, HandshakeError> {
    check_clear_part(theirs)?;
    let mut plain = [0; HELLO_BYTES];
    let length = state.read_message(&theirs[CLEAR_BYTES..], &mut plain).map_err(|_| HandshakeError::WrongKey)?;
    Ok(PeerHello::decode(&plain[..length])?)
}

/// Checks the part of a message that needs no key.
fn check_clear_part(theirs: &[u8]) -> Result<(), HandshakeError> {
    match *theirs {
        [MARK, theirs, ..] if theirs != PeerHello::PROTOCOL => {
            Err(HelloError::Version { ours: PeerHello::PROTOCOL, theirs }.into())
        }
        [MARK, ..] if theirs.len() == HELLO_BYTES => Ok(()),
        _ => Err(HelloError::NotOurs.into()),
    }
}

/// Checks that two authenticated nodes can work together: both need the same number of shards.
pub(crate) fn agree(ours: &PeerHello, theirs: &PeerHello) -> Result<(), HandshakeError> {
    let (node, ours, theirs) = (theirs.node, ours.shards, theirs.shards);
    if ours == theirs { Ok(()) } else { Err(HandshakeError::ShardCount { node, ours, theirs }) }
}

/// Connecting side of a handshake.
pub(crate) struct Initiator {
    state: Box<HandshakeState>,
    ours: PeerHello,
}

impl Initiator {
    /// Starts a handshake, and returns its first message.
    pub(crate) fn begin(
        key: &ClusterKey,
        purpose: Purpose,
        ours: &PeerHello,
    ) -> Result<(Self, [u8; HELLO_BYTES]), HandshakeError> {
        let prologue = purpose.prologue(PeerHello::PROTOCOL);
        let mut state = builder(key, &prologue)?.build_initiator().map_err(|_| HandshakeError::Unable)?;
        let message = write(&mut state, ours)?;
        Ok((Self { state: Box::new(state), ours: *ours }, message))
    }

    /// Processes the answer. Returns the peer's identity and a channel whose messages are fresh. Checks the agreement
    /// here; the responder checks it too ([`agree`]) but answers first, so that both sides can report a mismatch.
    pub(crate) fn finish(mut self, answer: &[u8]) -> Result<(PeerHello, Channel), HandshakeError> {
        let theirs = read(&mut self.state, answer)?;
        agree(&self.ours, &theirs)?;
        let state = self.state.into_transport_mode().map_err(|_| HandshakeError::Unable)?;
        Ok((theirs, Channel::new(state)))
    }
}

impl fmt::Debug for Initiator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Initiator(..)")
    }
}

/// Result of the responder after one message.
#[derive(Debug)]
pub(crate) struct Answer {
    /// Peer's identity; fresh only after a sealed message of the channel has opened.
    pub(crate) theirs: PeerHello,
    /// Second message of the handshake.
    pub(crate) message: [u8; HELLO_BYTES],
    /// Channel to the peer.
    pub(crate) channel: Channel,
}

/// Answers a handshake on the accepting side.
pub(crate) fn respond(
    key: &ClusterKey,
    purpose: Purpose,
    ours: &PeerHello,
    hello: &[u8],
) -> Result<Answer, HandshakeError> {
    check_clear_part(hello)?;
    let prologue = purpose.prologue(PeerHello::PROTOCOL);
    let mut state = builder(key, &prologue)?.build_responder().map_err(|_| HandshakeError::Unable)?;
    let theirs = read(&mut state, hello)?;
    let message = write(&mut state, ours)?;
    let state = state.into_transport_mode().map_err(|_| HandshakeError::Unable)?;
    Ok(Answer { theirs, message, channel: Channel::new(state) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::auth::channel::{SEAL_BYTES, SealError};

    fn hello(node: u16) -> PeerHello {
        PeerHello { node: NodeId(node), run: u32::from(node) * 7, shards: 1 }
    }

    #[test]
    fn nodes_with_one_key_connect_and_each_message_opens_once_in_order() {
        // If this broke, no cluster would form, or an attacker could replay messages.
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
    fn wrong_key_wrong_shard_and_wrong_release_are_refused_with_distinct_errors() {
        // If this broke, an unauthenticated peer could join or read, or an operator would look for the wrong cause.
        let (key, other) = (ClusterKey::generate().unwrap(), ClusterKey::generate().unwrap());
        let (initiator, first) = Initiator::begin(&key, Purpose::Data(0), &hello(1)).unwrap();
        let refused =
            |key: &ClusterKey, purpose, message: &[u8]| respond(key, purpose, &hello(2), message).unwrap_err();
        assert_eq!(refused(&other, Purpose::Data(0), &first), HandshakeError::WrongKey);
        assert_eq!(refused(&key, Purpose::Control, &first), HandshakeError::WrongKey);
        assert_eq!(refused(&key, Purpose::Data(1), &first), HandshakeError::WrongKey);
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
            assert_eq!(refused(&key, Purpose::Data(0), &altered), HandshakeError::WrongKey, "byte {index}");
        }
        // The connecting side detects a responder without the key.
        let (_, forged) = Initiator::begin(&other, Purpose::Data(0), &hello(2)).unwrap();
        assert_eq!(initiator.finish(&forged).unwrap_err(), HandshakeError::WrongKey);
    }

    #[test]
    fn different_shard_counts_are_reported_on_both_sides() {
        // If this broke, a node would look for names in the wrong shard, or no log would say which setting to change.
        let key = ClusterKey::generate().unwrap();
        let many = PeerHello { shards: 4, ..hello(1) };
        let (initiator, first) = Initiator::begin(&key, Purpose::Data(0), &many).unwrap();
        let answer = respond(&key, Purpose::Data(0), &hello(2), &first).unwrap();
        let here = agree(&hello(2), &answer.theirs).unwrap_err();
        let there = initiator.finish(&answer.message).unwrap_err();
        assert_eq!(here, HandshakeError::ShardCount { node: NodeId(1), ours: 1, theirs: 4 });
        assert_eq!(there, HandshakeError::ShardCount { node: NodeId(2), ours: 4, theirs: 1 });
        for (error, words) in [(here, "node 1 has 4 progress threads and"), (there, "node 2 has 1 progress thread and")]
        {
            assert!(error.to_string().contains(words), "{error}");
        }
        assert!(agree(&many, &PeerHello { shards: 4, ..hello(2) }).is_ok());
    }

    #[test]
    fn replayed_hello_opens_no_channel() {
        // If this broke, an attacker that recorded one connection could take a node's place later.
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
