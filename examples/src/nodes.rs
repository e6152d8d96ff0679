//! The nodes that an example runs on.

use crate::{Failed, PATIENCE, Task, Worker};
use ddss::{Client, ConnectOptions};
use ddssd::{ClusterKey, Config, Node};
use std::path::{Path, PathBuf};
use tempfile::TempDir;

/// Some nodes of one cluster. Nodes that this process started end when this value is dropped.
#[derive(Debug)]
pub struct Nodes {
    folders: Vec<PathBuf>,
    // The order counts: the nodes end before their directory is removed.
    services: Vec<Node>,
    _folder: Option<TempDir>,
}

impl Nodes {
    /// Uses the daemons whose directories are on the command line, or else starts `count` nodes in this process.
    pub fn take(count: usize) -> Result<Self, Failed> {
        let folders: Vec<PathBuf> = std::env::args_os().skip(1).map(PathBuf::from).collect();
        match folders.len() {
            0 => Self::start(count),
            given if given == count => Ok(Self { folders, services: Vec::new(), _folder: None }),
            given => Err(format!("this example runs on {count} nodes, and {given} folders were named").into()),
        }
    }

    /// Starts nodes in this process, whatever the command line says.
    pub fn start(count: usize) -> Result<Self, Failed> {
        let memory = Path::new("/dev/shm");
        let base = if memory.is_dir() { memory.to_owned() } else { std::env::temp_dir() };
        let folder = tempfile::Builder::new().prefix("ddss-example-").tempdir_in(base)?;
        let key = ClusterKey::generate()?;
        let (mut folders, mut services): (Vec<PathBuf>, Vec<Node>) = Default::default();
        for number in 1..=count {
            let own = folder.path().join(number.to_string());
            let mut config = Config::single(&own);
            config.pool_bytes = 16 << 20;
            if count > 1 {
                // Each has an address of its own on this machine; port 0 takes any that is free.
                config.listen = format!("127.0.0.{number}:0").parse()?;
                config.key = Some(key.clone());
                config.is_node_named = false;
                config.founds_cluster = services.is_empty();
                config.join = services.first().and_then(Node::address).map(Into::into);
            }
            services.push(Node::start(config)?);
            folders.push(own);
        }
        Ok(Self { folders, services, _folder: Some(folder) })
    }

    /// Returns the number of nodes.
    pub fn count(&self) -> usize {
        self.folders.len()
    }

    /// Returns the directory for clients of a node.
    pub fn folder(&self, index: usize) -> &Path {
        &self.folders[index % self.folders.len()]
    }

    /// Connects a client to one of the nodes. Its timeout is long, because a loaded machine may be slow.
    pub fn client(&self, index: usize) -> Result<Client, Failed> {
        Ok(Client::connect_with(ConnectOptions::new().directory(self.folder(index)).timeout(PATIENCE))?)
    }

    /// Starts another process of this example, with a client on that node: its [`Task`] is called `name`.
    pub fn worker(&self, index: usize, name: &str) -> Result<Worker, Failed> {
        Worker::start(&Task { name: name.to_owned(), folder: self.folder(index).to_owned() })
    }
}

impl Drop for Nodes {
    fn drop(&mut self) {
        // The last node first: the first one is the leader.
        while let Some(service) = self.services.pop() {
            // The example has its result by now; a failed shutdown is in the node's log.
            drop(service);
        }
    }
}
