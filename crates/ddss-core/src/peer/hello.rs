//! Hello of two nodes in the handshake.

use crate::NodeId;
use crate::limits::NODES_MAX;

/// Identity of a node in the handshake: six bytes, sealed, since the private data of a connection is narrow.
///
/// ```text
///  0       10 11         15 16                 47
/// +----------+-------------+---------------------+
/// |   node   | shards - 1  |        run          |
/// +----------+-------------+---------------------+
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PeerHello {
    /// Id of the node.
    pub node: NodeId,
    /// Run of its daemon: a random number.
    pub run: u32,
    /// Number of shards of its daemon; equal on all nodes of a cluster.
    pub shards: u8,
}

impl PeerHello {
    /// Version of the handshake, which both sides need alike. What a node speaks behind it is a range of protocols.
    pub const HANDSHAKE: u8 = 16;
    /// Bytes of an encoded hello.
    pub const BYTES: usize = 6;
    /// Bits of a node id; the bits above are the number of shards.
    const NODE_BITS: u32 = 11;

    /// Encodes the hello, to be sealed.
    pub fn encode(&self) -> [u8; Self::BYTES] {
        let mut out = [0; Self::BYTES];
        let word = self.node.0 | u16::from(self.shards.max(1) - 1) << Self::NODE_BITS;
        out[..2].copy_from_slice(&word.to_le_bytes());
        out[2..].copy_from_slice(&self.run.to_le_bytes());
        out
    }

    /// Decodes the peer's hello after it was opened.
    pub fn decode(bytes: &[u8]) -> Result<Self, HelloError> {
        let bytes: [u8; Self::BYTES] = bytes.try_into().map_err(|_| HelloError::NotOurs)?;
        let [low, high, run @ ..] = bytes;
        let word = u16::from_le_bytes([low, high]);
        let node = NodeId(word & ((1 << Self::NODE_BITS) - 1));
        if node.0 as usize > NODES_MAX {
            return Err(HelloError::BadNode(node));
        }
        Ok(Self { node, run: u32::from_le_bytes(run), shards: (word >> Self::NODE_BITS) as u8 + 1 })
    }
}

/// Reason why a hello is refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HelloError {
    /// The peer is no DDSS node.
    #[error("the peer is not a ddssd")]
    NotOurs,
    /// The node id is invalid.
    #[error("the peer claims to be {0}, which is no valid node id")]
    BadNode(NodeId),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hello_round_trips() {
        // If this broke, a node would be taken for another, or a restart for the run before.
        let hello = PeerHello { node: NodeId(2), run: 0x0102_0304, shards: 1 };
        assert_eq!(hello.encode(), [2, 0, 4, 3, 2, 1]);
        assert_eq!(PeerHello::decode(&hello.encode()), Ok(hello));
        let many = PeerHello { node: NodeId(1024), shards: 16, ..hello };
        assert_eq!(PeerHello::decode(&many.encode()), Ok(many));
        assert_eq!(PeerHello::decode(&[1; 5]), Err(HelloError::NotOurs));
        let beyond = PeerHello { node: NodeId(1025), ..hello };
        assert_eq!(PeerHello::decode(&beyond.encode()), Err(HelloError::BadNode(NodeId(1025))));
    }
}
