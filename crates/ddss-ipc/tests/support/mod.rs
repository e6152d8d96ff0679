//! Shared parts of the tests: an echo service on its own thread, and children that are real processes.
#![allow(dead_code, reason = "each test uses a part of it")]
#![allow(clippy::unwrap_used, reason = "a test")]

pub(crate) mod raw;

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use ddss_core::{ChannelId, Entry, NodeId};
use ddss_ipc::{
    Acceptor, AcceptorConfig, AttachOptions, Attachment, Channel, ClientEvent, IdleMode, Inbox, IpcServer,
    ProtocolViolation, TracedRequest, WaitClass, WaitOutcome,
};
use rustix::event::{PollFd, PollFlags};

/// Time limit for any event on a loaded machine.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(30);

/// Counters of the service.
#[derive(Default)]
pub(crate) struct Seen {
    pub(crate) attached: AtomicU64,
    pub(crate) detached: AtomicU64,
    pub(crate) answered: AtomicU64,
    pub(crate) sleeps: AtomicU64,
    pub(crate) is_sleeping: AtomicBool,
    pub(crate) wakes: AtomicU64,
    pub(crate) violations: AtomicU64,
}

/// A node's service that answers each request with itself (word 1 inverted), until it is dropped.
pub(crate) struct Echo {
    pub(crate) folder: tempfile::TempDir,
    pub(crate) path: PathBuf,
    pub(crate) seen: Arc<Seen>,
    acceptor: Option<Acceptor>,
    inbox: Inbox,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Echo {
    pub(crate) fn start() -> Self {
        Self::with(|_| {})
    }

    pub(crate) fn with(change: impl FnOnce(&mut AcceptorConfig)) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket");
        let server = IpcServer::open(NodeId(7)).unwrap();
        let inbox = server.inbox();
        let mut config = AcceptorConfig::new(&server);
        change(&mut config);
        let acceptor = Acceptor::start(&path, config, inbox.sink()).unwrap();
        let seen = Arc::new(Seen::default());
        let stop = Arc::new(AtomicBool::new(false));
        let thread = {
            let (seen, stop) = (Arc::clone(&seen), Arc::clone(&stop));
            std::thread::spawn(move || serve(server, &seen, &stop))
        };
        Self { folder, path, seen, acceptor: Some(acceptor), inbox, stop, thread: Some(thread) }
    }

    /// Waits until the condition holds.
    pub(crate) fn wait_for(&self, condition: &str, holds: impl Fn(&Seen) -> bool) {
        let deadline = Instant::now() + TIMEOUT;
        while !holds(&self.seen) {
            assert!(Instant::now() < deadline, "timed out waiting for {condition}");
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

impl Drop for Echo {
    fn drop(&mut self) {
        self.acceptor.take().unwrap().stop();
        self.stop.store(true, Ordering::Release);
        self.inbox.wake_server();
        let ended = self.thread.take().unwrap().join();
        if !std::thread::panicking() {
            ended.unwrap();
        }
    }
}

fn serve(mut server: IpcServer, seen: &Seen, stop: &AtomicBool) {
    let mut batch = Vec::with_capacity(256);
    let mut delayed = Vec::new();
    let mut answers_later = false;
    let mut idle = 0;
    server.publish_load(Instant::now());
    while !stop.load(Ordering::Acquire) {
        while let Some(next_event) = server.next_event() {
            match next_event {
                ClientEvent::Attached(session) => {
                    server.add_client(session).unwrap();
                    seen.attached.fetch_add(1, Ordering::Release);
                }
                ClientEvent::Detached(client) => {
                    server.remove_client(client);
                    seen.detached.fetch_add(1, Ordering::Release);
                }
            }
        }
        // Answers at once and later by turns.
        answers_later = !answers_later;
        let taken =
            server.serve(256, &mut |channel: ChannelId, entry: &Entry, _: Option<TracedRequest>| match entry[3] {
                NOW if !answers_later => {
                    Some([entry[0], !entry[1], entry[2], entry[3], entry[4], entry[5], entry[6], entry[7]])
                }
                _ => {
                    batch.push((channel, *entry));
                    None
                }
            });
        for (channel, entry) in batch.drain(..) {
            answer(&mut server, &mut delayed, channel, entry);
        }
        server.flush();
        while let Some(violation) = server.next_violation() {
            let (ProtocolViolation::Sequence { channel, .. } | ProtocolViolation::Queue { channel }) = violation else {
                panic!("{violation}")
            };
            server.remove_client(channel.client);
            seen.violations.fetch_add(1, Ordering::Release);
        }
        seen.answered.fetch_add(taken as u64, Ordering::Release);
        idle = if taken > 0 { 0 } else { idle + 1 };
        if idle > if server.idle_mode() == IdleMode::Sleep { 0 } else { 2000 } {
            idle = 0;
            sleep_once(&mut server, seen);
            seen.wakes.store(server.counts().wakes, Ordering::Release);
        }
    }
}

/// Values of word 3 of a request, which select its handling. This one: answer immediately.
pub(crate) const NOW: u64 = 0;
/// Deferred, and answered in reverse order by the next [`REVERSE`].
pub(crate) const LATER: u64 = 1;
/// Answers the deferred requests, newest first, and then itself.
pub(crate) const REVERSE: u64 = 2;
/// Inverts the bytes of the arena that words 4 and 5 (offset, length) name.
pub(crate) const INVERT: u64 = 3;
/// Never answered.
pub(crate) const NEVER: u64 = 4;

fn answer(server: &mut IpcServer, delayed: &mut Vec<(ChannelId, Entry)>, channel: ChannelId, entry: Entry) {
    match entry[3] {
        LATER => return delayed.push((channel, entry)),
        NEVER => return,
        REVERSE => {
            for (channel, mut entry) in delayed.drain(..).rev() {
                entry[1] = !entry[1];
                server.reply(channel, &entry);
            }
        }
        INVERT => {
            let arena = server.arena(channel.client).unwrap();
            let mut bytes = vec![0; entry[5].min(1 << 20) as usize];
            if arena.read(entry[4] as usize, &mut bytes).is_ok() {
                bytes.iter_mut().for_each(|byte| *byte = !*byte);
                arena.write(entry[4] as usize, &bytes).unwrap();
            }
        }
        _ => {}
    }
    let mut entry = entry;
    entry[1] = !entry[1];
    server.reply(channel, &entry);
}

fn sleep_once(server: &mut IpcServer, seen: &Seen) {
    if server.arm() {
        seen.sleeps.store(server.counts().sleeps, Ordering::Release);
        seen.is_sleeping.store(true, Ordering::Release);
        let limit = rustix::time::Timespec { tv_sec: 1, tv_nsec: 0 };
        let descriptor = server.descriptor();
        let _ = rustix::event::poll(&mut [PollFd::new(&descriptor, PollFlags::IN)], Some(&limit));
        seen.is_sleeping.store(false, Ordering::Release);
        server.disarm();
    }
}

/// Attaches, or fails the test.
pub(crate) fn attach(path: &Path, change: impl FnOnce(&mut AttachOptions)) -> Attachment {
    let mut options = AttachOptions::default();
    options.timeout = TIMEOUT;
    options.arena_bytes = 1 << 16;
    options.channels = 2;
    change(&mut options);
    Attachment::connect(path, &options).unwrap()
}

/// Makes one call and checks that the reply is its own.
pub(crate) fn call(channel: &mut Channel, class: WaitClass, value: u64) {
    channel.submit([u64::from(channel.index()) << 32, value, value ^ 1, NOW, 4, 5, 6, value ^ 7]).unwrap();
    channel.ring_doorbell();
    assert_eq!(channel.wait(class, Instant::now() + TIMEOUT), WaitOutcome::Ready);
    let entry = channel.reap().unwrap();
    let index = u64::from(channel.index());
    assert_eq!((entry[0] >> 32, entry[1], entry[2], entry[7]), (index, !value, value ^ 1, value ^ 7));
}

/// Runs this test binary as another process, as the test named `role`, which finds its argument in `DDSS_TEST_ROLE`.
/// The child ends with its standard input at the latest.
pub(crate) fn spawn(role: &str, argument: &str) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", role, "--nocapture", "--test-threads=1"])
        .env("DDSS_TEST_ROLE", argument)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap()
}

/// Removes the leftovers of a killed daemon, as the next daemon does.
pub(crate) fn clean_after_a_dead_daemon(path: &Path) {
    let server = IpcServer::open(NodeId(7)).unwrap();
    let sink = server.inbox().sink();
    Acceptor::start(path, AcceptorConfig::new(&server), sink).unwrap().stop();
    std::fs::remove_dir(path.parent().unwrap()).unwrap();
}

/// Returns the argument of a child; a parent has none and skips the test.
pub(crate) fn role() -> Option<String> {
    std::env::var("DDSS_TEST_ROLE").ok()
}

/// Counts the open descriptors of this process.
pub(crate) fn descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

/// Lock of the tests that count the resources of their process.
pub(crate) fn serial() -> std::sync::MutexGuard<'static, ()> {
    static SERIAL: std::sync::Mutex<()> = std::sync::Mutex::new(());
    SERIAL.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}
