//! System calls, counted by the kernel's own tracer and not by us.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use super::Cluster;
use super::client_processes::{Member, Members};
use crate::harness::Cores;

/// Time limit for a tracer to attach, and to report.
const TRACER_MAX: Duration = Duration::from_secs(10);

/// System calls for each operation.
#[derive(Debug, Clone)]
pub struct Calls {
    /// System calls of the client's process.
    pub client: f64,
    /// System calls of each daemon.
    pub daemons: Vec<f64>,
    /// The client's most frequent calls, in words.
    pub most: String,
}

/// A process whose system calls are counted.
struct Tracer {
    child: Child,
    summary: PathBuf,
}

impl Tracer {
    fn take(pid: u32, folder: &Path) -> io::Result<Tracer> {
        let summary = folder.join(format!("{pid}.calls"));
        let mut command = Command::new("strace");
        command.args(["-f", "-c", "-qq", "-o"]).arg(&summary).args(["-p", &pid.to_string()]);
        let child = command.stdin(Stdio::null()).stderr(Stdio::null()).spawn()?;
        let mut tracer = Tracer { child, summary };
        let begin = Instant::now();
        while !is_traced(pid) {
            if tracer.child.try_wait()?.is_some() || begin.elapsed() > TRACER_MAX {
                return Err(io::Error::other(format!("strace may not trace process {pid}")));
            }
            thread::sleep(Duration::from_millis(2));
        }
        Ok(tracer)
    }

    /// Ends the tracer; returns the number of calls that it saw, and the names of the most frequent ones.
    fn finish(mut self) -> io::Result<(u64, String)> {
        kill_process(Pid::from_child(&self.child), Signal::INT)?;
        self.child.wait()?;
        Ok(count(&fs::read_to_string(&self.summary)?))
    }
}

impl Drop for Tracer {
    fn drop(&mut self) {
        // After `finish` the tracer has already ended.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// Returns true if all threads of a process are traced.
fn is_traced(pid: u32) -> bool {
    let Ok(tasks) = fs::read_dir(format!("/proc/{pid}/task")) else { return false };
    let traced = |task: fs::DirEntry| {
        let status = fs::read_to_string(task.path().join("status")).unwrap_or_default();
        status.lines().any(|line| line.strip_prefix("TracerPid:").is_some_and(|tracer| tracer.trim() != "0"))
    };
    tasks.flatten().all(traced)
}

/// The sum of the column `calls` of a summary, and its two most frequent names.
fn count(summary: &str) -> (u64, String) {
    let mut rows: Vec<(u64, &str)> = Vec::new();
    for line in summary.lines() {
        // % time, seconds, usecs/call, calls, errors (may be missing), syscall
        let words: Vec<&str> = line.split_whitespace().collect();
        let (Some(calls), Some(name)) = (words.get(3), words.last()) else { continue };
        if let (Ok(calls), false, true) = (calls.parse(), *name == "total", words[0].parse::<f64>().is_ok()) {
            rows.push((calls, *name));
        }
    }
    rows.sort_unstable_by(|a, b| b.cmp(a));
    let names: Vec<&str> = rows.iter().take(2).map(|row| row.1).collect();
    (rows.iter().map(|row| row.0).sum(), names.join(" "))
}

/// System calls of one client and of all daemons while the client makes `calls` calls.
pub fn system_calls(cluster: &Cluster, cores: Cores, members: &Members<'_>, calls: u64) -> io::Result<Calls> {
    cluster.wake();
    let folder = tempfile::tempdir()?;
    let mut member = Member::start(cluster.own().folder(), cores, members)?;
    let client = Tracer::take(member.pid(), folder.path())?;
    let daemons = cluster.daemons().iter().map(|daemon| Tracer::take(daemon.pid(), folder.path()));
    let daemons = daemons.collect::<io::Result<Vec<Tracer>>>()?;
    member.send_command(&format!("calls {calls}"))?;
    let said = member.line()?;
    if said.is_empty() {
        return Err(io::Error::other("the traced client ended before it was done"));
    }
    let each = |all: u64| all as f64 / calls as f64;
    let (made, most) = client.finish()?;
    let daemons = daemons.into_iter().map(|daemon| Ok(each(daemon.finish()?.0))).collect::<io::Result<Vec<f64>>>()?;
    cluster.rest();
    Ok(Calls { client: each(made), daemons, most })
}

#[cfg(test)]
mod tests {
    use super::*;

    // If this failed, the number of system calls would be another column of the tracer's table.
    #[test]
    fn system_calls_are_counted_without_the_total_line() {
        let summary = "% time     seconds  usecs/call     calls    errors syscall\n\
                       ------ ----------- ----------- --------- --------- ----------------\n\
                       99.00    0.004000           2      2000           msgsnd\n\
                        1.00    0.000100           1      1000        10 msgrcv\n\
                       ------ ----------- ----------- --------- --------- ----------------\n\
                       100.00    0.004100           1      3000        10 total\n";
        assert_eq!(count(summary), (3000, "msgsnd msgrcv".to_owned()));
        assert_eq!(count(""), (0, String::new()));
    }
}
