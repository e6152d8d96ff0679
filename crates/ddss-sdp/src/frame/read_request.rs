//! Read requests of RDMAP.

/// Bytes of the body of a read request.
pub(crate) const REQUEST_BYTES: usize = 28;

/// Request to read the memory of the peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadRequest {
    /// Key of the reader's memory.
    pub sink_key: u32,
    /// Place of the first byte in the reader's memory.
    pub sink_offset: u64,
    /// Bytes to read.
    pub len: u32,
    /// Key of the memory to read.
    pub source_key: u32,
    /// Address of the first byte to read.
    pub source_address: u64,
}

impl ReadRequest {
    /// Encodes the body of the request.
    #[must_use]
    pub fn encode(&self) -> [u8; REQUEST_BYTES] {
        let mut out = [0; REQUEST_BYTES];
        out[..4].copy_from_slice(&self.sink_key.to_be_bytes());
        out[4..12].copy_from_slice(&self.sink_offset.to_be_bytes());
        out[12..16].copy_from_slice(&self.len.to_be_bytes());
        out[16..20].copy_from_slice(&self.source_key.to_be_bytes());
        out[20..].copy_from_slice(&self.source_address.to_be_bytes());
        out
    }

    /// Decodes the body of a request. Every field can have every value.
    #[must_use]
    pub fn decode(body: &[u8; REQUEST_BYTES]) -> ReadRequest {
        let word = |at| body[at..].first_chunk().map_or(0, |bytes| u32::from_be_bytes(*bytes));
        let long = |at| body[at..].first_chunk().map_or(0, |bytes| u64::from_be_bytes(*bytes));
        ReadRequest {
            sink_key: word(0),
            sink_offset: long(4),
            len: word(12),
            source_key: word(16),
            source_address: long(20),
        }
    }
}
