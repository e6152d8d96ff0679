//! A helper process with the descriptor of some memory, and without a fabric or connection of the test.

use std::io::{BufRead, BufReader, Lines, Write};
use std::os::fd::AsFd;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process, set_parent_process_death_signal};

use super::{Memory, WAIT_MAX};

/// Environment variable that marks the helper process and carries its task.
const TASK: &str = "DDSS_TEST_TASK";

/// A helper process. It is killed when this value is dropped, stopped or not.
pub(crate) struct HelperProcess {
    process: Child,
    lines: Lines<BufReader<ChildStdout>>,
    alarm: Option<(Sender<()>, JoinHandle<()>)>,
}

impl HelperProcess {
    /// Runs one test of this program, by its full name, in a separate process.
    pub(crate) fn start(test: &str, helper_task: &str, memory: &Memory) -> Self {
        let mut process = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", test, "--nocapture", "--test-threads=1"])
            .env(TASK, helper_task)
            .stdin(Stdio::from(memory.fd.try_clone().unwrap()))
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(process.stdout.take().unwrap()).lines();
        Self { process, lines, alarm: None }
    }

    pub(crate) fn wait_for_line(&mut self, word: &str) {
        assert!(self.lines.by_ref().map(Result::unwrap).any(|line| line.contains(word)), "it ended without: {word}");
    }

    /// Returns the text behind these words, in the first line that has them.
    pub(crate) fn wait_for_rest_of_line(&mut self, words: &str) -> String {
        let rest = |line: String| line.split_once(words).map(|(_, rest)| rest.to_owned());
        self.lines.by_ref().map(Result::unwrap).find_map(rest).unwrap_or_else(|| panic!("it ended without: {words}"))
    }

    /// Kills the process, and waits for its end.
    pub(crate) fn kill(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }

    /// Stops the process and waits until the kernel reports that. An alarm resumes it after a while, so that a test
    /// that blocks on it fails.
    pub(crate) fn stop(&mut self) {
        let id = Pid::from_child(&self.process);
        let (alarm, off) = channel();
        let thread = std::thread::spawn(move || {
            if off.recv_timeout(2 * WAIT_MAX) == Err(RecvTimeoutError::Timeout) {
                let _ = kill_process(id, Signal::CONT);
            }
        });
        self.alarm = Some((alarm, thread));
        kill_process(id, Signal::STOP).unwrap();
        let start = Instant::now();
        while !self.is_stopped() {
            assert!(start.elapsed() < WAIT_MAX, "it does not stop");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    pub(crate) fn resume(&mut self) {
        self.cancel_alarm();
        kill_process(Pid::from_child(&self.process), Signal::CONT).unwrap();
    }

    pub(crate) fn is_stopped(&self) -> bool {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.process.id())).unwrap();
        // The name stands in brackets before the state, and may contain any characters.
        let (_, rest) = stat.rsplit_once(") ").unwrap();
        rest.starts_with('T')
    }

    fn cancel_alarm(&mut self) {
        if let Some((alarm, thread)) = self.alarm.take() {
            drop(alarm);
            let _ = thread.join();
        }
    }
}

impl Drop for HelperProcess {
    fn drop(&mut self) {
        self.cancel_alarm();
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Returns the task and the memory, in the helper process only.
pub(crate) fn helper_task(bytes: u64) -> Option<(String, Memory)> {
    let helper_task = std::env::var(TASK).ok()?;
    // The helper must not outlive a killed parent.
    set_parent_process_death_signal(Some(Signal::KILL)).unwrap();
    Some((helper_task, Memory { fd: std::io::stdin().as_fd().try_clone_to_owned().unwrap(), bytes }))
}

/// Prints a line for [`HelperProcess::wait_for_line`], in the helper process.
pub(crate) fn print_line(word: &str) {
    writeln!(std::io::stdout().lock(), "{word}").unwrap();
}

/// Waits for a condition, in the helper process.
pub(crate) fn wait_until(what: &str, mut is_there: impl FnMut() -> bool) {
    let start = Instant::now();
    while !is_there() {
        // The process may have been stopped for as long as its parent waits.
        assert!(start.elapsed() < 3 * WAIT_MAX, "waited in vain for {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}
