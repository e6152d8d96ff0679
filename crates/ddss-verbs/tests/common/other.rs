//! Another process that holds some memory's descriptor, and has neither a fabric nor a connection of the test's.

use std::io::{BufRead, BufReader, Lines, Write};
use std::os::fd::AsFd;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process, set_parent_process_death_signal};

use super::{Memory, PATIENCE};

/// By which the other process knows that it is one, and what it has to do.
const TASK: &str = "DDSS_TEST_TASK";

/// See the module. It goes with this value, stopped or not.
pub(crate) struct Other {
    process: Child,
    lines: Lines<BufReader<ChildStdout>>,
    alarm: Option<(Sender<()>, JoinHandle<()>)>,
}

impl Other {
    /// Runs one test of this program, by its whole name, in a process of its own.
    pub(crate) fn start(test: &str, task: &str, memory: &Memory) -> Self {
        let mut process = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", test, "--nocapture", "--test-threads=1"])
            .env(TASK, task)
            .stdin(Stdio::from(memory.fd.try_clone().unwrap()))
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(process.stdout.take().unwrap()).lines();
        Self { process, lines, alarm: None }
    }

    pub(crate) fn hears(&mut self, word: &str) {
        assert!(self.lines.by_ref().map(Result::unwrap).any(|line| line.contains(word)), "it ended without: {word}");
    }

    /// Stops it, and waits until the kernel says that it stands still. Whoever waits for it in a call that does not return
    /// wakes it up after a while, and is found out by that.
    pub(crate) fn stop(&mut self) {
        let id = Pid::from_child(&self.process);
        let (alarm, off) = channel();
        let thread = std::thread::spawn(move || {
            if off.recv_timeout(2 * PATIENCE) == Err(RecvTimeoutError::Timeout) {
                let _ = kill_process(id, Signal::CONT);
            }
        });
        self.alarm = Some((alarm, thread));
        kill_process(id, Signal::STOP).unwrap();
        let start = Instant::now();
        while !self.is_stopped() {
            assert!(start.elapsed() < PATIENCE, "it does not stop");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    pub(crate) fn go_on(&mut self) {
        self.calm();
        kill_process(Pid::from_child(&self.process), Signal::CONT).unwrap();
    }

    pub(crate) fn is_stopped(&self) -> bool {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.process.id())).unwrap();
        // Its name stands in brackets in front of its state, and may have any letters in it.
        let (_, rest) = stat.rsplit_once(") ").unwrap();
        rest.starts_with('T')
    }

    fn calm(&mut self) {
        if let Some((alarm, thread)) = self.alarm.take() {
            drop(alarm);
            let _ = thread.join();
        }
    }
}

impl Drop for Other {
    fn drop(&mut self) {
        self.calm();
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// In the other process: what it has to do, and the memory that it was given. In any other there is nothing to do.
pub(crate) fn task(bytes: u64) -> Option<(String, Memory)> {
    let task = std::env::var(TASK).ok()?;
    // Whoever started it may be killed, and then it is wanted no more.
    set_parent_process_death_signal(Some(Signal::KILL)).unwrap();
    Some((task, Memory { fd: std::io::stdin().as_fd().try_clone_to_owned().unwrap(), bytes }))
}

/// In the other process: a word for [`Other::hears`].
pub(crate) fn say(word: &str) {
    writeln!(std::io::stdout().lock(), "{word}").unwrap();
}

/// In the other process: looks until something is there.
pub(crate) fn look_for(what: &str, mut is_there: impl FnMut() -> bool) {
    let start = Instant::now();
    while !is_there() {
        // It may have been stopped for as long as whoever stopped it has patience.
        assert!(start.elapsed() < 3 * PATIENCE, "waited in vain for {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}
