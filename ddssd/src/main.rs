//! The daemon of one node: flags in, a [`Service`] that runs until it is told to stop.
#![forbid(unsafe_code)]
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a command talks to who started it")]

use clap::Parser;
use ddss_core::NodeId;
use ddss_runtime::Pace;
use ddssd::{Config, CoreChoice, FabricChoice, PeerAddress, Service, StartError, in_one_line};
use signal_hook::consts::{SIGINT, SIGTERM};
use std::error::Error;
use std::io::{IsTerminal, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
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

Peers are not authenticated yet: listen only where every process is trusted.

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
    /// Where other nodes reach this one
    #[arg(long, env = "DDSS_LISTEN", default_value_t = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), Config::PORT), value_name = "IP:PORT")]
    listen: SocketAddr,
    /// Another node and where it listens; once for each
    #[arg(long, env = "DDSS_PEERS", value_delimiter = ',', value_name = "N=IP:PORT")]
    peer: Vec<PeerAddress>,
    /// Road to the other nodes: auto (the RDMA adapter that has the listening address, else iwarp), iwarp, or rdma
    #[arg(long, env = "DDSS_FABRIC", default_value = "auto", value_name = "FABRIC")]
    fabric: FabricChoice,
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
    fn into_config(self) -> Config {
        let node = NodeId(self.node);
        let user = rustix::process::getuid().as_raw();
        let memory_folder = match (self.memory_dir, &self.dir) {
            (Some(folder), _) => folder,
            (None, Some(folder)) => folder.join("memory"),
            (None, None) => format!("/dev/shm/ddss-{user}-{}", node.0).into(),
        };
        Config {
            node,
            folder: self.dir.unwrap_or_else(ddss_ipc::default_folder),
            memory_folder,
            listen: self.listen,
            fabric: self.fabric,
            peers: self.peer,
            core: self.core,
            pace: Pace { spin: Duration::from_micros(self.spin_us), busy: self.busy, ..Pace::default() },
            pool_bytes: self.pool_bytes,
            discard: self.discard,
            socket_mode: self.socket_mode,
        }
    }
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
    match run(arguments.into_config()) {
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
    println!("ready {node} socket {} listen {}", service.socket().display(), service.address());
    std::io::stdout().flush()?;
    let core = service.core().map_or_else(|| "none".to_owned(), |core| core.to_string());
    tracing::info!(node = node.0, socket = %service.socket().display(), listen = %service.address(), core, "ready");
    if let Some(signal) = signals.forever().next() {
        tracing::info!(signal, "stopping");
    }
    service.stop().map_err(|error: StartError| error.into())
}
