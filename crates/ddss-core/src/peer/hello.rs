//! The hello with which two nodes meet.

use crate::NodeId;
use crate::limits::NODES_MAX;

/// What a node says of itself while a connection is made: six bytes, sealed inside the handshake, since the private
/// data of a connection is narrow.
///
/// ```text
///  0       10 11         15 16                 47
/// +----------+-------------+---------------------+
/// |   node   | planes - 1  |        run          |
/// +----------+-------------+---------------------+
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PeerHello {
    /// Which node.
    pub node: NodeId,
    /// Which run of its daemon: a random number.
    pub run: u32,
    /// How many planes its daemon has. All nodes of a cluster have as many.
    pub planes: u8,
}

impl PeerHello {
    /// The version of everything that peers say to each other, the handshake included.
    pub const PROTOCOL: u8 = 7;
    /// Bytes of an encoded one.
    pub const BYTES: usize = 6;
    /// Bits of a node's number; those above it are for the planes.
    const NODE_BITS: u32 = 11;

    /// As bytes, to be sealed.
    pub fn encode(&self) -> [u8; Self::BYTES] {
        let mut out = [0; Self::BYTES];
        let word = self.node.0 | u16::from(self.planes.max(1) - 1) << Self::NODE_BITS;
        out[..2].copy_from_slice(&word.to_le_bytes());
        out[2..].copy_from_slice(&self.run.to_le_bytes());
        out
    }

    /// Reads what the other side said, after it was opened.
    pub fn decode(bytes: &[u8]) -> Result<Self, HelloError> {
        let bytes: [u8; Self::BYTES] = bytes.try_into().map_err(|_| HelloError::NotOurs)?;
        let [low, high, run @ ..] = bytes;
        let word = u16::from_le_bytes([low, high]);
        let node = NodeId(word & ((1 << Self::NODE_BITS) - 1));
        if node.0 as usize > NODES_MAX {
            return Err(HelloError::BadNode(node));
        }
        Ok(Self { node, run: u32::from_le_bytes(run), planes: (word >> Self::NODE_BITS) as u8 + 1 })
    }
}

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
        ours: u8,
        /// What they speak.
        theirs: u8,
    },
    /// No such node can be.
    #[error("the other ddssd calls itself {0}, which no node can be")]
    BadNode(NodeId),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hello_says_which_node_and_which_run() {
        // If this broke, a node would be taken for another, or a restart for the run before.
        let hello = PeerHello { node: NodeId(2), run: 0x0102_0304, planes: 1 };
        assert_eq!(hello.encode(), [2, 0, 4, 3, 2, 1]);
        assert_eq!(PeerHello::decode(&hello.encode()), Ok(hello));
        let many = PeerHello { node: NodeId(1024), planes: 16, ..hello };
        assert_eq!(PeerHello::decode(&many.encode()), Ok(many));
        assert_eq!(PeerHello::decode(&[1; 5]), Err(HelloError::NotOurs));
        let beyond = PeerHello { node: NodeId(1025), ..hello };
        assert_eq!(PeerHello::decode(&beyond.encode()), Err(HelloError::BadNode(NodeId(1025))));
    }
}
