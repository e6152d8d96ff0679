//! Where the demonstration takes place: a folder for a while, and two nodes that know each other.

use super::child::Actor;
use crate::error::CommandError;
use ddssd::ClusterKey;
use std::ffi::OsString;
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};

/// The key of the cluster, beside the folders of its nodes.
pub(super) const KEY_FILE: &str = "key";

/// One node.
pub(super) struct DemoNode {
    pub(super) number: u16,
    pub(super) address: SocketAddr,
    /// Where its progress thread runs, in words.
    pub(super) core: String,
    process: Actor,
}

/// Both nodes. Whatever is left of them ends with this value.
pub(super) struct Stage {
    pub(super) nodes: [DemoNode; 2],
    folder: DemoFolder,
}

impl Stage {
    /// Starts the nodes. Their ports are free a moment before; if somebody is faster, others are tried.
    pub(super) fn set() -> Result<Self, CommandError> {
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

    /// A new client process on this node.
    pub(super) fn client(&self, node: u16) -> Result<Actor, CommandError> {
        Actor::start("demo-client", [OsString::from("--folder"), folder_of(&self.folder.0, node).into()])
    }

    pub(super) fn kill_node(&mut self, node: u16) -> Result<(), CommandError> {
        self.nodes[usize::from(node) - 1].process.kill()
    }

    pub(super) fn start_node(&mut self, node: u16) -> Result<(), CommandError> {
        let addresses = [self.nodes[0].address, self.nodes[1].address];
        self.nodes[usize::from(node) - 1] = start(&self.folder.0, node, addresses)?;
        Ok(())
    }

    /// Ends both nodes as a daemon ends that is told to.
    pub(super) fn strike(self) -> Result<(), CommandError> {
        self.nodes.into_iter().try_for_each(|node| node.process.end())
    }
}

fn folder_of(folder: &Path, node: u16) -> PathBuf {
    folder.join(node.to_string())
}

fn start(folder: &Path, number: u16, addresses: [SocketAddr; 2]) -> Result<DemoNode, CommandError> {
    let (index, other) = (usize::from(number) - 1, 2 - usize::from(number));
    let mut process = Actor::start(
        "demo-node",
        [
            OsString::from("--folder"),
            folder_of(folder, number).into(),
            format!("--node={number}").into(),
            format!("--listen={}", addresses[index]).into(),
            format!("--peer={}={}", other + 1, addresses[other]).into(),
        ],
    )?;
    let started = process.hear("started")?;
    let core = started["core"].as_u64();
    let core = core.map_or_else(|| "no core of its own".to_owned(), |core| format!("progress thread on core {core}"));
    Ok(DemoNode { number, address: addresses[index], core, process })
}

/// An address where nobody listens, nor one port above: a node takes two.
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

/// The folder of one demonstration.
struct DemoFolder(PathBuf);

impl DemoFolder {
    fn make() -> Result<Self, CommandError> {
        let memory = Path::new("/dev/shm");
        let base = if memory.is_dir() { memory.to_owned() } else { std::env::temp_dir() };
        sweep(&base);
        let folder = base.join(format!("{PREFIX}{}", std::process::id()));
        std::fs::create_dir_all(&folder).map_err(CommandError::system("make a folder for the demonstration"))?;
        Ok(Self(folder))
    }
}

impl Drop for DemoFolder {
    fn drop(&mut self) {
        // What stays, the next demonstration throws away.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// What the folders' names begin with; the number of the process follows.
const PREFIX: &str = "ddss-demo-";

/// Throws away what demonstrations left that were interrupted.
fn sweep(base: &Path) {
    for entry in std::fs::read_dir(base).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let process = name.to_str().and_then(|name| name.strip_prefix(PREFIX)?.parse::<u32>().ok());
        if process.is_some_and(|process| !Path::new("/proc").join(process.to_string()).exists()) {
            // Another user's stays.
            let _ = std::fs::remove_dir_all(entry.path());
        }
    }
}
