//! Authentication of nodes: two nodes prove to each other that they belong to the cluster before either accepts a
//! message.
//!
//! The handshake is that of `ddss-auth` under the cluster key, and the identity is a [`PeerHello`]. The data path carries
//! its two messages as the private data of a connection, the control plane as the first bytes of a stream.

use ddss_admin::{ClusterKey, Release};
use ddss_auth::Context;
use ddss_core::{HelloError, NodeId, PeerHello};

pub(crate) use ddss_auth::{Channel, HELLO_BYTES, SEAL_BYTES};

const _: () = assert!(PeerHello::BYTES == ddss_auth::IDENTITY_BYTES && ClusterKey::BYTES == ddss_auth::KEY_BYTES);
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
    fn context(self) -> Context {
        let mut name = match self {
            Purpose::Data(_) => *b"DDSS  data",
            Purpose::Control => *b"DDSS  ctrl",
        };
        if let Purpose::Data(shard) = self {
            name[4] += shard;
        }
        Context { name, release: PeerHello::HANDSHAKE }
    }
}

/// Failure of a handshake. Its text is for this node: the peer gets [`public_reason`](Self::public_reason).
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum HandshakeError {
    /// The message is not from DDSS.
    #[error(transparent)]
    Hello(#[from] HelloError),
    /// The peer begins another handshake.
    #[error(
        "the peer begins handshake {theirs}, and this node of release {Release} handshake {ours}: \
         upgrade by releases that have one in common",
        ours = PeerHello::HANDSHAKE
    )]
    OtherHandshake {
        /// Handshake of the peer.
        theirs: u8,
    },
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

impl From<ddss_auth::HandshakeError> for HandshakeError {
    fn from(error: ddss_auth::HandshakeError) -> Self {
        use ddss_auth::HandshakeError::{NotOurs, OtherRelease, WrongKey};
        match error {
            NotOurs => HelloError::NotOurs.into(),
            OtherRelease { theirs, .. } => Self::OtherHandshake { theirs },
            WrongKey => Self::WrongKey,
            _ => Self::Unable,
        }
    }
}

impl HandshakeError {
    /// Returns what a peer may read that has not proved the key: no release of this node, and no commit.
    pub(crate) fn public_reason(&self) -> String {
        match self {
            Self::OtherHandshake { theirs } => {
                format!("the peer begins handshake {theirs}, and this node handshake {}", PeerHello::HANDSHAKE)
            }
            other => other.to_string(),
        }
    }
}

/// Checks that two authenticated nodes can work together: both need the same number of shards.
pub(crate) fn agree(ours: &PeerHello, theirs: &PeerHello) -> Result<(), HandshakeError> {
    let (node, ours, theirs) = (theirs.node, ours.shards, theirs.shards);
    if ours == theirs { Ok(()) } else { Err(HandshakeError::ShardCount { node, ours, theirs }) }
}

/// Connecting side of a handshake.
#[derive(Debug)]
pub(crate) struct Initiator {
    handshake: ddss_auth::Initiator,
    ours: PeerHello,
}

impl Initiator {
    /// Starts a handshake, and returns its first message.
    pub(crate) fn begin(
        key: &ClusterKey,
        purpose: Purpose,
        ours: &PeerHello,
    ) -> Result<(Self, [u8; HELLO_BYTES]), HandshakeError> {
        let (handshake, message) = ddss_auth::Initiator::begin(key.bytes(), &purpose.context(), &ours.encode())?;
        Ok((Self { handshake, ours: *ours }, message))
    }

    /// Processes the answer. Returns the peer's identity and a channel whose messages are fresh. Checks the agreement
    /// here; the responder checks it too ([`agree`]) but answers first, so that both sides can report a mismatch.
    pub(crate) fn finish(self, answer: &[u8]) -> Result<(PeerHello, Channel), HandshakeError> {
        let (theirs, channel) = self.handshake.finish(answer)?;
        let theirs = PeerHello::decode(&theirs)?;
        agree(&self.ours, &theirs)?;
        Ok((theirs, channel))
    }
}

/// Makes the answer that refuses a hello on the control plane; the data plane sends a text. What is no hello gets no answer.
pub(crate) fn refusal(error: &HandshakeError) -> Option<[u8; HELLO_BYTES]> {
    let is_hello = matches!(error, HandshakeError::OtherHandshake { .. } | HandshakeError::WrongKey);
    is_hello.then(|| ddss_auth::refusal(PeerHello::HANDSHAKE))
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
    let ddss_auth::Answer { theirs, message, channel, .. } =
        ddss_auth::respond(key.bytes(), &purpose.context(), &ours.encode(), hello)?;
    Ok(Answer { theirs: PeerHello::decode(&theirs)?, message, channel })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hello(node: u16) -> PeerHello {
        PeerHello { node: NodeId(node), run: u32::from(node) * 7, shards: 1 }
    }

    #[test]
    fn wrong_key_wrong_shard_and_wrong_release_are_refused_with_distinct_errors() {
        // If this broke, an unauthenticated peer could join or read, or an operator would look for the wrong cause.
        let (key, other) = (ClusterKey::generate().unwrap(), ClusterKey::generate().unwrap());
        let (_, first) = Initiator::begin(&key, Purpose::Data(0), &hello(1)).unwrap();
        let refused =
            |key: &ClusterKey, purpose, message: &[u8]| respond(key, purpose, &hello(2), message).unwrap_err();
        assert_eq!(respond(&key, Purpose::Data(0), &hello(2), &first).unwrap().theirs, hello(1));
        assert_eq!(refused(&other, Purpose::Data(0), &first), HandshakeError::WrongKey);
        assert_eq!(refused(&key, Purpose::Control, &first), HandshakeError::WrongKey);
        assert_eq!(refused(&key, Purpose::Data(1), &first), HandshakeError::WrongKey);
        let mut newer = first;
        newer[1] += 1;
        let theirs = PeerHello::HANDSHAKE + 1;
        let other = HandshakeError::OtherHandshake { theirs };
        assert_eq!(refused(&key, Purpose::Data(0), &newer), other);
        // The connecting side learns it too. The other side learns no release.
        let (initiator, _) = Initiator::begin(&key, Purpose::Control, &hello(1)).unwrap();
        let error = initiator.finish(&ddss_auth::refusal(theirs)).unwrap_err();
        let (text, public) = (error.to_string(), error.public_reason());
        assert!(text.contains(&Release.to_string()) && !public.contains("release"), "{text}, {public}");
        for text in [text, public] {
            assert!(text.contains("begins handshake 17") && text.contains("handshake 16"), "{text}");
        }
        assert_eq!(refused(&key, Purpose::Data(0), b"GET / HTTP/1.1"), HelloError::NotOurs.into());
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
}
