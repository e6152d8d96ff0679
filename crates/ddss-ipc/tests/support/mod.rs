//! What the tests share: an echo service on a thread of its own, and children that are real processes.
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
    Acceptor, AcceptorConfig, Arrival, AttachOptions, Attachment, Channel, IdleMode, Inbox, IpcServer,
    ProtocolViolation, TracedRequest, WaitClass, WaitOutcome,
};
use rustix::event::{PollFd, PollFlags};

/// Long enough for anything that is going to happen on a loaded machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// What the service saw.
#[derive(Default)]
pub(crate) struct Seen {
    pub(crate) attached: AtomicU64,
    pub(crate) left: AtomicU64,
    pub(crate) answered: AtomicU64,
    pub(crate) rests: AtomicU64,
    pub(crate) resting: AtomicBool,
    pub(crate) wakes: AtomicU64,
    pub(crate) offences: AtomicU64,
}

/// A node's service that answers each request with itself (word 1 inverted), until it is dropped.
pub(crate) struct Echo {
    pub(crate) folder: tempfile::TempDir,
    pub(crate) path: PathBuf,
    pub(crate) seen: Arc<Seen>,
    reception: Option<Acceptor>,
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
        let station = IpcServer::open(NodeId(7)).unwrap();
        let inbox = station.inbox();
        let mut config = AcceptorConfig::new(&station);
        change(&mut config);
        let reception = Acceptor::start(&path, config, inbox.sink()).unwrap();
        let seen = Arc::new(Seen::default());
        let stop = Arc::new(AtomicBool::new(false));
        let thread = {
            let (seen, stop) = (Arc::clone(&seen), Arc::clone(&stop));
            std::thread::spawn(move || serve(station, &seen, &stop))
        };
        Self { folder, path, seen, reception: Some(reception), inbox, stop, thread: Some(thread) }
    }

    /// Waits until that holds.
    pub(crate) fn until(&self, what: &str, holds: impl Fn(&Seen) -> bool) {
        let deadline = Instant::now() + PATIENCE;
        while !holds(&self.seen) {
            assert!(Instant::now() < deadline, "never came: {what}");
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

impl Drop for Echo {
    fn drop(&mut self) {
        self.reception.take().unwrap().stop();
        self.stop.store(true, Ordering::Release);
        self.inbox.ring();
        let ended = self.thread.take().unwrap().join();
        if !std::thread::panicking() {
            ended.unwrap();
        }
    }
}

fn serve(mut station: IpcServer, seen: &Seen, stop: &AtomicBool) {
    let mut batch = Vec::with_capacity(256);
    let mut delayed = Vec::new();
    let mut turn = false;
    let mut idle = 0;
    station.tell_core();
    while !stop.load(Ordering::Acquire) {
        while let Some(arrival) = station.arrival() {
            match arrival {
                Arrival::Attached(session) => {
                    station.adopt(session).unwrap();
                    seen.attached.fetch_add(1, Ordering::Release);
                }
                Arrival::Left(client) => {
                    station.dismiss(client);
                    seen.left.fetch_add(1, Ordering::Release);
                }
            }
        }
        // Both ways of taking requests, turn by turn.
        turn = !turn;
        let taken = if turn {
            station.poll(256, &mut batch)
        } else {
            station.serve(256, &mut |lane: ChannelId, entry: &Entry, _: Option<TracedRequest>| match entry[3] {
                NOW => Some([entry[0], !entry[1], entry[2], entry[3], entry[4], entry[5], entry[6], entry[7]]),
                _ => {
                    batch.push((lane, *entry));
                    None
                }
            })
        };
        for (lane, entry) in batch.drain(..) {
            answer(&mut station, &mut delayed, lane, entry);
        }
        station.flush();
        while let Some(offence) = station.offence() {
            let (ProtocolViolation::Sequence { lane, .. } | ProtocolViolation::Queue { lane }) = offence else {
                panic!("{offence}")
            };
            station.dismiss(lane.client);
            seen.offences.fetch_add(1, Ordering::Release);
        }
        seen.answered.fetch_add(taken as u64, Ordering::Release);
        idle = if taken > 0 { 0 } else { idle + 1 };
        if idle > if station.idling() == IdleMode::Sleep { 0 } else { 2000 } {
            idle = 0;
            rest(&mut station, seen);
            seen.wakes.store(station.counts().wakes, Ordering::Release);
        }
    }
}

/// Word 3 of a request says what is done with it.
pub(crate) const NOW: u64 = 0;
/// Kept, and answered in reverse order by the next [`REVERSE`].
pub(crate) const LATER: u64 = 1;
/// Answers what was kept, newest first, and then itself.
pub(crate) const REVERSE: u64 = 2;
/// Inverts the bytes of the arena that words 4 and 5 (offset, length) name.
pub(crate) const INVERT: u64 = 3;
/// Never answered.
pub(crate) const NEVER: u64 = 4;

fn answer(station: &mut IpcServer, delayed: &mut Vec<(ChannelId, Entry)>, lane: ChannelId, entry: Entry) {
    match entry[3] {
        LATER => return delayed.push((lane, entry)),
        NEVER => return,
        REVERSE => {
            for (lane, mut entry) in delayed.drain(..).rev() {
                entry[1] = !entry[1];
                station.reply(lane, &entry);
            }
        }
        INVERT => {
            let arena = station.arena(lane.client).unwrap();
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
    station.reply(lane, &entry);
}

fn rest(station: &mut IpcServer, seen: &Seen) {
    if station.arm() {
        seen.rests.store(station.counts().rests, Ordering::Release);
        seen.resting.store(true, Ordering::Release);
        let limit = rustix::time::Timespec { tv_sec: 1, tv_nsec: 0 };
        let descriptor = station.descriptor();
        let _ = rustix::event::poll(&mut [PollFd::new(&descriptor, PollFlags::IN)], Some(&limit));
        seen.resting.store(false, Ordering::Release);
        station.disarm();
    }
}

/// Attaches, or fails the test.
pub(crate) fn attach(path: &Path, change: impl FnOnce(&mut AttachOptions)) -> Attachment {
    let mut options = AttachOptions::default();
    options.timeout = PATIENCE;
    options.arena_bytes = 1 << 16;
    options.lanes = 2;
    change(&mut options);
    Attachment::connect(path, &options).unwrap()
}

/// One call: what comes back must be its own answer.
pub(crate) fn call(lane: &mut Channel, class: WaitClass, value: u64) {
    lane.submit([u64::from(lane.index()) << 32, value, value ^ 1, NOW, 4, 5, 6, value ^ 7]).unwrap();
    lane.ring();
    assert_eq!(lane.wait(class, Instant::now() + PATIENCE), WaitOutcome::Ready);
    let entry = lane.reap().unwrap();
    let index = u64::from(lane.index());
    assert_eq!((entry[0] >> 32, entry[1], entry[2], entry[7]), (index, !value, value ^ 1, value ^ 7));
}

/// Runs this test binary again as another process, as the test named `role`, which finds its argument in
/// `DDSS_TEST_ROLE`. The child ends when its standard input does, at the latest.
pub(crate) fn spawn(role: &str, argument: &str) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", role, "--nocapture", "--test-threads=1"])
        .env("DDSS_TEST_ROLE", argument)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap()
}

/// Removes what a killed daemon left behind, the way that the next daemon does.
pub(crate) fn clean_after_a_dead_daemon(path: &Path) {
    let station = IpcServer::open(NodeId(7)).unwrap();
    let sink = station.inbox().sink();
    Acceptor::start(path, AcceptorConfig::new(&station), sink).unwrap().stop();
    std::fs::remove_dir(path.parent().unwrap()).unwrap();
}

/// The argument of a child; a parent has none, and then the test is none.
pub(crate) fn role() -> Option<String> {
    std::env::var("DDSS_TEST_ROLE").ok()
}

/// Descriptors that this process has open.
pub(crate) fn descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

/// Held by tests that count what their process holds.
pub(crate) fn serial() -> std::sync::MutexGuard<'static, ()> {
    static SERIAL: std::sync::Mutex<()> = std::sync::Mutex::new(());
    SERIAL.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}
