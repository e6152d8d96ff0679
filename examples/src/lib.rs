//! Shared parts of the examples: their nodes, and their worker processes.
//!
//! An application needs none of this: `Client::connect()?` finds the daemon of its machine. The examples must run from
//! a fresh clone by one command, so they start nodes of their own, unless the command line names directories of running
//! daemons:
//!
//! ```sh
//! cargo run --example shared_counter                                     # nodes in the example's own process
//! cargo run --example shared_counter -- /dev/shm/node-1 /dev/shm/node-2  # daemons that run already
//! ```
#![forbid(unsafe_code)]

mod nodes;
mod worker;

use ddss::{Client, ErrorKind, Segment};
use std::error::Error;
use std::time::{Duration, Instant};

pub use nodes::Nodes;
pub use worker::{Task, Worker};

/// Error that ends an example.
pub type Failed = Box<dyn Error + Send + Sync>;

/// Time limit of any step. A step takes milliseconds; a loaded machine takes longer.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// Ends the example unless `true`: each checks its own result.
pub fn check(holds: bool, otherwise: impl FnOnce() -> String) -> Result<(), Failed> {
    if holds { Ok(()) } else { Err(otherwise().into()) }
}

/// Returns true if a segment may appear soon: its name has not reached this node yet, or the nodes are still
/// connecting.
pub fn may_come(error: &ddss::Error) -> bool {
    matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NodeDown)
}

/// Opens a segment that another process allocates.
pub fn open_soon(client: &Client, name: &str) -> Result<Segment, Failed> {
    let begin = Instant::now();
    loop {
        match client.segment(name).open() {
            Err(error) if may_come(&error) && begin.elapsed() < PATIENCE => {
                std::thread::sleep(Duration::from_millis(5));
            }
            ended => return Ok(ended?),
        }
    }
}
