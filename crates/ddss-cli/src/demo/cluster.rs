//! Cluster of the demonstration: a temporary directory and two connected nodes.

use super::child::ChildProcess;
use crate::error::CommandError;
use crate::node_process::NodeProcess;
use ddss_admin::{ClusterKey, CoreChoice};
use std::ffi::OsString;
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};

/// File name of the cluster key, beside the directories of the nodes.
const KEY_FILE: &str = "key";
/// Size of all segments of a node.
const POOL_BYTES: u64 = 16 << 20;

/// A node process.
pub(super) struct DemoNode {
    pub(super) number: u16,
    pub(super) address: SocketAddr,
    /// Description of the core of its progress thread.
    pub(super) core: String,
    process: NodeProcess,
}

/// Both nodes and their directory. Dropping it kills the nodes and removes the directory.
pub(super) struct DemoCluster {
    pub(super) nodes: [DemoNode; 2],
    folder: DemoFolder,
}

impl DemoCluster {
    /// Starts the nodes. Another process may bind a free port in the meantime, so the start is retried.
    pub(super) fn start_nodes() -> Result<Self, CommandError> {
        let folder = DemoFolder::make()?;
        ClusterKey::generate()?.write(&folder.0.join(KEY_FILE))?;
        let mut attempts = 5;
        loop {
            attempts -= 1;
            let addresses = [free_address("127.0.0.1")?, free_address("127.0.0.2")?];
            let both = start(&folder.0, 1, addresses).and_then(|first| Ok([first, start(&folder.0, 2, addresses)?]));
            match both {
                Ok(nodes) => return Ok(Self { nodes, folder }),
                Err(error) if attempts == 0 => return Err(error),
                Err(_) => {}
            }
        }
    }

    /// Starts a client process on a node.
    pub(super) fn client(&self, node: u16) -> Result<ChildProcess, CommandError> {
        ChildProcess::start("demo-client", [OsString::from("--folder"), self.folder(node).into()])
    }

    /// Returns the directory of a node.
    pub(super) fn folder(&self, node: u16) -> PathBuf {
        folder_of(&self.folder.0, node)
    }

    pub(super) fn kill_node(&mut self, node: u16) -> Result<(), CommandError> {
        self.nodes[usize::from(node) - 1].process.kill()
    }

    pub(super) fn start_node(&mut self, node: u16) -> Result<(), CommandError> {
        let addresses = [self.nodes[0].address, self.nodes[1].address];
        self.nodes[usize::from(node) - 1] = start(&self.folder.0, node, addresses)?;
        Ok(())
    }

    /// Stops both nodes in the regular way.
    pub(super) fn stop(self) -> Result<(), CommandError> {
        self.nodes.into_iter().try_for_each(|node| node.process.stop())
    }
}

fn folder_of(folder: &Path, node: u16) -> PathBuf {
    folder.join(node.to_string())
}

fn start(folder: &Path, number: u16, addresses: [SocketAddr; 2]) -> Result<DemoNode, CommandError> {
    let (index, other) = (usize::from(number) - 1, 2 - usize::from(number));
    let own = folder_of(folder, number);
    let process = NodeProcess::start(
        &own,
        &[
            format!("--node={number}"),
            format!("--listen={}", addresses[index]),
            format!("--peer={}={}", other + 1, addresses[other]),
            format!("--key-file={}", folder.join(KEY_FILE).display()),
            format!("--core={}", core_for(number)),
            format!("--pool-bytes={POOL_BYTES}"),
        ],
    )?;
    let core = ddss_admin::read_status(&own)?.daemon.core;
    let core = core.map_or_else(|| "not pinned to a core".to_owned(), |core| format!("progress thread on core {core}"));
    Ok(DemoNode { number, address: addresses[index], core, process })
}

/// Chooses the core of a node, so that the progress threads are spread evenly.
fn core_for(node: u16) -> CoreChoice {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    if cores > 1 { CoreChoice::Core(cores - 1 - (usize::from(node) - 1) % cores) } else { CoreChoice::Unpinned }
}

/// Returns an address with a free port and a free port above it: a node uses two.
fn free_address(ip: &str) -> Result<SocketAddr, CommandError> {
    let system = || CommandError::system("find two free ports");
    let mut tried = 0;
    loop {
        tried += 1;
        let upper = TcpListener::bind((ip, 0)).and_then(|listener| listener.local_addr()).map_err(system())?;
        let address = SocketAddr::new(upper.ip(), upper.port() - 1);
        match TcpListener::bind(address) {
            Ok(_) => return Ok(address),
            Err(error) if tried == 50 => return Err(system()(error)),
            Err(_) => {}
        }
    }
}

/// Temporary directory of one demonstration.
struct DemoFolder(PathBuf);

impl DemoFolder {
    fn make() -> Result<Self, CommandError> {
        let memory = Path::new("/dev/shm");
        let base = if memory.is_dir() { memory.to_owned() } else { std::env::temp_dir() };
        remove_stale_folders(&base);
        let folder = base.join(format!("{PREFIX}{}", std::process::id()));
        std::fs::create_dir_all(&folder).map_err(CommandError::system("create a folder for the demonstration"))?;
        Ok(Self(folder))
    }
}

impl Drop for DemoFolder {
    fn drop(&mut self) {
        // The next demonstration removes remaining files.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Prefix of the directory names; the process id follows.
const PREFIX: &str = "ddss-demo-";

/// Removes the directories of interrupted demonstrations.
fn remove_stale_folders(base: &Path) {
    for entry in std::fs::read_dir(base).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let process = name.to_str().and_then(|name| name.strip_prefix(PREFIX)?.parse::<u32>().ok());
        if process.is_some_and(|process| !Path::new("/proc").join(process.to_string()).exists()) {
            // The directory of another user cannot be removed.
            let _ = std::fs::remove_dir_all(entry.path());
        }
    }
}
