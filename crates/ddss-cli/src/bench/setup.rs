//! On what is measured: two nodes of this process, or a daemon that runs.

use crate::arguments::BenchOptions;
use crate::commands::cluster;
use crate::error::CommandError;
use ddss::{Client, NodeId, Placement, Segment, Spec, Strategy};
use ddssd::{ClusterKey, Config, CoreChoice, Node, StartError};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// How long two nodes may take to find each other.
const PATIENCE: Duration = Duration::from_secs(20);
/// Bytes of the segments that are measured.
pub(super) const BYTES: u64 = 64 << 10;

/// Where the figures come from.
pub(super) struct Field {
    // The order counts: segments go before the nodes, and those before their folder.
    segments: Vec<Segment>,
    _services: Vec<Node>,
    folder: PathBuf,
    own: Option<PathBuf>,
    other: Option<NodeId>,
}

impl Field {
    pub(super) fn new(options: &BenchOptions) -> Result<Self, CommandError> {
        match &options.place.dir {
            Some(folder) => {
                let seen = cluster::look(&options.place).ok();
                let alive = seen.as_ref().and_then(|seen| seen.other());
                let folder = folder.clone();
                Ok(Self { segments: Vec::new(), _services: Vec::new(), folder, own: None, other: alive.map(NodeId) })
            }
            None => Self::start(),
        }
    }

    fn start() -> Result<Self, CommandError> {
        let memory = Path::new("/dev/shm");
        let base = if memory.is_dir() { memory.to_owned() } else { std::env::temp_dir() };
        let own = base.join(format!("ddss-bench-{}", std::process::id()));
        let mut field = Self {
            segments: Vec::new(),
            _services: Vec::new(),
            folder: own.join("1"),
            own: Some(own.clone()),
            other: Some(NodeId(2)),
        };
        let key = ClusterKey::generate().map_err(StartError::from)?;
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        for number in 1..=2usize {
            let mut config = Config::single(&own.join(number.to_string()));
            config.node = NodeId(number as u16);
            config.listen = std::net::SocketAddr::from(([127, 0, 0, number as u8], 0));
            config.key = Some(key.clone());
            config.join = field._services.first().and_then(Node::address).map(Into::into);
            config.pool_bytes = 4 << 20;
            // Each node has a core of its own if there are three; else the second one shares the client's.
            config.core = if cores > 1 { CoreChoice::Core(cores - number) } else { CoreChoice::Unpinned };
            field._services.push(Node::start(config)?);
        }
        Ok(field)
    }

    pub(super) fn client(&self, strategy: Strategy, near: bool) -> Result<Client, CommandError> {
        Ok(Client::builder().folder(&self.folder).strategy(strategy).channels(1).local_reads(near).connect()?)
    }

    /// The other node, if there is one.
    pub(super) fn other(&self) -> Option<NodeId> {
        self.other
    }

    /// A segment to be measured; gone with this value.
    pub(super) fn segment(&mut self, client: &Client, home: Placement) -> Result<Segment, CommandError> {
        let name = format!("ddss-bench/{}/{}", std::process::id(), self.segments.len());
        let begin = Instant::now();
        let segment = loop {
            let spec = Spec { placement: home, ..Spec::new(BYTES) };
            match client.allocate(&name, spec) {
                Err(error) if error.failure() == Some(ddss::Failure::NodeDown) && begin.elapsed() < PATIENCE => {
                    std::thread::sleep(Duration::from_millis(20));
                }
                made => break made?,
            }
        };
        self.segments.push(segment.clone());
        Ok(segment)
    }
}

impl Drop for Field {
    fn drop(&mut self) {
        for segment in self.segments.drain(..) {
            // In a node that goes it goes anyway; in one that stays there is nobody to tell.
            let _ = segment.release();
        }
        self._services.clear();
        if let Some(folder) = &self.own {
            let _ = std::fs::remove_dir_all(folder);
        }
    }
}
