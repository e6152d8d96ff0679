//! The demonstration: two nodes in this process, a writer and a reader in processes of their own, a put here, a get
//! there, what each costs, and a client that is killed.

use crate::arguments::DemoOptions;
use crate::failure::CommandError;
use ddss::NodeId;
use ddssd::{ClusterKey, Config, CoreChoice, PeerAddress, Service, StartError};
use serde_json::Value;
use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

/// How long a client process may take for one thing beyond what it measures.
const PATIENCE: Duration = Duration::from_secs(20);

pub(crate) fn run(options: &DemoOptions) -> Result<(), CommandError> {
    let folder = DemoFolder::make()?;
    println!("Two nodes of one cluster, in this process; clients in processes of their own.\n");
    let (first, second) = start_nodes(&folder.0)?;
    for node in [&first, &second] {
        let core = node.core().map_or_else(|| "no core of its own".to_owned(), |core| format!("core {core}"));
        println!(
            "  node at {:<16} progress thread on {core}",
            node.address().map_or_else(String::new, |address| address.to_string())
        );
    }
    let mut writer = DemoClient::start(&folder.0.join("1"), "writer", options.measure_ms)?;
    let put = writer.expect("put")?;
    println!(
        "\n  node 1: a client put {} bytes into the new segment \"demo\" → version {}",
        put["bytes"], put["version"]
    );
    let mut reader = connect_reader(&folder.0.join("2"), options.measure_ms)?;
    let get = reader.expect("get")?;
    if get["equal"] != Value::Bool(true) {
        return Err(CommandError::Demo("node 2 got other bytes than node 1 had put".to_owned()));
    }
    let micros = get["us"].as_f64().unwrap_or_default();
    println!(
        "  node 2: a client got {} bytes of it, version {}, all equal, over iWARP in user space ({micros:.0} µs, the first)",
        get["bytes"], get["version"]
    );
    show_latencies(&mut writer, &mut reader)?;
    show_kill(&mut writer, &mut reader)?;
    drop(reader);
    second.stop()?;
    first.stop()?;
    println!("\nTry next:");
    println!("  cargo run --release --bin ddssd                              a node that stays");
    println!("  cargo run --release --bin ddss -- allocate scores 4096       a segment on it");
    println!("  cargo run --release --bin ddss -- put scores hello           and bytes into it");
    println!("  cargo bench -p ddss-benches --bench get -- --quick           figures beside the raw limits");
    Ok(())
}

/// Starts two nodes that know each other. Their ports are free a moment before; if somebody is faster, others are
/// tried.
fn start_nodes(folder: &Path) -> Result<(Service, Service), CommandError> {
    let key = ClusterKey::generate().map_err(StartError::from)?;
    let mut attempts = 5;
    loop {
        attempts -= 1;
        let addresses = [free_address("127.0.0.1")?, free_address("127.0.0.2")?];
        let start = |index: usize| {
            let other = 1 - index;
            let mut config = Config::single(&folder.join((index + 1).to_string()));
            config.node = NodeId(index as u16 + 1);
            config.listen = addresses[index];
            config.peers = vec![PeerAddress { node: NodeId(other as u16 + 1), address: addresses[other] }];
            config.key = Some(key.clone());
            config.core = core_for(index);
            config.pool_bytes = 16 << 20;
            Service::start(config)
        };
        match start(0).and_then(|first| Ok((first, start(1)?))) {
            Err(StartError::Listen { .. }) if attempts > 0 => {}
            other => return Ok(other?),
        }
    }
}

/// The two progress threads share the machine's cores as evenly as there are cores.
fn core_for(index: usize) -> CoreChoice {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    if cores > 1 { CoreChoice::Core(cores - 1 - index % cores) } else { CoreChoice::Unpinned }
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

/// The nodes may need a moment to find each other; until then the segment is not found from the second one.
fn connect_reader(folder: &Path, measure_ms: u64) -> Result<DemoClient, CommandError> {
    let end = Instant::now() + PATIENCE;
    loop {
        let mut reader = DemoClient::start(folder, "reader", measure_ms)?;
        match reader.peek() {
            Ok(()) => return Ok(reader),
            Err(error) if Instant::now() > end => return Err(error),
            Err(_) => std::thread::sleep(Duration::from_millis(50)),
        }
    }
}

fn show_latencies(writer: &mut DemoClient, reader: &mut DemoClient) -> Result<(), CommandError> {
    println!("\n  {:<10}{:>6}{:>8}{:>12}{:>12}{:>10}", "from", "what", "bytes", "p50 µs", "p99 µs", "calls");
    for (client, name) in [(writer, "node 1"), (reader, "node 2")] {
        client.go_on()?;
        for _ in 0..4 {
            let row = client.expect("measured")?;
            let number = |key: &str| row[key].as_f64().unwrap_or_default();
            println!(
                "  {name:<10}{:>6}{:>8}{:>12.2}{:>12.2}{:>10}",
                row["op"].as_str().unwrap_or_default(),
                row["bytes"].to_string(),
                number("p50_us"),
                number("p99_us"),
                row["count"].to_string()
            );
        }
    }
    println!("  (the segment's home is node 1; nodes and clients share this machine's cores)");
    Ok(())
}

fn show_kill(writer: &mut DemoClient, reader: &mut DemoClient) -> Result<(), CommandError> {
    writer.expect("writing on")?;
    std::thread::sleep(Duration::from_millis(50));
    writer.kill()?;
    println!("\n  node 1: killed the writer (SIGKILL) in the middle of its puts");
    reader.go_on()?;
    let get = reader.expect("get")?;
    if get["equal"] != Value::Bool(true) {
        return Err(CommandError::Demo("the kill left a torn value".to_owned()));
    }
    println!("  node 2: got version {} all the same, whole: nobody else noticed", get["version"]);
    Ok(())
}

/// A client process of the demonstration; it ends with this value.
struct DemoClient {
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
    peeked: Option<Value>,
}

impl DemoClient {
    fn start(folder: &Path, role: &str, measure_ms: u64) -> Result<Self, CommandError> {
        let program = std::env::current_exe().map_err(CommandError::system("find the program itself"))?;
        let mut command = Command::new(program);
        command.arg("demo-client").arg("--dir").arg(folder).args(["--role", role]);
        command.args(["--measure-ms", &measure_ms.to_string()]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().map_err(CommandError::system("start a client process"))?;
        let (input, output) = (child.stdin.take(), child.stdout.take());
        let output = BufReader::new(output.expect("standard output was asked for as a pipe"));
        Ok(Self { child, input, output, peeked: None })
    }

    /// Lets it take its next step.
    fn go_on(&mut self) -> Result<(), CommandError> {
        let input = self.input.as_mut().expect("standard input was asked for as a pipe");
        input.write_all(b"\n").and_then(|()| input.flush()).map_err(CommandError::system("tell a client process"))
    }

    /// Waits until it has said something.
    fn peek(&mut self) -> Result<(), CommandError> {
        if self.peeked.is_none() {
            self.peeked = Some(self.next()?);
        }
        Ok(())
    }

    fn next(&mut self) -> Result<Value, CommandError> {
        if let Some(line) = self.peeked.take() {
            return Ok(line);
        }
        let mut line = String::new();
        // The client's own calls have deadlines, so it says something or ends.
        self.output.read_line(&mut line).map_err(CommandError::system("hear a client process"))?;
        serde_json::from_str(&line).map_err(|_| CommandError::Demo(self.why_it_ended()))
    }

    fn why_it_ended(&mut self) -> String {
        let mut text = String::new();
        if let Some(mut errors) = self.child.stderr.take() {
            // What it said last is all there is to tell.
            let _ = std::io::Read::read_to_string(&mut errors, &mut text);
        }
        format!("a client process ended: {}", text.trim())
    }

    /// Takes the next thing that it has done.
    fn expect(&mut self, done: &str) -> Result<Value, CommandError> {
        let line = self.next()?;
        if line["done"] == done {
            Ok(line)
        } else {
            Err(CommandError::Demo(format!("a client process said {line} instead of {done:?}")))
        }
    }

    fn kill(&mut self) -> Result<(), CommandError> {
        self.child.kill().map_err(CommandError::system("kill a client process"))?;
        self.child.wait().map(drop).map_err(CommandError::system("wait for a client process"))
    }
}

impl Drop for DemoClient {
    fn drop(&mut self) {
        // Either it has ended by itself or it ends now.
        let _ = self.kill();
    }
}

/// A folder for the demonstration's nodes, gone at its end.
struct DemoFolder(PathBuf);

impl DemoFolder {
    fn make() -> Result<Self, CommandError> {
        let memory = Path::new("/dev/shm");
        let base = if memory.is_dir() { memory.to_owned() } else { std::env::temp_dir() };
        let folder = base.join(format!("ddss-demo-{}", std::process::id()));
        std::fs::create_dir_all(&folder).map_err(CommandError::system("make a folder for the demonstration"))?;
        Ok(Self(folder))
    }
}

impl Drop for DemoFolder {
    fn drop(&mut self) {
        // What stays is in a memory file system and small.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
