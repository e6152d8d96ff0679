//! What the examples share: the nodes that they run on, and processes of themselves.
//!
//! An application needs nothing of this: it says `Client::connect()?` and finds the daemon of its machine. The examples
//! are to start from a fresh clone by one command, so they bring nodes of their own, unless folders of running daemons
//! stand on the command line:
//!
//! ```sh
//! cargo run --example shared_counter                                     # nodes in the example's own process
//! cargo run --example shared_counter -- /dev/shm/node-1 /dev/shm/node-2  # daemons that run already
//! ```
#![forbid(unsafe_code)]

mod nodes;
mod worker;

use ddss::{Client, Failure, Segment};
use std::error::Error;
use std::time::{Duration, Instant};

pub use nodes::Nodes;
pub use worker::{Task, Worker};

/// What an example ends with when something is not as it should be.
pub type Failed = Box<dyn Error + Send + Sync>;

/// How long anything in an example may take. It takes milliseconds; a machine that does other things takes longer.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// Ends the example unless `true`: each checks its own result.
pub fn check(holds: bool, otherwise: impl FnOnce() -> String) -> Result<(), Failed> {
    if holds { Ok(()) } else { Err(otherwise().into()) }
}

/// Whether a segment may be there in a moment: its name has not reached this node yet, or the nodes have just begun to
/// meet.
pub fn may_come(error: &ddss::Error) -> bool {
    matches!(error.failure(), Some(Failure::NotFound | Failure::NodeDown))
}

/// Opens a segment that somebody else makes.
pub fn open_soon(client: &Client, name: &str) -> Result<Segment, Failed> {
    let begin = Instant::now();
    loop {
        match client.open(name) {
            Err(error) if may_come(&error) && begin.elapsed() < PATIENCE => {
                std::thread::sleep(Duration::from_millis(5));
            }
            ended => return Ok(ended?),
        }
    }
}
