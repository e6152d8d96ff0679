//! Seal of a connection: what its owner gives the fabric after a handshake, so that no byte travels in the clear.

/// Bytes of the tag of a sealed frame.
pub const TAG_BYTES: usize = 16;

/// Seals a frame that is sent: the clear part, and the body in place.
pub(crate) type Seal = Box<dyn FnMut(&[u8], &mut [u8]) -> [u8; TAG_BYTES] + Send>;
/// Opens a frame that arrived: the clear part, the body in place, and its tag.
pub(crate) type Open = Box<dyn FnMut(&[u8], &mut [u8], &[u8; TAG_BYTES]) -> bool + Send>;

/// Ciphers of one connection, one for each direction. The fabric calls each once a frame, in the order of the frames; they
/// count, so that no frame opens twice or in another place.
pub struct Sealing {
    pub(crate) seal: Seal,
    pub(crate) open: Open,
}

impl Sealing {
    /// Creates the ciphers of a connection. `seal` encrypts the body in place and returns the tag over the clear part and the
    /// body. `open` returns false for a frame that is not the next one of the peer, and then decrypts nothing.
    pub fn new(
        seal: impl FnMut(&[u8], &mut [u8]) -> [u8; TAG_BYTES] + Send + 'static,
        open: impl FnMut(&[u8], &mut [u8], &[u8; TAG_BYTES]) -> bool + Send + 'static,
    ) -> Self {
        Self { seal: Box::new(seal), open: Box::new(open) }
    }
}

impl std::fmt::Debug for Sealing {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Sealing(..)")
    }
}
