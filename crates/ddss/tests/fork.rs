//! A client on both sides of `fork`. The child copies this process, so this file has one test. The daemon is a process of its own:
//! it sees which of the others has ended.
#![allow(clippy::unwrap_used, reason = "a test ends where something is not as it should be")]

use ddss::{Client, ConnectOptions, ErrorKind, LockOptions, Segment, Strategy, aio};
use rustix::process::{Pid, Signal, WaitOptions, WaitStatus, kill_process, waitpid};
use std::future::Future;
use std::io::{Read, Write, pipe};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::mpsc::channel;
use std::task::{Context, Waker};
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(60);
/// Step of the child; its exit code if the step fails.
static STEP: AtomicI32 = AtomicI32::new(0);

/// Runs `work` in a child of this process.
fn in_child(work: impl FnOnce()) -> Pid {
    // SAFETY: the child ends after `work`. No other thread of this process holds a lock that `work` needs.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let failed = catch_unwind(AssertUnwindSafe(work)).is_err();
        // SAFETY: the child has nothing to clean up.
        unsafe { libc::_exit(if failed { STEP.load(Ordering::Relaxed) } else { 0 }) };
    }
    Pid::from_raw(child).expect("the kernel has room for a process")
}

/// Waits for the end of a child; kills it if it does not end.
fn exit_of(child: Pid) -> Option<WaitStatus> {
    let end = Instant::now() + PATIENCE;
    while Instant::now() < end {
        if let Some((_, status)) = waitpid(Some(child), WaitOptions::NOHANG).unwrap() {
            return Some(status);
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    kill_process(child, Signal::KILL).unwrap();
    waitpid(Some(child), WaitOptions::empty()).unwrap();
    None
}

/// Returns the number of threads of this process with that name.
fn threads(name: &str) -> usize {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap();
    let names = tasks.filter_map(|task| std::fs::read_to_string(task.unwrap().path().join("comm")).ok());
    names.filter(|found| found.trim() == name).count()
}

/// Returns the number of threads of this process.
fn all_threads() -> usize {
    std::fs::read_dir("/proc/self/task").unwrap().count()
}

fn block_on<F: Future>(ended: F) -> F::Output {
    tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(ended)
}

/// Puts and gets values of this process.
fn count(segment: &Segment, offset: u64) {
    for turn in 0..2000u64 {
        segment.put(offset, &turn.to_le_bytes()).unwrap();
        assert_eq!(segment.get(offset..offset + 8).unwrap()[..], turn.to_le_bytes());
    }
}

/// Sets the exit code of the child.
fn step(number: i32) {
    STEP.store(number, Ordering::Relaxed);
}

/// Waits for the end of a child, in which nothing may have failed.
fn ends_well(child: Pid, what: &str) {
    let ended = exit_of(child).expect("the child ends");
    assert_eq!(ended.exit_status(), Some(0), "{what}: the child failed in that step");
}

/// A daemon in a process of its own.
struct Daemon {
    folder: PathBuf,
    process: Option<Pid>,
}

impl Daemon {
    fn start() -> Self {
        let folder = std::env::temp_dir().join(format!("ddss-fork-{}", std::process::id()));
        Self { process: Some(Self::run(&folder)), folder }
    }

    /// Starts the process, and returns when it is ready. It ends with this one.
    fn run(folder: &Path) -> Pid {
        let (mut ready, is_ready) = pipe().unwrap();
        let process = in_child(|| {
            rustix::process::set_parent_process_death_signal(Some(Signal::KILL)).unwrap();
            let mut config = ddssd::Config::single(folder);
            config.pool_bytes = 8 << 20;
            let _node = ddssd::Node::start(config).unwrap();
            drop(is_ready);
            loop {
                std::thread::park();
            }
        });
        assert_eq!(ready.read(&mut [0]).unwrap(), 0, "the daemon writes nothing");
        process
    }

    fn kill(&mut self) {
        if let Some(process) = self.process.take() {
            kill_process(process, Signal::KILL).unwrap();
            waitpid(Some(process), WaitOptions::empty()).unwrap();
        }
    }

    fn options(&self) -> ConnectOptions {
        ConnectOptions::new().directory(&self.folder).timeout(PATIENCE).local_reads(false)
    }

    fn connect(&self) -> Client {
        Client::connect_with(self.options()).unwrap()
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        self.kill();
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

#[test]
fn child_attaches_by_itself_and_leaves_its_parent_alone() {
    // Forked before this process has any thread of a client.
    let mut daemon = Daemon::start();
    child_with_inherited_tasks_and_guard(&daemon);
    for strategy in [Strategy::Auto, Strategy::Rmq] {
        child_of_a_blocking_client(&daemon, strategy);
    }
    child_that_is_the_first_to_use_tasks(&daemon);
    daemon_sees_the_end_of_a_parent_whose_child_lives(&daemon);
    for _ in 0..3 {
        fork_during_a_search(&mut daemon);
    }
}

fn child_with_inherited_tasks_and_guard(daemon: &Daemon) {
    // If this broke, each would take the completions of the other: bytes of another call, and puts that never went out.
    let client = daemon.connect();
    let (segment, word) =
        (client.segment("values").allocate(128).unwrap(), client.segment("word").allocate(8).unwrap());
    let kept = LockOptions::new().lease(PATIENCE).keep_alive();
    let guard = client.segment("locked").allocate(64).unwrap().lock_with(kept).unwrap();
    let tasks = client.aio().unwrap();
    block_on(tasks.ping()).unwrap();
    let watched = aio::Segment::from(&word);
    let mut newer = Box::pin(async move { watched.wait_newer_than(ddss::Version(0)).await });
    assert!(newer.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    let mut inherited = Some((client, segment, tasks, guard, newer));
    let child = in_child(|| {
        let (client, segment, tasks, guard, newer) = inherited.take().unwrap();
        step(1);
        drop(newer);
        count(&segment, 64);
        step(2);
        block_on(tasks.ping()).unwrap();
        step(3);
        assert_eq!(guard.put(0, b"child").unwrap_err().kind(), ErrorKind::LockLost);
        step(4);
        assert_eq!(threads("ddss-leases"), 0);
        let own = client.segment("own").allocate(64).unwrap().lock_with(kept).unwrap();
        // A new thread names itself.
        let end = Instant::now() + PATIENCE;
        while threads("ddss-leases") != 1 {
            assert!(Instant::now() < end, "no thread renews the leases of the child");
            std::thread::sleep(Duration::from_millis(1));
        }
        own.put(0, b"child").unwrap();
        step(5);
        drop((own, guard, tasks, segment, client));
    });
    let (client, segment, tasks, guard, newer) = inherited.take().unwrap();
    count(&segment, 0);
    ends_well(child, "tasks and a guard");
    guard.put(0, b"parent").unwrap();
    guard.renew().unwrap();
    assert_eq!(threads("ddss-hangup"), 1, "the parent still learns of the end of its daemon");
    word.put(0, b"newer").unwrap();
    assert_eq!(block_on(newer).unwrap().version.0, 1);
    block_on(tasks.ping()).unwrap();
    client.ping().unwrap();
    client.segment("values").open().unwrap().release().unwrap();
    word.release().unwrap();
    guard.release().unwrap();
}

fn child_of_a_blocking_client(daemon: &Daemon, strategy: Strategy) {
    // If this broke, the child would detach its own thread in place of one of its parent, and fail where it joins it.
    let client = Client::connect_with(daemon.options().strategy(strategy)).unwrap();
    let segment = client.segment("values").allocate(128).unwrap();
    let mut inherited = Some((client, segment));
    let child = in_child(|| {
        let (client, segment) = inherited.take().unwrap();
        step(1);
        count(&segment, 64);
        step(2);
        drop((segment, client));
        // The kernel lists a thread that was joined for a moment.
        let end = Instant::now() + PATIENCE;
        while all_threads() > 1 {
            assert!(Instant::now() < end, "the client of the child has ended");
            std::thread::sleep(Duration::from_millis(1));
        }
    });
    let (client, segment) = inherited.take().unwrap();
    count(&segment, 0);
    ends_well(child, "blocking calls");
    segment.release().unwrap();
    client.ping().unwrap();
}

fn child_that_is_the_first_to_use_tasks(daemon: &Daemon) {
    // If this broke, a thread of the child would take the wake-ups of its parent.
    let client = daemon.connect();
    client.ping().unwrap();
    let child = in_child(|| {
        step(1);
        let tasks = client.aio().unwrap();
        assert_eq!(all_threads(), 3, "with its own reactor, and its own monitor of the daemon");
        step(2);
        block_on(tasks.ping()).unwrap();
    });
    let tasks = client.aio().unwrap();
    let (ended, end) = channel();
    std::thread::spawn(move || {
        (0..1000).for_each(|_| block_on(tasks.ping()).unwrap());
        ended.send(()).unwrap();
    });
    end.recv_timeout(PATIENCE).expect("each call of the parent ends");
    ends_well(child, "tasks of the child");
}

fn daemon_sees_the_end_of_a_parent_whose_child_lives(daemon: &Daemon) {
    // If this broke, the locks of a leader that was killed would stay as long as a process that it has forked.
    let long = LockOptions::new().lease(Duration::from_secs(600));
    for with_tasks in [false, true] {
        let (mut is_called, mut called) = pipe().unwrap();
        let parent = in_child(|| {
            let client = daemon.connect();
            let tasks = with_tasks.then(|| client.aio().unwrap());
            tasks.iter().for_each(|tasks| block_on(tasks.ping()).unwrap());
            let guard = client.segment("led").allocate(64).unwrap().lock_with(long).unwrap();
            let mut inherited = Some((client, tasks, guard));
            in_child(|| {
                let (client, tasks, guard) = inherited.take().unwrap();
                drop(guard);
                client.ping().unwrap();
                tasks.iter().for_each(|tasks| block_on(tasks.ping()).unwrap());
                called.write_all(&std::process::id().to_ne_bytes()).unwrap();
                drop(called);
                std::thread::sleep(2 * PATIENCE);
            });
            std::thread::sleep(2 * PATIENCE);
        });
        let mut child = [0; 4];
        is_called.read_exact(&mut child).unwrap();
        kill_process(parent, Signal::KILL).unwrap();
        waitpid(Some(parent), WaitOptions::empty()).unwrap();
        let led = daemon.connect().segment("led").open().unwrap();
        led.lock().expect("the daemon has seen the end of the leader").unlock().unwrap();
        led.release().unwrap();
        kill_process(Pid::from_raw(i32::from_ne_bytes(child)).unwrap(), Signal::KILL).expect("the child lives");
    }
}

fn fork_during_a_search(daemon: &mut Daemon) {
    // If this broke, a child of this moment would find no daemon for ever: a thread that it does not have searches.
    let client = daemon.connect();
    let tasks = client.aio().unwrap();
    daemon.kill();
    let mut called = Box::pin(async move { tasks.ping().await });
    while threads("ddss-search") == 0 {
        assert!(called.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
        std::thread::sleep(Duration::from_millis(1));
    }
    let child = in_child(|| {
        step(1);
        client.ping().unwrap();
        step(2);
        block_on(client.aio().unwrap().ping()).unwrap();
    });
    daemon.process = Some(Daemon::run(&daemon.folder));
    ends_well(child, "a search");
    block_on(called).unwrap();
    client.ping().unwrap();
}
