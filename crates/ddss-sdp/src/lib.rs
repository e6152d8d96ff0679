//! Sockets Direct Protocol: a byte stream over a fabric of messages.
//!
//! The crate holds the codec and the engine of one stream. It performs no I/O, reads no clock, starts no thread and
//! depends on no other crate of DDSS: bytes and messages go in, messages and bytes come out.
//!
//! - [`Plan::of`] chooses from a fabric's [`Capabilities`] how a stream moves its bytes; [`Plan::basic`] is the way of
//!   the specification. The hello and its answer ([`connect`], [`accept`], [`finish_connect`]) settle on a common plan.
//! - [`BasicStream`] has private buffers and credits, and can read a peer's memory in place.
//! - [`EnhancedStream`] shares one ring with the frames of the fabric. It copies around the gaps for markers, appends
//!   small writes to the last frame, and leaves flow control to the receiver.
//! - [`CopyLedger`] counts the bytes that user code copies: two a stream byte on each side for basic over a fabric in
//!   software, one for enhanced.
//!
//! Only FreeBSD speaks the protocol today, over InfiniBand. No other implementation over iWARP is known.
//!
//! Limits of this implementation: the pipelined mode is never offered, memory to write to is never advertised and such
//! advertisements of the peer are ignored, and a request to suspend the connection is an error. What a peer sent before
//! a reset and was not read is lost. Urgent data is never sent, and that of the peer is data of the stream.
//!
//! ```
//! use ddss_sdp::{Addresses, EnhancedStream, Framing, Plan, StreamConfig, accept, connect, finish_connect};
//! # use ddss_sdp::{Capabilities, Place};
//! # fn main() -> Result<(), ddss_sdp::SdpError> {
//! # let fabric = Capabilities {
//! #     checksum: Place::Processor,
//! #     demultiplexing: Place::Kernel,
//! #     markers: Place::Software,
//! #     segmentation: Place::Kernel,
//! #     send_queue: Place::Software,
//! #     flow_control: Place::Kernel,
//! #     remote_reads: Place::Software,
//! # };
//! let (config, plan) = (StreamConfig::default(), Plan::of(&fabric));
//! let addresses = Addresses { source: [10, 0, 0, 1].into(), destination: [10, 0, 0, 2].into(), port: 40_000 };
//! let hello = connect(&config, plan, addresses)?;
//! let (there, ack) = accept(&config, plan, &hello)?;
//! let here = finish_connect(plan, &ack)?;
//!
//! let framing = Framing { markers: true, checksum: None };
//! let mut client = EnhancedStream::new(&config, &here, framing, framing)?;
//! let mut server = EnhancedStream::new(&config, &there, framing, framing)?;
//! client.write(b"hello ")?;
//! client.write(b"world")?;
//!
//! let bytes = client.outgoing().concat();
//! client.sent(bytes.len());
//! server.receive_room()[..bytes.len()].copy_from_slice(&bytes);
//! server.received(bytes.len())?;
//!
//! let mut out = [0; 32];
//! assert_eq!(server.read(&mut out)?, Some(11));
//! assert_eq!((&out[..11], client.messages()), (&b"hello world"[..], 1));
//! # Ok(())
//! # }
//! ```
#![forbid(unsafe_code)]

#[cfg(not(target_os = "linux"))]
compile_error!("DDSS needs Linux: it uses memfd, futex and epoll; build for a Linux target");

pub mod codec;
mod engine;
mod error;
pub mod frame;
mod ledger;
pub mod limits;
mod plan;

pub use engine::{
    Addresses, BasicStream, EnhancedStream, Outgoing, Source, StreamConfig, Terms, ZeroCopyOutcome, accept, connect,
    finish_connect,
};
pub use error::SdpError;
pub use frame::{FrameReader, FrameWriter, Framing, IncomingSegment, OutgoingSegment, ReadRequest, Segment};
pub use ledger::CopyLedger;
pub use plan::{Buffering, Capabilities, Coalescing, FlowControl, Place, Plan};
