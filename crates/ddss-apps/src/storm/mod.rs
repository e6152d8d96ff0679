//! Selections over records that are spread on nodes, after STORM of the Ohio State University.
//!
//! Records lie in chunks, each chunk in a segment of some node. A selection first asks the *directory* for each chunk: where
//! it is, and which values its records have. Then it reads the chunks with possible matches, and filters their records.
//!
//! The paper compares directories: [`SharedDirectory`] is a DDSS segment that each client reads directly;
//! [`DirectoryServer`] is asked over TCP, with a connection for each request; [`RedisDirectory`] is a common alternative.

mod chunk;
mod directory;
mod select;
mod server;

pub use chunk::{CHUNKS, Chunk, Record};
pub use directory::{Directory, RedisDirectory, SharedDirectory};
pub use select::{Found, Storm};
pub use server::{DirectoryServer, TcpDirectory};
