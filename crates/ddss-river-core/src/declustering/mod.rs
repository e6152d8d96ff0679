//! Graduated declustering: a part is read from both of its nodes, and each node serves the reader that lags behind.
//!
//! A slow disk then costs its share, spread over all readers.

mod chunks;
mod reader;
mod server;

pub use chunks::ReadOrder;
pub use reader::{PartReader, ReaderAction, ReaderConfig, ReaderEvent};
pub use server::{ChunkServer, RequestError};
