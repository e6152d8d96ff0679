//! The daemon of one node: flags in, a [`Service`] that runs until it is told to stop.
#![forbid(unsafe_code)]
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a command talks to who started it")]

use clap::Parser;
use ddss_core::NodeId;
use ddss_runtime::Pace;
use ddssd::{ClusterKey, Config, CoreChoice, PeerAddress, Service, StartError, in_one_line};
use signal_hook::consts::{SIGINT, SIGTERM};
use std::error::Error;
use std::io::{IsTerminal, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;
use tracing_subscriber::EnvFilter;

/// The node service of DDSS: shares memory segments with every process of this node and of its peers.
#[derive(Parser, Debug)]
#[command(
    name = "ddssd",
    version,
    after_help = "\
Examples:
  ddssd                                          one node, for this machine only
  ddssd --node 1 --listen 127.0.0.1:7400 --peer 2=127.0.0.2:7400 --dir /dev/shm/node-1
  ddssd --node 2 --listen 127.0.0.2:7400 --peer 1=127.0.0.1:7400 --dir /dev/shm/node-2

Nodes of a cluster share a key (ddss cluster init, ddss cluster token). Without one a node is alone and does not listen.

Exit codes: 0 stopped as asked, 1 could not start or ended badly, 2 wrong flags."
)]
struct Arguments {
    /// Number of this node, 1 to 1024
    #[arg(long, env = "DDSS_NODE", default_value_t = 1, value_name = "N")]
    node: u16,
    /// Folder of the clients' socket [default: $XDG_RUNTIME_DIR/ddss, else /run/ddss for root, else /tmp/ddss-USER]
    #[arg(long, env = ddss_ipc::FOLDER_VARIABLE, value_name = "DIR")]
    dir: Option<PathBuf>,
    /// Folder of the shared memory, on a memory file system [default: /dev/shm/ddss-USER-N, or DIR/memory with --dir]
    #[arg(long, env = "DDSS_MEMORY_DIR", value_name = "DIR")]
    memory_dir: Option<PathBuf>,
    /// Folder of what survives a restart [default: DIR/state with --dir, else /var/lib/ddss for root, else ~/.local/state/ddss]
    #[arg(long, env = ddssd::STATE_VARIABLE, value_name = "DIR")]
    state_dir: Option<PathBuf>,
    /// The cluster's key; without one this node is alone [default: cluster.key in the state folder, if it is there]
    #[arg(long, env = "DDSS_KEY_FILE", value_name = "FILE")]
    key_file: Option<PathBuf>,
    /// Where other nodes reach this one; needs a key [default: 127.0.0.1:7400]
    #[arg(long, env = "DDSS_LISTEN", value_name = "IP:PORT")]
    listen: Option<SocketAddr>,
    /// Another node and where it listens; once for each
    #[arg(long, env = "DDSS_PEERS", value_delimiter = ',', value_name = "N=IP:PORT")]
    peer: Vec<PeerAddress>,
    /// Core of the progress thread: a number, auto (the last one), or none
    #[arg(long, env = "DDSS_CORE", default_value = "auto", value_name = "CORE")]
    core: CoreChoice,
    /// Microseconds the progress thread spins before it sleeps
    #[arg(long, env = "DDSS_SPIN_US", default_value_t = 50, value_name = "US")]
    spin_us: u64,
    /// Never sleep: for a core that nobody else uses
    #[arg(long, env = "DDSS_BUSY")]
    busy: bool,
    /// Bytes for segments
    #[arg(long, env = "DDSS_POOL_BYTES", default_value_t = Config::POOL_BYTES, value_name = "BYTES")]
    pool_bytes: u64,
    /// Throw away the segments that an earlier daemon left in the memory folder, and those of this one when it stops
    #[arg(long, env = "DDSS_DISCARD")]
    discard: bool,
    /// Permission bits of the clients' socket, octal
    #[arg(long, env = "DDSS_SOCKET_MODE", default_value = "600", value_name = "MODE", value_parser = octal)]
    socket_mode: u32,
    /// Log lines as JSON
    #[arg(long, env = "DDSS_LOG_JSON")]
    log_json: bool,
}

fn octal(text: &str) -> Result<u32, String> {
    let mode = u32::from_str_radix(text, 8).ok().filter(|mode| mode & !0o777 == 0);
    mode.ok_or_else(|| format!("{text:?} is no permission: give three octal digits, as in 660"))
}

impl Arguments {
    fn into_config(self) -> Result<Config, StartError> {
        let state_folder = self.state_dir.unwrap_or_else(|| ddssd::default_state_folder(self.dir.as_deref()));
        let key = find_key(self.key_file, &state_folder)?;
        if key.is_none() && (self.listen.is_some() || !self.peer.is_empty()) {
            return Err(StartError::NoKey { state_folder });
        }
        let node = NodeId(self.node);
        let user = rustix::process::getuid().as_raw();
        let memory_folder = match (self.memory_dir, &self.dir) {
            (Some(folder), _) => folder,
            (None, Some(folder)) => folder.join("memory"),
            (None, None) => format!("/dev/shm/ddss-{user}-{}", node.0).into(),
        };
        Ok(Config {
            node,
            folder: self.dir.unwrap_or_else(ddss_ipc::default_folder),
            memory_folder,
            listen: self.listen.unwrap_or(SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), Config::PORT)),
            peers: self.peer,
            key,
            state_folder,
            core: self.core,
            pace: Pace { spin: Duration::from_micros(self.spin_us), busy: self.busy, ..Pace::default() },
            pool_bytes: self.pool_bytes,
            discard: self.discard,
            socket_mode: self.socket_mode,
        })
    }
}

/// The key that was named, or the one that lies in the state folder.
fn find_key(named: Option<PathBuf>, state_folder: &Path) -> Result<Option<ClusterKey>, StartError> {
    let path = named.clone().unwrap_or_else(|| state_folder.join(ClusterKey::FILE_NAME));
    if named.is_none() && !path.exists() {
        return Ok(None);
    }
    Ok(Some(ClusterKey::read(&path)?))
}

fn start_log(json: bool) {
    let filter = EnvFilter::try_from_env("DDSS_LOG").unwrap_or_else(|_| EnvFilter::new("info"));
    let log = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    if json {
        log.json().init();
    } else {
        log.with_ansi(std::io::stderr().is_terminal()).with_target(false).init();
    }
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    start_log(arguments.log_json);
    match arguments.into_config().map_err(Into::into).and_then(run) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("ddssd: {}", in_one_line(error.as_ref()));
            ExitCode::FAILURE
        }
    }
}

fn run(config: Config) -> Result<(), Box<dyn Error>> {
    // Before anything else runs, so that a signal during the start is a clean end, too.
    let mut signals = signal_hook::iterator::Signals::new([SIGTERM, SIGINT])?;
    let node = config.node;
    let service = Service::start(config)?;
    let listen = service.address().map_or_else(|| "none".to_owned(), |address| address.to_string());
    println!("ready {node} socket {} listen {listen}", service.socket().display());
    std::io::stdout().flush()?;
    let core = service.core().map_or_else(|| "none".to_owned(), |core| core.to_string());
    tracing::info!(node = node.0, socket = %service.socket().display(), listen, core, "ready");
    if let Some(signal) = signals.forever().next() {
        tracing::info!(signal, "stopping");
    }
    service.stop().map_err(|error: StartError| error.into())
}
