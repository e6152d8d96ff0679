//! A client on both sides of `fork`. The child copies this process, so this file has one test.
#![allow(clippy::unwrap_used, reason = "a test ends where something is not as it should be")]

use ddss::{Client, ConnectOptions, ErrorKind, LockOptions, Segment, aio};
use rustix::process::{Pid, Signal, WaitOptions, WaitStatus, kill_process, waitpid};
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicI32, Ordering};
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

#[test]
fn child_attaches_by_itself_and_leaves_the_calls_of_its_parent_alone() {
    // If this broke, each would take the completions of the other: bytes of another call, and puts that never went out.
    let node = ddssd::EphemeralNode::start().unwrap();
    let options = ConnectOptions::new().directory(node.folder()).timeout(PATIENCE).local_reads(false);
    let client = Client::connect_with(options).unwrap();
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
        let step = |number| STEP.store(number, Ordering::Relaxed);
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
    let ended = exit_of(child).expect("the child ends");
    assert_eq!(ended.exit_status(), Some(0), "the child failed in that step");
    guard.put(0, b"parent").unwrap();
    guard.renew().unwrap();
    assert_eq!(threads("ddss-hangup"), 1, "the parent still learns of the end of its daemon");
    word.put(0, b"newer").unwrap();
    assert_eq!(block_on(newer).unwrap().version.0, 1);
    block_on(tasks.ping()).unwrap();
    client.ping().unwrap();
}
