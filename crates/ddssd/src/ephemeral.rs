//! A node for a test or an example: in this process, in a folder of its own, and gone with its value.

use crate::config::config::Config;
use crate::node::{Node, StartError};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

/// A node that is alone, and leaves nothing behind when it is dropped: for the tests of a service that depends on `ddss`.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let node = ddssd::Ephemeral::start()?;
/// assert!(node.folder().join("ddssd.sock").exists());
/// // A client finds it with `Client::builder().folder(node.folder()).connect()`.
/// let folder = node.folder().to_owned();
/// drop(node);
/// assert!(!folder.exists());
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct EphemeralNode {
    /// Only `None` while it is being dropped.
    service: Option<Node>,
    folder: PathBuf,
}

impl EphemeralNode {
    /// Bytes for segments: enough for what a test puts there, and nothing that a machine would miss.
    const POOL_BYTES: u64 = 16 << 20;

    /// Starts one. When this returns, clients can attach.
    pub fn start() -> Result<Self, StartError> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        // What a killed process left behind is in nobody's way.
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos();
        let name = format!("ddss-ephemeral-{}-{number}-{since}", std::process::id());
        let mut config = Config::single(&std::env::temp_dir().join(name));
        config.pool_bytes = Self::POOL_BYTES;
        let folder = config.folder.clone();
        match Node::start(config) {
            Ok(service) => Ok(Self { service: Some(service), folder }),
            Err(error) => {
                let _ = std::fs::remove_dir_all(&folder);
                Err(error)
            }
        }
    }

    /// Where clients find it.
    pub fn folder(&self) -> &Path {
        &self.folder
    }
}

impl Drop for EphemeralNode {
    fn drop(&mut self) {
        drop(self.service.take());
        // There is nobody to tell.
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}
