//! The demonstration `streams`: the same two programs over TCP and through shared memory.
//!
//! The programs are Redis with its benchmark, or an echo server and its client in Python. Nothing of them is changed.

use crate::commands::programs::streams::library;
use crate::error::CommandError;
use crate::output::table::Table;
use serde_json::{Value, json};
use std::ffi::OsString;
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Variable of the preload library's path.
const LIBRARY_VARIABLE: &str = "DDSS_PRELOAD";
/// Longest run of one program.
const RUN_MAX: Duration = Duration::from_secs(120);
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// Connections of each row, and its requests for each millisecond of the measuring time.
const LOADS: [(u64, u64); 2] = [(50, 300), (1, 60)];
/// Time before and after the programs in which the load of the machine is read.
const LOAD_TIME: Duration = Duration::from_millis(300);
/// Part of a core that the system itself may use on a quiet machine.
const QUIET_CORES: f64 = 0.3;

/// Echo server in Python: a thread for each connection.
const PYTHON_SERVER: &str = "
import socket, sys, threading
def serve(stream):
    with stream:
        while bytes := stream.recv(4096): stream.sendall(bytes)
listener = socket.create_server((\"127.0.0.1\", int(sys.argv[1])), backlog=128)
while True: threading.Thread(target=serve, args=(listener.accept()[0],), daemon=True).start()
";

/// Client in Python: all connections in turn, 8 bytes each way.
const PYTHON_CLIENT: &str = "
import socket, sys
port, connections, requests = map(int, sys.argv[1:])
streams = [socket.create_connection((\"127.0.0.1\", port)) for _ in range(connections)]
for request in range(requests):
    stream = streams[request % connections]
    stream.sendall(b\"8 bytes.\")
    if stream.recv(8, socket.MSG_WAITALL) != b\"8 bytes.\": raise SystemExit(\"wrong answer\")
";

/// Two programs that this machine has.
enum Programs {
    Redis,
    Python(PathBuf),
}

impl Programs {
    fn find() -> Result<Self, CommandError> {
        if ["redis-server", "redis-benchmark"].iter().all(|name| in_path(name).is_some()) {
            return Ok(Self::Redis);
        }
        in_path("python3").map(Self::Python).ok_or_else(|| {
            CommandError::Demo(
                "redis-server, redis-benchmark and python3 are missing: install redis or python3, and try again"
                    .to_owned(),
            )
        })
    }

    fn names(&self) -> &'static str {
        match self {
            Self::Redis => "redis-server and redis-benchmark",
            Self::Python(_) => "an echo server and its client in Python (redis-server is not installed)",
        }
    }

    fn server(&self, port: u16) -> Command {
        let port = port.to_string();
        match self {
            Self::Redis => {
                let mut command = Command::new("redis-server");
                command.args(["--port", &port, "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"]);
                command
            }
            Self::Python(python) => python_command(python, PYTHON_SERVER, &[port]),
        }
    }

    fn client(&self, port: u16, connections: u64, requests: u64) -> Command {
        let [port, connections, requests] = [port.into(), connections, requests].map(|number: u64| number.to_string());
        match self {
            Self::Redis => {
                let mut command = Command::new("redis-benchmark");
                command.args(["-p", &port, "-c", &connections, "-n", &requests, "-t", "get", "-q"]);
                command
            }
            Self::Python(python) => python_command(python, PYTHON_CLIENT, &[port, connections, requests]),
        }
    }
}

fn python_command(python: &Path, text: &str, arguments: &[String]) -> Command {
    let mut command = Command::new(python);
    command.args(["-c", text]).args(arguments);
    command
}

fn in_path(name: &str) -> Option<PathBuf> {
    let folders = std::env::var_os("PATH")?;
    std::env::split_paths(&folders).map(|folder| folder.join(name)).find(|path| path.is_file())
}

/// Result of one load.
struct Measured {
    connections: u64,
    requests_per_second: f64,
    server_cpu_us: f64,
    shared: usize,
}

/// Load of the machine by other programs, in cores.
struct Load {
    cores: usize,
    busy: f64,
}

impl Load {
    /// Reads the load for a while.
    fn read() -> Self {
        let before = processor_ticks();
        std::thread::sleep(LOAD_TIME);
        let [busy, all] = processor_ticks().zip(before).map_or([0, 1], |(after, before)| {
            [after[0].saturating_sub(before[0]), after[1].saturating_sub(before[1]).max(1)]
        });
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        Self { cores, busy: cores as f64 * busy as f64 / all as f64 }
    }

    /// Returns the condition under which the ratios hold.
    fn text(&self) -> String {
        let Self { cores, busy } = self;
        let has_room = busy + 2.0 <= *cores as f64 + QUIET_CORES;
        let condition = if has_room {
            "each of the two programs had a core of its own. On a busy machine the ratios are lower"
        } else {
            "the two programs shared what was left. With a core for each the ratios are higher"
        };
        format!("Other programs used {busy:.1} of {cores} cores: {condition}.")
    }
}

/// Returns the busy ticks and all ticks of the machine's processors.
fn processor_ticks() -> Option<[u64; 2]> {
    let text = std::fs::read_to_string("/proc/stat").ok()?;
    // User, nice, system, idle, waiting for disks, interrupts, soft interrupts, stolen.
    let ticks: Vec<u64> = text.lines().next()?.split_whitespace().skip(1).take(8).flat_map(str::parse).collect();
    let all: u64 = ticks.iter().sum();
    Some([all - ticks.get(3)? - ticks.get(4)?, all])
}

pub(super) fn run(measure_ms: u64, json: bool) -> Result<(), CommandError> {
    let programs = Programs::find()?;
    let preload = library(std::env::var_os(LIBRARY_VARIABLE).map(PathBuf::from).as_deref())?;
    if !json {
        println!("{}, both unmodified.\n", programs.names());
        println!("  before: they talk over TCP");
    }
    let load = Load::read();
    let before = measure(&programs, None, measure_ms)?;
    if !json {
        println!("  after:  `ddss run -- PROGRAM` starts each of them\n");
    }
    let after = measure(&programs, Some(&preload), measure_ms)?;
    let load = Load { busy: load.busy.max(Load::read().busy), ..load };
    if json {
        let rows = |rows: &[Measured]| -> Value {
            let row = |row: &Measured| {
                json!({ "connections": row.connections, "requests_per_second": row.requests_per_second,
                    "server_cpu_us": row.server_cpu_us, "shared_ends": row.shared })
            };
            rows.iter().map(row).collect()
        };
        let (before, after) = (rows(&before), rows(&after));
        let (names, cores, busy) = (programs.names(), load.cores, load.busy);
        println!(
            "{}",
            json!({ "programs": names, "cores": cores, "busy_cores": busy, "before": before, "after": after })
        );
        return Ok(());
    }
    show(&before, &after, &load);
    Ok(())
}

fn show(before: &[Measured], after: &[Measured], load: &Load) {
    let mut table = Table::new(&["CONNECTIONS", "", "TCP", "SHARED MEMORY", "RATIO"]);
    table.align_right(&[0, 2, 3, 4]);
    for (before, after) in before.iter().zip(after) {
        let mut row = |first: String, name: &str, values: [f64; 2], ratio: f64, digits: usize| {
            let [tcp, shared] = values.map(|value| format!("{value:.digits$}"));
            table.row(vec![first, name.to_owned(), tcp, shared, format!("{ratio:.2}")]);
        };
        let rates = [before.requests_per_second, after.requests_per_second];
        row(before.connections.to_string(), "requests a second", rates, rates[1] / rates[0], 0);
        let times = [before.server_cpu_us, after.server_cpu_us];
        row(String::new(), "server's CPU, us a request", times, times[1] / times[0], 2);
    }
    table.print_or("nothing was measured");
    let shared: usize = after.iter().map(|row| row.shared).sum();
    println!("\n{shared} ends of connections had left TCP when `ddss streams` looked.");
    println!("{}\nThe book has figures of a quiet machine, and what stays on TCP: \"Streams\".", load.text());
}

/// Runs the two programs with each load.
fn measure(programs: &Programs, preload: Option<&Path>, measure_ms: u64) -> Result<Vec<Measured>, CommandError> {
    let free = TcpListener::bind(("127.0.0.1", 0)).and_then(|listener| listener.local_addr());
    let port = free.map_err(CommandError::system("find a free port"))?.port();
    let server = Running::start(programs.server(port), preload)?;
    let end = Instant::now() + RUN_MAX;
    while TcpStream::connect(("127.0.0.1", port)).is_err() {
        if Instant::now() > end {
            return Err(CommandError::Demo("the server does not listen".to_owned()));
        }
        std::thread::sleep(LOOK_EVERY);
    }
    let loads = LOADS.map(|(connections, a_ms)| (connections, connections.max(a_ms * measure_ms)));
    loads.iter().map(|load| measure_load(programs, preload, &server, port, *load)).collect()
}

fn measure_load(
    programs: &Programs,
    preload: Option<&Path>,
    server: &Running,
    port: u16,
    (connections, requests): (u64, u64),
) -> Result<Measured, CommandError> {
    // Without requests: the start of the client is no part of the rate.
    let start_time = run_client(programs.client(port, connections, connections), preload, |_| ())?;
    let (cpu_before, mut shared) = (server.cpu_seconds(), 0);
    let look = |elapsed: Duration| {
        if preload.is_some() && shared == 0 && elapsed > start_time {
            let ours = |row: &&ddss_stream::StreamRow| {
                row.transport == ddss_stream::Transport::SameNode && row.acceptor.port() == port
            };
            shared = ddss_stream::list().iter().filter(ours).count();
        }
    };
    let time = run_client(programs.client(port, connections, requests), preload, look)?;
    let cpu = server.cpu_seconds() - cpu_before;
    let seconds = time.saturating_sub(start_time).as_secs_f64().max(1e-3);
    Ok(Measured {
        connections,
        requests_per_second: requests as f64 / seconds,
        server_cpu_us: cpu * 1e6 / requests as f64,
        shared,
    })
}

/// Runs a client to its end. Returns its time.
fn run_client(
    command: Command,
    preload: Option<&Path>,
    mut look: impl FnMut(Duration),
) -> Result<Duration, CommandError> {
    let start = Instant::now();
    let mut client = Running::start(command, preload)?;
    loop {
        let found = client.0.try_wait().map_err(CommandError::system("wait for a program of the demonstration"))?;
        match found {
            Some(status) if status.success() => return Ok(start.elapsed()),
            Some(status) => return Err(CommandError::Demo(format!("the client failed: {status}"))),
            None if start.elapsed() > RUN_MAX => return Err(CommandError::Demo("the client does not end".to_owned())),
            None => std::thread::sleep(Duration::from_millis(1)),
        }
        look(start.elapsed());
    }
}

/// A program of the demonstration, which is killed when this value is dropped.
struct Running(Child);

impl Running {
    fn start(mut command: Command, preload: Option<&Path>) -> Result<Self, CommandError> {
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        command.env("LD_PRELOAD", preload.map(OsString::from).unwrap_or_default());
        command.spawn().map(Self).map_err(CommandError::system("start a program of the demonstration"))
    }

    /// Returns the CPU time of the process, from the fields behind its name.
    fn cpu_seconds(&self) -> f64 {
        let text = std::fs::read_to_string(format!("/proc/{}/stat", self.0.id())).unwrap_or_default();
        let fields = text.rsplit(')').next().unwrap_or_default();
        let ticks: u64 = fields.split_whitespace().skip(11).take(2).filter_map(|field| field.parse::<u64>().ok()).sum();
        ticks as f64 / rustix::param::clock_ticks_per_second() as f64
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
