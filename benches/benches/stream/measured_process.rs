//! Processes whose processor time is read from `/proc`.

use std::fs;
use std::io;
use std::net::TcpListener;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use ddss_benches::harness::{Cores, pin};

/// Time limit for the start of a server.
const START_MAX: Duration = Duration::from_secs(30);
/// Interval between two checks of a process.
const LOOK_EVERY: Duration = Duration::from_millis(1);

/// A process that is killed when this value is dropped.
pub(crate) struct MeasuredProcess(pub(crate) Child);

impl MeasuredProcess {
    /// Starts the process on one core. The caller's thread is on `cores.client` afterwards.
    pub(crate) fn start(command: &mut Command, cores: Cores, core: usize) -> io::Result<Self> {
        pin(core)?;
        let child = command.stdin(Stdio::null()).spawn();
        pin(cores.client)?;
        Ok(Self(child?))
    }

    /// Returns the processor time of all threads, in seconds.
    pub(crate) fn processor_s(&self) -> io::Result<f64> {
        let mut nanoseconds = 0;
        for task in fs::read_dir(format!("/proc/{}/task", self.0.id()))? {
            let text = fs::read_to_string(task?.path().join("schedstat")).unwrap_or_default();
            nanoseconds += text.split(' ').next().and_then(|first| first.parse::<u64>().ok()).unwrap_or(0);
        }
        Ok(nanoseconds as f64 / 1e9)
    }

    /// Waits until the process has mapped the memory of a stream. Returns an error if it stayed on TCP until `client`
    /// ended.
    pub(crate) fn wait_for_shared_memory(&self, client: &mut Self) -> io::Result<()> {
        loop {
            let has_ended = client.0.try_wait()?.is_some();
            if fs::read_to_string(format!("/proc/{}/maps", self.0.id()))?.contains("memfd:ddss-stream") {
                return Ok(());
            }
            if has_ended {
                return Err(io::Error::other("the streams of the server stayed on TCP"));
            }
            thread::sleep(LOOK_EVERY);
        }
    }
}

impl Drop for MeasuredProcess {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Starts a busy process on each of the two cores.
pub(crate) fn busy_cores(cores: Cores) -> io::Result<[MeasuredProcess; 2]> {
    let start = |core| MeasuredProcess::start(Command::new(std::env::current_exe()?).arg("busy"), cores, core);
    Ok([start(cores.client)?, start(cores.service)?])
}

/// Runs a client to its end. Returns its output and its processor time in seconds.
pub(crate) fn run_client(command: &mut Command, cores: Cores) -> io::Result<(String, f64)> {
    let before = children_s()?;
    pin(cores.client)?;
    let output = command.stdin(Stdio::null()).output()?;
    if !output.status.success() {
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        return Err(io::Error::other(format!("{command:?} fails with {}: {error}", output.status)));
    }
    Ok((String::from_utf8_lossy(&output.stdout).into_owned(), children_s()? - before))
}

/// Returns the processor time of the processes that were started and have ended, in seconds.
fn children_s() -> io::Result<f64> {
    let text = fs::read_to_string("/proc/self/stat")?;
    let fields: Vec<&str> = text.rsplit_once(')').map_or("", |(_, rest)| rest).split_whitespace().collect();
    let ticks: u64 = fields.get(13..15).unwrap_or_default().iter().filter_map(|field| field.parse::<u64>().ok()).sum();
    Ok(ticks as f64 / rustix::param::clock_ticks_per_second() as f64)
}

/// Returns true if the program is installed.
pub(crate) fn is_installed(program: &str) -> bool {
    let found = Command::new(program).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
    if found.is_err() {
        println!("{program} is not installed");
    }
    found.is_ok()
}

/// Returns a port that was free a moment ago.
pub(crate) fn free_port() -> io::Result<u16> {
    Ok(TcpListener::bind(("127.0.0.1", 0))?.local_addr()?.port())
}

/// Waits until something listens on the port.
pub(crate) fn wait_for_port(port: u16) -> io::Result<()> {
    let end = Instant::now() + START_MAX;
    while let Err(error) = std::net::TcpStream::connect(("127.0.0.1", port)) {
        if Instant::now() > end {
            return Err(error);
        }
        thread::sleep(LOOK_EVERY);
    }
    Ok(())
}
