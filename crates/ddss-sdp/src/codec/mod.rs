//! Messages and their bytes. Everything is big-endian.
//!
//! ```text
//!  0     1       2        4         8         12        16
//! +-----+-------+--------+---------+---------+---------+
//! | mid | flags |  bufs  |   len   |  mseq   | mseqack |   before every message; len counts these 16 bytes
//! +-----+-------+--------+---------+---------+---------+
//! ```

mod body;
mod header;
mod hello;

pub use body::{Advertisement, Body, SOURCE_BYTES};
pub use header::{Flags, HEADER_BYTES, Header, MessageKind};
pub use hello::{HELLO_ACK_BYTES, HELLO_BYTES, Hello, HelloAck, PROTOCOL_VERSION};
