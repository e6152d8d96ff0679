//! The integrated buffer: MPA frames in a ring, with gaps for the markers.
//!
//! ```text
//! |len 2|DDP + RDMAP 18|BSDH 16|payload…|[M]|payload 508|[M]|payload 508|…|pad 0–3|CRC 4|
//! ```
//!
//! A marker `[M]` stands before each 512 bytes of the stream, counted from the first frame. It holds two zero bytes and
//! its distance from the start of the frame. Each ring has a multiple of 512 bytes and starts with the first frame, so
//! neither a marker nor the bytes between two markers cross the end of the ring. Frames, headers and markers are
//! multiples of four bytes, so a marker splits no field of a frame's end.
//!
//! Reads of a peer's memory (RDMAP) bypass the rings: see [`OutgoingSegment`] and [`IncomingSegment`].

mod layout;
mod read_request;
mod reader;
mod segment;
mod writer;

pub use layout::{Checksum, Framing};
pub use read_request::ReadRequest;
pub use reader::{Frame, FrameReader};
pub use segment::{IncomingSegment, OutgoingSegment, Segment};
pub use writer::FrameWriter;
