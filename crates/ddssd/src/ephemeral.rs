//! A node for tests and examples: in this process, in a folder of its own, removed on drop.

use crate::config::config::Config;
use crate::node::Node;
use crate::start_error::StartError;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

/// A standalone node that removes its files when it is dropped. Services that depend on `ddss` use it in their tests.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let node = ddssd::EphemeralNode::start()?;
/// assert!(node.directory().join("ddssd.sock").exists());
/// // A client finds it with `Client::connect_with(ConnectOptions::new().directory(node.directory()))`.
/// let folder = node.directory().to_owned();
/// drop(node);
/// assert!(!folder.exists());
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct EphemeralNode {
    /// `None` only during drop.
    node: Option<Node>,
    folder: PathBuf,
}

impl EphemeralNode {
    /// Pool size: enough for a test, and small for any machine.
    const POOL_BYTES: u64 = 16 << 20;

    /// Starts a node. On return clients can attach.
    pub fn start() -> Result<Self, StartError> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        // The time in the name avoids the folder of a killed process with the same pid.
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos();
        let name = format!("ddss-ephemeral-{}-{number}-{since}", std::process::id());
        let mut config = Config::single(&std::env::temp_dir().join(name));
        config.pool_bytes = Self::POOL_BYTES;
        let folder = config.folder.clone();
        match Node::start(config) {
            Ok(node) => Ok(Self { node: Some(node), folder }),
            Err(error) => {
                let _ = std::fs::remove_dir_all(&folder);
                Err(error)
            }
        }
    }

    /// Returns the directory that clients connect through.
    pub fn directory(&self) -> &Path {
        &self.folder
    }
}

impl Drop for EphemeralNode {
    fn drop(&mut self) {
        drop(self.node.take());
        // A destructor cannot report the error.
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}
