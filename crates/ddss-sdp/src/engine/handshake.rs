//! Hello, answer, and the terms of both sides.

use std::net::IpAddr;

use crate::codec::{HELLO_ACK_BYTES, HELLO_BYTES, Hello, HelloAck};
use crate::error::SdpError;
use crate::limits::{
    BUFFERS_DEFAULT, BUFFERS_MAX, BUFFERS_MIN, MESSAGE_BYTES_DEFAULT, MESSAGE_BYTES_MAX, MESSAGE_BYTES_MIN,
    RING_BYTES_DEFAULT,
};
use crate::plan::Plan;

/// Settings of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamConfig {
    /// Private buffers of each direction.
    pub buffers: u16,
    /// Bytes of a private receive buffer at first, header included.
    pub buffer_bytes: u32,
    /// Bytes of a private buffer at most: the memory that each one takes.
    pub buffer_bytes_max: u32,
    /// Bytes of an integrated buffer.
    pub ring_bytes: usize,
    /// True if small messages never wait for an acknowledgement.
    pub no_delay: bool,
}

impl Default for StreamConfig {
    fn default() -> Self {
        StreamConfig {
            buffers: BUFFERS_DEFAULT,
            buffer_bytes: MESSAGE_BYTES_DEFAULT,
            buffer_bytes_max: MESSAGE_BYTES_MAX,
            ring_bytes: RING_BYTES_DEFAULT,
            no_delay: false,
        }
    }
}

impl StreamConfig {
    /// Checks the settings.
    pub(crate) fn check(&self) -> Result<(), SdpError> {
        let wrong = |name, value| Err(SdpError::Config(name, value));
        if !(BUFFERS_MIN..=BUFFERS_MAX).contains(&self.buffers) {
            return wrong("buffers", usize::from(self.buffers));
        }
        if !(MESSAGE_BYTES_MIN..=MESSAGE_BYTES_MAX).contains(&self.buffer_bytes) {
            return wrong("buffer_bytes", self.buffer_bytes as usize);
        }
        if !(self.buffer_bytes..=MESSAGE_BYTES_MAX).contains(&self.buffer_bytes_max) {
            return wrong("buffer_bytes_max", self.buffer_bytes_max as usize);
        }
        Ok(())
    }
}

/// Addresses in a hello.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Addresses {
    /// Address of the connecting side.
    pub source: IpAddr,
    /// Address of the accepting side.
    pub destination: IpAddr,
    /// Port of the connecting side.
    pub port: u16,
}

/// Parameters that both sides agreed on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Terms {
    /// Plan of both sides.
    pub plan: Plan,
    /// Receive buffers of the peer: the first credits.
    pub peer_buffers: u16,
    /// Bytes of a receive buffer of the peer.
    pub peer_receive_bytes: u32,
}

/// Returns the private data of a connection request.
///
/// # Errors
/// A setting is outside its limits.
pub fn connect(config: &StreamConfig, plan: Plan, addresses: Addresses) -> Result<[u8; HELLO_BYTES], SdpError> {
    config.check()?;
    let hello = Hello {
        bufs: config.buffers,
        enhanced: plan.is_enhanced(),
        max_adverts: 1,
        desired_bytes: config.buffer_bytes,
        receive_bytes: config.buffer_bytes,
        port: addresses.port,
        source: addresses.source,
        destination: addresses.destination,
    };
    Ok(hello.encode())
}

/// Reads a connection request; returns the terms and the private data of the answer.
///
/// # Errors
/// The request is malformed, or a setting is outside its limits.
pub fn accept(config: &StreamConfig, plan: Plan, hello: &[u8]) -> Result<(Terms, [u8; HELLO_ACK_BYTES]), SdpError> {
    config.check()?;
    let hello = Hello::decode(hello)?;
    let plan = plan.with_peer(hello.enhanced);
    let terms = Terms::new(plan, hello.bufs, hello.receive_bytes);
    let ack = HelloAck { bufs: config.buffers, enhanced: plan.is_enhanced(), receive_bytes: config.buffer_bytes };
    Ok((terms, ack.encode()))
}

/// Reads the answer to a connection request that was made with `plan`; returns the terms.
///
/// # Errors
/// The answer is malformed.
pub fn finish_connect(plan: Plan, ack: &[u8]) -> Result<Terms, SdpError> {
    let ack = HelloAck::decode(ack)?;
    if ack.enhanced && !plan.is_enhanced() {
        return Err(SdpError::HelloField("capability that was not offered", 1));
    }
    Ok(Terms::new(plan.with_peer(ack.enhanced), ack.bufs, ack.receive_bytes))
}

impl Terms {
    fn new(plan: Plan, peer_buffers: u16, peer_receive_bytes: u32) -> Terms {
        Terms { plan, peer_buffers, peer_receive_bytes: peer_receive_bytes.min(MESSAGE_BYTES_MAX) }
    }
}
