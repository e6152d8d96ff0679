//! Mirrored files: collections whose parts lie on two file servers each.
//!
//! File servers, readers and writers are members of one group, `river/files`. A part has a random *generation*, by which both
//! of its servers store it. The table `river/files/NAME` lists the parts of a collection. Bytes travel one-sided, a message
//! behind them: `port` has the connections, `server` and `client` the two kinds of members, `disk` the thread of a server that
//! reads and writes its `store`, `repair` writes lost mirrors again.

mod catalogue;
mod client;
mod collection;
mod disk;
mod options;
mod port;
mod repair;
mod server;
mod split;
mod store;
mod wire;

pub use collection::{CollectionChunk, CollectionInfo, CollectionReader, Damage, Files, UnorderedReader};
pub use options::FilesOptions;
pub use server::FileServer;
