//! Who belongs to the cluster, and how two nodes prove it to each other before either believes a word.
//!
//! One key for the cluster ([`ClusterKey`]), Noise with that key mixed in first ([`handshake`]). The data plane
//! carries the two messages of the handshake as the private data of a connection, the control plane as the first
//! bytes of a stream; what follows is sealed ([`Channel`]).

mod channel;
mod cipher;
mod handshake;
mod key;

pub(crate) use channel::{Channel, SEAL_BYTES};
pub(crate) use handshake::{Answer, HELLO_BYTES, Initiator, Purpose, TrustError, agree, respond};
pub use key::{ClusterKey, KeyError};
