//! A process that is killed when its test ends.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::Error;

/// Interval between two checks of a process.
const LOOK_EVERY: Duration = Duration::from_millis(2);
/// Time for a process to end by itself before it is killed: a daemon completes pending calls first.
const END_MAX: Duration = Duration::from_secs(6);
/// Maximum number of bytes of a process's output that an error repeats.
const WORDS_MAX: usize = 4096;

/// A process whose output goes into files. Dropping the value ends it.
///
/// Its pid stays valid for signals: only this value waits for the process, so the kernel cannot reuse the pid.
#[derive(Debug)]
pub struct Process {
    child: Child,
    program: PathBuf,
    stdout: PathBuf,
    stderr: PathBuf,
}

impl Process {
    /// Starts `command`; its output goes to NAME.out and NAME.err in `folder`.
    pub fn start(command: Command, folder: &Path, name: &str) -> Result<Process, Error> {
        Process::start_with(command, Stdio::null(), folder, name)
    }

    /// Starts `command` with this standard input; its output goes to NAME.out and NAME.err in `folder`.
    pub fn start_with(mut command: Command, stdin: Stdio, folder: &Path, name: &str) -> Result<Process, Error> {
        let program = PathBuf::from(command.get_program());
        let file = |extension: &str| {
            let path = folder.join(name).with_extension(extension);
            let file = File::create(&path).map_err(Error::system(format!("creating {}", path.display())));
            file.map(|file| (path, file))
        };
        let (stdout, out) = file("out")?;
        let (stderr, err) = file("err")?;
        command.stdin(stdin).stdout(out).stderr(err);
        let child = command.spawn().map_err(Error::system(format!("starting {}", program.display())))?;
        Ok(Process { child, program, stdout, stderr })
    }

    /// The process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Standard output so far.
    pub fn stdout(&self) -> String {
        read(&self.stdout)
    }

    /// Standard error so far.
    pub fn stderr(&self) -> String {
        read(&self.stderr)
    }

    /// Waits until `ready` returns true. Returns an error with the last output if the process ends first, or at
    /// `deadline`.
    pub fn wait_until(&mut self, deadline: Duration, mut ready: impl FnMut(&Process) -> bool) -> Result<(), Error> {
        let begin = Instant::now();
        loop {
            let ended = self.status()?;
            if ready(self) {
                return Ok(());
            }
            if let Some(status) = ended {
                let (program, words) = (self.program.clone(), self.last_words());
                return Err(Error::Ended { program, status: status.to_string(), words });
            }
            if begin.elapsed() > deadline {
                let (program, words) = (self.program.clone(), self.last_words());
                return Err(Error::NotReady { program, deadline, words });
            }
            thread::sleep(LOOK_EVERY);
        }
    }

    /// Waits until the process ends by itself; returns `None` if it does not end within `deadline`.
    pub fn wait(&mut self, deadline: Duration) -> Result<Option<ExitStatus>, Error> {
        let begin = Instant::now();
        loop {
            let status = self.status()?;
            if status.is_some() || begin.elapsed() > deadline {
                return Ok(status);
            }
            thread::sleep(LOOK_EVERY);
        }
    }

    /// Kills the process as `kill -9` does, and returns when it has ended.
    pub fn kill(&mut self) -> Result<(), Error> {
        let pid = self.pid();
        self.child.kill().map_err(Error::system(format!("killing process {pid}")))?;
        self.child.wait().map_err(Error::system(format!("waiting for process {pid}"))).map(drop)
    }

    /// Stops the process, as `kill -STOP` does. Returns when its last thread has stopped.
    pub fn pause(&self) -> Result<(), Error> {
        self.signal(Signal::STOP)?;
        let begin = Instant::now();
        while !self.stands_still() && begin.elapsed() < END_MAX {
            thread::yield_now();
        }
        Ok(())
    }

    /// Continues the process after [`pause`](Self::pause).
    pub fn resume(&self) -> Result<(), Error> {
        self.signal(Signal::CONT)
    }

    /// Asks the process to end, without waiting.
    pub fn terminate(&self) -> Result<(), Error> {
        self.signal(Signal::TERM)
    }

    /// Asks the process to end, and kills it if it does not.
    pub fn end(&mut self) -> Result<(), Error> {
        if self.status()?.is_some() {
            return Ok(());
        }
        self.signal(Signal::TERM)?;
        // A stopped process handles no other signal.
        self.signal(Signal::CONT)?;
        match self.wait(END_MAX)? {
            Some(_) => Ok(()),
            None => {
                // The report names where the process hangs, because it cannot be inspected after the test.
                let (pid, tasks) = (self.pid(), self.whereabouts());
                let program = self.program.display();
                let words = format!("{program} ({pid}) did not end within {END_MAX:?} and is killed: {tasks}");
                drop(writeln!(io::stderr().lock(), "{words}"));
                self.kill()
            }
        }
    }

    /// Returns the name of each thread with the kernel function in which it waits.
    fn whereabouts(&self) -> String {
        let tasks = fs::read_dir(format!("/proc/{}/task", self.pid())).into_iter().flatten().flatten();
        let of = |task: fs::DirEntry| {
            let word = |name| fs::read_to_string(task.path().join(name)).unwrap_or_default().trim_end().to_owned();
            format!("{} in {}", word("comm"), word("wchan"))
        };
        tasks.map(of).collect::<Vec<_>>().join(", ")
    }

    /// Returns true if every thread has stopped or ended.
    fn stands_still(&self) -> bool {
        let Ok(mut tasks) = fs::read_dir(format!("/proc/{}/task", self.pid())) else { return true };
        tasks.all(|task| {
            let stat = task.and_then(|task| fs::read_to_string(task.path().join("stat"))).unwrap_or_default();
            // The name before it stands in brackets and may hold anything.
            !matches!(stat.rsplit(')').next().map(str::trim_start), Some(rest) if rest.starts_with(['R', 'S', 'D']))
        })
    }

    fn signal(&self, signal: Signal) -> Result<(), Error> {
        let pid = Pid::from_child(&self.child);
        let what = format!("sending {signal:?} to process {}", self.pid());
        kill_process(pid, signal).map_err(|error| Error::system(what)(error.into()))
    }

    fn status(&mut self) -> Result<Option<ExitStatus>, Error> {
        let pid = self.pid();
        self.child.try_wait().map_err(Error::system(format!("asking for process {pid}")))
    }

    fn last_words(&self) -> String {
        let words = format!("{}{}", self.stdout(), self.stderr());
        let mut start = words.len().saturating_sub(WORDS_MAX);
        while !words.is_char_boundary(start) {
            start += 1;
        }
        words[start..].to_owned()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // A daemon that ends regularly removes its message queues; a killed daemon leaves them to its successor.
        if self.end().is_err() {
            drop(self.kill());
        }
    }
}

fn read(path: &Path) -> String {
    // If the directory is already removed, the output is empty.
    String::from_utf8_lossy(&fs::read(path).unwrap_or_default()).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::TempNode;

    const DEADLINE: Duration = Duration::from_secs(20);

    fn shell(node: &TempNode, script: &str) -> Process {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        Process::start(command, node.path(), "shell").unwrap()
    }

    fn exists(pid: u32) -> bool {
        Path::new(&format!("/proc/{pid}")).exists()
    }

    // If this failed, a test would begin before its daemon serves, and fail one time in a hundred.
    #[test]
    fn wait_for_line_returns_when_process_prints_it() {
        let node = TempNode::new().unwrap();
        let mut process = shell(&node, "sleep 0.05; echo ready 7; exec sleep 1000");
        process.wait_until(DEADLINE, |process| process.stdout().contains("ready")).unwrap();
        assert_eq!(process.stdout(), "ready 7\n");
    }

    // If this failed, a daemon that cannot start would look like one that is slow.
    #[test]
    fn early_exit_is_an_error_with_process_output() {
        let node = TempNode::new().unwrap();
        let mut process = shell(&node, "echo no such folder >&2; exit 3");
        let error = process.wait_until(DEADLINE, |_| false).unwrap_err().to_string();
        assert!(error.contains("exit status: 3") && error.contains("no such folder"), "{error}");
    }

    // If this failed, a hung daemon would hang the tests.
    #[test]
    fn wait_for_line_ends_at_its_deadline() {
        let node = TempNode::new().unwrap();
        let mut process = shell(&node, "echo still busy; exec sleep 1000");
        process.wait_until(DEADLINE, |process| !process.stdout().is_empty()).unwrap();
        let error = process.wait_until(Duration::from_millis(20), |_| false).unwrap_err();
        assert!(matches!(&error, Error::NotReady { words, .. } if words == "still busy\n"), "{error}");
        assert!(process.wait(Duration::from_millis(20)).unwrap().is_none());
    }

    // If this failed, tests would leave processes behind that are stopped or ignore a request to end.
    #[test]
    fn process_is_killed_when_value_is_dropped() {
        let node = TempNode::new().unwrap();
        let stopped = shell(&node, "exec sleep 1000");
        stopped.pause().unwrap();
        assert!(stopped.stands_still());
        let pid = stopped.pid();
        drop(stopped);
        assert!(!exists(pid), "process {pid} is still there");

        let mut stubborn = shell(&node, "trap '' TERM; echo ready; while :; do sleep 0.1; done");
        stubborn.wait_until(DEADLINE, |process| !process.stdout().is_empty()).unwrap();
        let pid = stubborn.pid();
        drop(stubborn);
        assert!(!exists(pid), "process {pid} is still there");
    }

    // If this failed, a test of a crash would end its daemon regularly and prove nothing.
    #[test]
    fn kill_sends_a_signal_that_cannot_be_handled() {
        let node = TempNode::new().unwrap();
        let mut process =
            shell(&node, "trap 'echo handled' TERM INT HUP EXIT; echo ready; while :; do sleep 0.1; done");
        process.wait_until(DEADLINE, |process| !process.stdout().is_empty()).unwrap();
        process.kill().unwrap();
        assert!(!exists(process.pid()));
        assert_eq!(process.stdout(), "ready\n");
        process.kill().unwrap();
    }
}
