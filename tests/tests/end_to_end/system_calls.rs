//! While clients call, a daemon's progress thread makes no system call: counted by the kernel, on that thread alone.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a test ends where something is not as it should be")]

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use ddss::{Client, ConnectOptions, Segment, Spec, Strategy};
use ddss_testkit::{Daemon, skipped};

const NAME: &str = "busy_progress_thread_makes_no_system_call";
/// Gets and puts of one interval, in which no system call is permitted.
const CALLS: usize = 100;
/// Maximum number of intervals, and sufficient number of silent ones. On a busy machine one side sometimes does not
/// run, and the other sleeps. A client with a system call for each call, or each fiftieth, would have no silent
/// interval.
const STRETCHES: usize = 2_000;
const SILENT_MIN: usize = 5;
const PATIENCE: Duration = Duration::from_secs(20);

/// A tracer. Dropping the value ends it and leaves the traced process running.
pub(crate) struct Tracer(Child);

impl Drop for Tracer {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Finds the progress thread of a daemon.
fn progress_thread(pid: u32) -> Option<String> {
    let threads = std::fs::read_dir(format!("/proc/{pid}/task")).ok()?;
    let is_it =
        |path: &Path| std::fs::read_to_string(path.join("comm")).is_ok_and(|name| name.trim() == "ddss-progress");
    let found = threads.filter_map(|thread| Some(thread.ok()?.path())).find(|path| is_it(path))?;
    Some(found.file_name()?.to_string_lossy().into_owned())
}

/// Traces a thread into a file; returns the reason if that is impossible.
pub(crate) fn trace(pid: u32, thread: &str, into: &Path) -> Result<Tracer, String> {
    let mut command = Command::new("strace");
    command.args(["-qq", "-o"]).arg(into).args(["-p", thread]).stderr(Stdio::null()).stdout(Stdio::null());
    let mut tracer = Tracer(command.spawn().map_err(|error| format!("cannot run strace ({error})"))?);
    let end = Instant::now() + PATIENCE;
    loop {
        let status = std::fs::read_to_string(format!("/proc/{pid}/task/{thread}/status")).unwrap();
        if status.lines().any(|line| line.starts_with("TracerPid:") && !line.ends_with("\t0")) {
            return Ok(tracer);
        }
        if tracer.0.try_wait().unwrap().is_some() || Instant::now() > end {
            return Err("strace cannot trace here".to_owned());
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn call(segment: &Segment) {
    let mut bytes = [1; 8];
    segment.put(0, &bytes).unwrap();
    segment.get_into(0, &mut bytes).unwrap();
}

// If this failed, each call of each client would wait for a system call of the one progress thread.
#[test]
fn busy_progress_thread_makes_no_system_call() {
    if std::thread::available_parallelism().unwrap().get() < 2 {
        return skipped(NAME, "with one core the two sides must take turns");
    }
    let daemon = Daemon::start(1).unwrap();
    let thread = progress_thread(daemon.pid()).expect("a daemon has a progress thread");
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("trace");
    let _tracer = match trace(daemon.pid(), &thread, &path) {
        Ok(tracer) => tracer,
        Err(why) => return skipped(NAME, &why),
    };
    let written = || std::fs::metadata(&path).map_or(0, |file| file.len());
    let open = |strategy: Strategy| {
        let options =
            ConnectOptions::new().directory(daemon.folder()).strategy(strategy).local_reads(false).timeout(PATIENCE);
        Client::connect_with(options).unwrap().segment(&format!("words-{strategy}")).allocate(Spec::new(64)).unwrap()
    };
    // With message queues each call is a system call, which the tracer must see.
    let by_queue = open(Strategy::Mq);
    call(&by_queue);
    let before = written();
    call(&by_queue);
    assert!(written() > before, "the trace comes too late to prove anything");
    for strategy in [Strategy::Rcq, Strategy::Auto] {
        let segment = open(strategy);
        (0..CALLS).for_each(|_| call(&segment));
        let (mut silent, mut stretches) = (0, 0);
        while silent < SILENT_MIN && stretches < STRETCHES {
            let before = written();
            (0..CALLS).for_each(|_| call(&segment));
            silent += usize::from(written() == before);
            stretches += 1;
        }
        println!("{strategy}: {silent} of {stretches} stretches of {} calls without a system call", 2 * CALLS);
        assert!(silent >= SILENT_MIN, "{strategy}: {silent} silent stretches of {stretches}");
    }
}
