//! The hello with which two nodes meet.

use crate::NodeId;
use crate::limits::{HELLO_BYTES_MAX, NODES_MAX};
use crate::wire::Reader;

/// What a node says of itself while a connection is made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PeerHello {
    /// Which node.
    pub node: NodeId,
    /// Which run of its daemon.
    pub incarnation: u64,
}

impl PeerHello {
    /// The version of everything that peers say to each other.
    pub const PROTOCOL: u16 = 3;
    const MAGIC: [u8; 8] = *b"DDSSpeer";
    const BYTES: usize = 20;

    /// As private data of the connection.
    pub fn encode(&self) -> [u8; Self::BYTES] {
        let mut out = [0; Self::BYTES];
        out[..8].copy_from_slice(&Self::MAGIC);
        out[8..10].copy_from_slice(&Self::PROTOCOL.to_le_bytes());
        out[10..12].copy_from_slice(&self.node.0.to_le_bytes());
        out[12..20].copy_from_slice(&self.incarnation.to_le_bytes());
        out
    }

    /// Reads what the other side said; the error says what to tell the operator.
    pub fn decode(bytes: &[u8]) -> Result<Self, HelloError> {
        let mut input = Reader(bytes);
        let magic: [u8; 8] = input.array().map_err(|_| HelloError::NotOurs)?;
        if magic != Self::MAGIC {
            return Err(HelloError::NotOurs);
        }
        let theirs = u16::from_le_bytes(input.array().map_err(|_| HelloError::NotOurs)?);
        if theirs != Self::PROTOCOL {
            return Err(HelloError::Version { ours: Self::PROTOCOL, theirs });
        }
        let node = NodeId(u16::from_le_bytes(input.array().map_err(|_| HelloError::NotOurs)?));
        let incarnation = input.u64().map_err(|_| HelloError::NotOurs)?;
        if node == NodeId::NOBODY || node.0 as usize > NODES_MAX {
            return Err(HelloError::BadNode(node));
        }
        Ok(Self { node, incarnation })
    }
}

const _: () = assert!(PeerHello::BYTES <= HELLO_BYTES_MAX);

/// Why a hello was not accepted.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HelloError {
    /// Not a DDSS node.
    #[error("the other side is not a ddssd")]
    NotOurs,
    /// Another protocol.
    #[error("the other ddssd speaks peer protocol {theirs}, this one {ours}: run the same release on all nodes")]
    Version {
        /// What we speak.
        ours: u16,
        /// What they speak.
        theirs: u16,
    },
    /// No such node can be.
    #[error("the other ddssd calls itself {0}, which no node can be")]
    BadNode(NodeId),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stranger_and_an_old_release_are_told_apart() {
        // If this broke, an operator would look for the wrong cause.
        let hello = PeerHello { node: NodeId(2), incarnation: 9 };
        assert_eq!(PeerHello::decode(&hello.encode()), Ok(hello));
        assert_eq!(PeerHello::decode(b"GET / HTTP/1.1"), Err(HelloError::NotOurs));
        let mut old = hello.encode();
        old[8] = 99;
        assert_eq!(PeerHello::decode(&old), Err(HelloError::Version { ours: PeerHello::PROTOCOL, theirs: 99 }));
        let nobody = PeerHello { node: NodeId(0), ..hello };
        assert_eq!(PeerHello::decode(&nobody.encode()), Err(HelloError::BadNode(NodeId(0))));
    }
}
