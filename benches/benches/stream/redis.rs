//! Unmodified Redis and its own benchmark.

use std::io;
use std::path::Path;
use std::process::{Command, Stdio};

use ddss_benches::harness::Cores;

use crate::compare::{Options, Row, Sample, compare};
use crate::measured_process::{MeasuredProcess, busy_cores, free_port, is_installed, run_client, wait_for_port};

/// Transport between client and server.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Tcp,
    Unix,
    Shared { spins: bool },
}

const ROWS: [Row<Kind>; 4] = [
    Row { kind: Kind::Tcp, name: "tcp" },
    Row { kind: Kind::Unix, name: "unix socket" },
    Row { kind: Kind::Shared { spins: false }, name: "ddss run, no spin" },
    Row { kind: Kind::Shared { spins: true }, name: "ddss run" },
];

/// One workload: a `SET` and a `GET` for each operation counted twice.
struct Workload {
    name: &'static str,
    connections: usize,
    value_bytes: usize,
    /// Requests of each command, over the kernel and over shared memory, so that a turn takes about half a second.
    requests: [usize; 2],
    has_busy_cores: bool,
}

const WORKLOADS: [Workload; 4] = [
    Workload {
        name: "redis, 50 connections, 8 B",
        connections: 50,
        value_bytes: 8,
        requests: [40_000, 300_000],
        has_busy_cores: false,
    },
    Workload {
        name: "redis, 50 connections, 16 KiB",
        connections: 50,
        value_bytes: 16 << 10,
        requests: [20_000, 60_000],
        has_busy_cores: false,
    },
    Workload {
        name: "redis, 1 connection, 8 B",
        connections: 1,
        value_bytes: 8,
        requests: [10_000, 40_000],
        has_busy_cores: false,
    },
    Workload {
        name: "redis, 1 connection, busy cores",
        connections: 1,
        value_bytes: 8,
        requests: [1000, 1000],
        has_busy_cores: true,
    },
];

/// A server, with the transport to it.
struct Server {
    process: MeasuredProcess,
    port: u16,
    socket: String,
}

/// Servers: without the library, with it, with it and without spin.
struct Servers {
    cores: Cores,
    library: std::path::PathBuf,
    plain: Server,
    shared: Server,
    no_spin: Server,
    _folder: tempfile::TempDir,
}

/// Prepares a program for the library.
pub(crate) fn preload<'a>(command: &'a mut Command, library: &Path, spins: bool) -> &'a mut Command {
    command.env("LD_PRELOAD", library);
    if spins { command } else { command.env("DDSS_STREAMS_SPIN_US", "0") }
}

impl Server {
    fn start(folder: &Path, name: &str, cores: Cores, library: Option<(&Path, bool)>) -> io::Result<Self> {
        let port = free_port()?;
        let socket = folder.join(name).display().to_string();
        let mut command = Command::new("redis-server");
        command.args(["--bind", "127.0.0.1", "--save", "", "--port", &port.to_string(), "--unixsocket", &socket]);
        command.arg("--dir").arg(folder).stdout(Stdio::null());
        if let Some((library, spins)) = library {
            preload(&mut command, library, spins);
        }
        let process = MeasuredProcess::start(&mut command, cores, cores.service)?;
        wait_for_port(port)?;
        Ok(Self { process, port, socket })
    }
}

impl Servers {
    fn start(cores: Cores) -> io::Result<Self> {
        let folder = tempfile::tempdir()?;
        let library = ddss_testkit::preload_library().map_err(io::Error::other)?;
        let start = |name, options| Server::start(folder.path(), name, cores, options);
        let (plain, shared) = (start("plain", None)?, start("shared", Some((library.as_path(), true)))?);
        let no_spin = start("no-spin", Some((library.as_path(), false)))?;
        let servers = Self { cores, library, plain, shared, no_spin, _folder: folder };
        for kind in [Kind::Shared { spins: true }, Kind::Shared { spins: false }] {
            let mut client = servers.client(kind, 5, 8, 5000);
            let mut client = MeasuredProcess::start(client.stdout(Stdio::null()), cores, cores.client)?;
            servers.of(kind).process.wait_for_shared_memory(&mut client)?;
            client.0.wait()?;
        }
        Ok(servers)
    }

    fn of(&self, kind: Kind) -> &Server {
        match kind {
            Kind::Tcp | Kind::Unix => &self.plain,
            Kind::Shared { spins: true } => &self.shared,
            Kind::Shared { spins: false } => &self.no_spin,
        }
    }

    fn client(&self, kind: Kind, connections: usize, value_bytes: usize, requests: usize) -> Command {
        let (server, mut command) = (self.of(kind), Command::new("redis-benchmark"));
        match kind {
            Kind::Unix => command.args(["-s", &server.socket]),
            _ => command.args(["-p", &server.port.to_string()]),
        };
        if let Kind::Shared { spins } = kind {
            preload(&mut command, &self.library, spins);
        }
        let [connections, value_bytes, requests] =
            [connections, value_bytes, requests].map(|number| number.to_string());
        command.args(["--csv", "-t", "set,get", "-c", &connections, "-d", &value_bytes, "-n", &requests]);
        command
    }

    fn measure(&self, workload: &Workload, kind: Kind, scale: usize) -> io::Result<Sample> {
        let is_shared = matches!(kind, Kind::Shared { .. });
        let requests = (workload.requests[usize::from(is_shared)] / scale).max(100);
        let server = &self.of(kind).process;
        let before = server.processor_s()?;
        let mut client = self.client(kind, workload.connections, workload.value_bytes, requests);
        let (output, client_s) = run_client(&mut client, self.cores)?;
        let server_s = server.processor_s()? - before;
        let operations = (2 * requests) as f64;
        let seconds: f64 = rates(&output)?.iter().map(|rate| requests as f64 / rate).sum();
        Ok(Sample {
            rate: operations / seconds,
            server_us: server_s * 1e6 / operations,
            client_us: client_s * 1e6 / operations,
        })
    }
}

/// Returns the requests a second of both commands, from the client's table.
fn rates(output: &str) -> io::Result<[f64; 2]> {
    let rate = |command: &str| {
        let line = output.lines().find_map(|line| line.strip_prefix(&format!("\"{command}\",\"")))?;
        line.split('"').next()?.parse().ok()
    };
    match [rate("SET"), rate("GET")] {
        [Some(set), Some(get)] => Ok([set, get]),
        _ => Err(io::Error::other(format!("redis-benchmark printed no rate: {output}"))),
    }
}

/// Measures all workloads.
pub(crate) fn run(options: &Options) -> io::Result<()> {
    let wanted: Vec<_> = WORKLOADS.iter().filter(|workload| options.wants(workload.name)).collect();
    if wanted.is_empty() || !is_installed("redis-server") || !is_installed("redis-benchmark") {
        return Ok(());
    }
    let servers = Servers::start(options.cores)?;
    for workload in wanted {
        let _busy = workload.has_busy_cores.then(|| busy_cores(servers.cores)).transpose()?;
        compare(options, workload.name, "req/s", &ROWS, true, |kind| servers.measure(workload, kind, options.scale))?;
    }
    Ok(())
}
