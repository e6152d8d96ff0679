//! Nodes that `bench` measures: two nodes that end with this process, or a running daemon.

use crate::arguments::BenchOptions;
use crate::commands::cluster;
use crate::error::CommandError;
use crate::node_process::NodeProcess;
use ddss::{Client, ConnectOptions, NodeId, Placement, Segment, Spec, Strategy};
use ddss_admin::storage::{FOUND_FILE_NAME, default_state_folder};
use ddss_admin::{ClusterKey, CoreChoice};
use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Maximum time until the two nodes are connected.
const RETRY_TIME_MAX: Duration = Duration::from_secs(20);
/// Size of the measured segments in bytes.
pub(super) const BYTES: u64 = 64 << 10;

/// Nodes and segments of a measurement.
pub(super) struct BenchSetup {
    // Drop order: segments before the nodes, and the nodes before their directory.
    segments: Vec<Segment>,
    nodes: Vec<NodeProcess>,
    folder: PathBuf,
    own: Option<PathBuf>,
    other: Option<NodeId>,
}

impl BenchSetup {
    pub(super) fn new(options: &BenchOptions) -> Result<Self, CommandError> {
        match &options.place.dir {
            Some(folder) => {
                let seen = cluster::fetch(&options.place).ok();
                let alive = seen.as_ref().and_then(|seen| seen.other());
                let folder = folder.clone();
                Ok(Self { segments: Vec::new(), nodes: Vec::new(), folder, own: None, other: alive.map(NodeId) })
            }
            None => Self::start(),
        }
    }

    fn start() -> Result<Self, CommandError> {
        let memory = Path::new("/dev/shm");
        let base = if memory.is_dir() { memory.to_owned() } else { std::env::temp_dir() };
        let own = base.join(format!("ddss-bench-{}", std::process::id()));
        let mut setup = Self {
            segments: Vec::new(),
            nodes: Vec::new(),
            folder: own.join("1"),
            own: Some(own.clone()),
            other: Some(NodeId(2)),
        };
        std::fs::create_dir_all(&own).map_err(CommandError::file("create the folder", &own))?;
        let key_file = own.join("key");
        ClusterKey::generate()?.write(&key_file)?;
        // The first node begins the cluster.
        let state = default_state_folder(Some(&setup.folder));
        let permission = state.join(FOUND_FILE_NAME);
        let made = DirBuilder::new().recursive(true).mode(0o700).create(&state);
        made.and_then(|()| std::fs::write(&permission, "")).map_err(CommandError::file("write", &permission))?;
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        for number in 1..=2usize {
            // With three cores each node has its own; with two, node 2 shares the core of the client.
            let core = if cores > 1 { CoreChoice::Core(cores - number) } else { CoreChoice::Unpinned };
            let mut arguments = vec![
                format!("--node={number}"),
                format!("--listen=127.0.0.{number}:0"),
                format!("--key-file={}", key_file.display()),
                format!("--core={core}"),
                format!("--pool-bytes={}", 4 << 20),
                "--discard".to_owned(),
            ];
            arguments.extend(setup.nodes.first().map(|first| format!("--join={}", first.address())));
            setup.nodes.push(NodeProcess::start(&own.join(number.to_string()), &arguments)?);
        }
        Ok(setup)
    }

    pub(super) fn client(&self, strategy: Strategy, local_read: bool) -> Result<Client, CommandError> {
        Ok(Client::connect_with(
            ConnectOptions::new().directory(&self.folder).strategy(strategy).channels(1).local_reads(local_read),
        )?)
    }

    /// Returns the other node, if there is one.
    pub(super) fn other(&self) -> Option<NodeId> {
        self.other
    }

    /// Allocates a segment, which is released when this value is dropped.
    pub(super) fn segment(&mut self, client: &Client, home: Placement) -> Result<Segment, CommandError> {
        let name = format!("ddss-bench/{}/{}", std::process::id(), self.segments.len());
        let begin = Instant::now();
        let segment = loop {
            let spec = Spec::new(BYTES).placement(home);
            match client.segment(&name).allocate(spec) {
                Err(error) if error.kind() == ddss::ErrorKind::NodeDown && begin.elapsed() < RETRY_TIME_MAX => {
                    std::thread::sleep(Duration::from_millis(20));
                }
                made => break made?,
            }
        };
        self.segments.push(segment.clone());
        Ok(segment)
    }
}

impl Drop for BenchSetup {
    fn drop(&mut self) {
        for segment in self.segments.drain(..) {
            // A failed release cannot be reported from `drop`; own nodes discard their segments anyway.
            let _ = segment.release();
        }
        self.nodes.clear();
        if let Some(folder) = &self.own {
            let _ = std::fs::remove_dir_all(folder);
        }
    }
}
