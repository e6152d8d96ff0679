//! The progress thread allocates nothing for client calls: measured in every round of whole nodes.

use crate::shard::event_loop::EventLoop;
use crate::{Config, Node};
use ddss_admin::ClusterKey;
use ddss_core::{
    ArenaRange, AtomicOp, Completion, LockRequest, LockToken, Model, NodeId, OpenedSegment, Operation, Outcome,
    Payload, PutConditions, Ranges, ReadOptions, Request, RequestId, SegmentId, Spec,
};
use ddss_ipc::{AttachOptions, Attachment, Channel, Strategy, WaitClass, WaitOutcome};
use ddss_runtime::ProgressTask;
use std::net::SocketAddr;
use std::os::fd::BorrowedFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Allocations of each progress thread in this process, by the folder of its node.
static COUNTS: Mutex<Vec<(PathBuf, Arc<AtomicU64>)>> = Mutex::new(Vec::new());

/// An event loop with counted allocations.
pub(crate) struct Counted {
    node: EventLoop,
    allocations: Arc<AtomicU64>,
}

impl Counted {
    pub(crate) fn new(node: EventLoop, folder: &Path) -> Self {
        let allocations = Arc::new(AtomicU64::new(0));
        COUNTS.lock().unwrap().push((folder.to_owned(), Arc::clone(&allocations)));
        Self { node, allocations }
    }

    fn count<T>(&mut self, work: impl FnOnce(&mut EventLoop) -> T) -> T {
        let mut done = None;
        let counted = allocation_counter::measure(|| done = Some(work(&mut self.node)));
        self.allocations.fetch_add(counted.count_total, Ordering::Relaxed);
        done.unwrap()
    }
}

impl ProgressTask for Counted {
    fn poll(&mut self) -> usize {
        self.count(ProgressTask::poll)
    }

    fn arm(&mut self) -> bool {
        self.count(ProgressTask::arm)
    }

    fn disarm(&mut self) {
        self.count(ProgressTask::disarm);
    }

    fn with_descriptors(&self, wait: &mut dyn FnMut(&[BorrowedFd<'_>])) {
        self.node.with_descriptors(wait);
    }

    fn awake_limit(&self, usual: Duration) -> Duration {
        self.node.awake_limit(usual)
    }

    fn park_limit(&self) -> Duration {
        self.node.park_limit()
    }

    fn finish(&mut self) {
        self.node.finish();
    }
}

/// A node that stops when it is dropped.
struct Home {
    service: Option<Node>,
    folder: PathBuf,
}

impl Home {
    fn start(name: &str, change: impl FnOnce(&mut Config)) -> Self {
        let folder = std::env::temp_dir().join(format!("ddssd-allocation-{name}-{}", std::process::id()));
        let mut config = Config::single(&folder);
        config.pool_bytes = 16 << 20;
        change(&mut config);
        Self { service: Some(Node::start(config).unwrap()), folder }
    }

    fn address(&self) -> SocketAddr {
        self.service.as_ref().unwrap().address().unwrap()
    }

    fn allocations(&self) -> u64 {
        let counts = COUNTS.lock().unwrap();
        let (_, count) = counts.iter().find(|(folder, _)| *folder == self.folder).unwrap();
        count.load(Ordering::Relaxed)
    }

    fn client(&self, strategy: Strategy) -> Caller {
        let mut options = AttachOptions::default();
        (options.strategy, options.channels) = (strategy, 1);
        let attachment = Attachment::connect(self.service.as_ref().unwrap().socket(), &options).unwrap();
        let channel = attachment.take_channel().unwrap();
        Caller { channel, attachment }
    }
}

impl Drop for Home {
    fn drop(&mut self) {
        drop(self.service.take());
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

struct Caller {
    channel: Channel,
    attachment: Attachment,
}

impl Caller {
    fn ask(&mut self, operation: Operation) -> Completion {
        self.channel.submit(Request::new(RequestId(9), operation).encode()).unwrap();
        self.channel.ring_doorbell();
        let patience = Instant::now() + Duration::from_secs(20);
        assert_eq!(self.channel.wait(WaitClass::Polling, patience), WaitOutcome::Ready);
        Completion::decode(&self.channel.reap().unwrap())
    }

    fn done(&mut self, operation: Operation) -> Option<Completion> {
        Some(self.ask(operation)).filter(|completion| completion.outcome == Outcome::Done)
    }

    /// Sends a request with a text in the arena.
    fn by_text(&mut self, text: &[u8], operation: impl Fn(ArenaRange) -> Operation) -> Completion {
        let range = ArenaRange { slot: 0, bytes: text.len() as u32 };
        self.attachment.arena().write(0, text).unwrap();
        self.ask(operation(range))
    }

    fn allocate(&mut self, name: &str) -> SegmentId {
        let text = [&Spec::new(1 << 16).encode()[..], name.as_bytes()].concat();
        let made = self.by_text(&text, |spec_and_name| Operation::Allocate { spec_and_name });
        assert_eq!(made.outcome, Outcome::Done);
        OpenedSegment::decode(&made.data).segment
    }

    /// Makes one call of each frequent kind. Returns `None` if a call failed: on a busy machine two nodes lose each
    /// other now and then.
    fn round(&mut self, segment: SegmentId, sizes: &[u32]) -> Option<()> {
        let range = |bytes| ArenaRange { slot: 1, bytes };
        self.done(Operation::Null)?;
        for &bytes in sizes {
            let from = Payload::Arena(range(bytes));
            self.done(Operation::Put { segment, offset: 0, from, conditions: PutConditions::default() })?;
            for (inline, requested_model) in [(bytes == 8, None), (false, Some(Model::Read))] {
                let options = ReadOptions { requested_model, version: None };
                self.done(Operation::Get { segment, offset: 0, into: range(bytes), inline, options })?;
            }
        }
        let small = Payload::inline(&[7; 16]).unwrap();
        self.done(Operation::Put { segment, offset: 0, from: small, conditions: PutConditions::default() })?;
        let table = Ranges::new([ddss_core::Range { offset: 8, bytes: 8 }, ddss_core::Range { offset: 99, bytes: 9 }]);
        self.attachment.arena().write(0, &table.unwrap().encode()).unwrap();
        let (list, ranges) = (ArenaRange { slot: 0, bytes: 4096 + 17 }, 2);
        self.done(Operation::PutMany { segment, list, ranges, conditions: PutConditions::default() })?;
        self.done(Operation::GetMany { segment, list, ranges, options: ReadOptions::default() })?;
        self.done(Operation::Atomic { segment, offset: 8, change: AtomicOp::Add(1), token: None })?;
        let lock_request = LockRequest { shared: false, no_wait: false, lease_us: 1_000_000, row_offset: None };
        let locked = self.done(Operation::Lock { segment, lock_request })?;
        let token = LockToken(u64::from_le_bytes(std::array::from_fn(|index| locked.data[index])));
        let conditions = PutConditions { token: Some(token), ..PutConditions::default() };
        self.done(Operation::Put { segment, offset: 0, from: Payload::Arena(range(64)), conditions })?;
        self.done(Operation::Unlock { segment, token })?;
        Some(())
    }
}

/// Rounds of one stretch.
const ROUNDS: usize = 20;
/// Attempts, of which one has to be without an allocation: rare work apart from calls (a new node, a new window, a connection that
/// became quiet) may allocate in between, and on a busy machine it comes in most stretches. Allocations for calls would show in
/// every stretch, however short it is.
const STRETCHES: usize = 20;
/// Attempts after those, and their rounds. The last call of a stretch may be counted with the next one, so one round is not enough.
const SHORT_STRETCHES: usize = 400;
const SHORT_ROUNDS: usize = 3;

/// Checks that these nodes allocate nothing in some stretch of calls. Returns the allocations of each stretch
/// otherwise.
fn check_no_allocations(
    homes: &[&Home],
    caller: &mut Caller,
    segment: SegmentId,
    sizes: &[u32],
) -> Result<(), Vec<u64>> {
    let sum = || homes.iter().map(|home| home.allocations()).sum::<u64>();
    let mut counts = Vec::new();
    for turn in 0..=STRETCHES + SHORT_STRETCHES {
        let rounds = if turn > STRETCHES { SHORT_ROUNDS } else { ROUNDS };
        let before = sum();
        let done = (0..rounds).try_for_each(|_| caller.round(segment, sizes)).is_some();
        let count = sum() - before;
        // The first stretch warms up.
        if turn > 0 && done && count == 0 {
            return Ok(());
        }
        counts.push(count);
    }
    Err(counts)
}

#[test]
fn node_does_not_allocate_for_client_calls() {
    // If this failed, every client would wait for the allocator now and then, and a long-lived node would grow.
    let home = Home::start("one", |_| {});
    for strategy in Strategy::ALL {
        let mut caller = home.client(strategy);
        let segment = caller.allocate(&format!("segment-{strategy}"));
        // The reply is visible before its round is counted.
        let patience = Instant::now() + Duration::from_secs(20);
        while home.allocations() == 0 {
            assert!(Instant::now() < patience, "nothing is counted");
            std::thread::yield_now();
        }
        assert_eq!(check_no_allocations(&[&home], &mut caller, segment, &[8, 4096, 1 << 16]), Ok(()), "{strategy}");
    }
}

#[test]
fn two_nodes_do_not_allocate_for_remote_calls() {
    // If this failed, the same would be true of a home and its remote clients.
    let key = ClusterKey::generate().unwrap();
    let first = Home::start("first", |config| {
        (config.key, config.founds_cluster) = (Some(key.clone()), true);
    });
    let second = Home::start("second", |config| {
        (config.key, config.join) = (Some(key.clone()), Some(first.address().into()));
        (config.node, config.is_node_named) = (NodeId(2), true);
    });
    let segment = first.client(Strategy::Auto).allocate("between");
    let mut caller = second.client(Strategy::Auto);
    let patience = Instant::now() + Duration::from_secs(20);
    while caller.by_text(b"between", |name| Operation::Open { name }).outcome != Outcome::Done {
        assert!(Instant::now() < patience, "the nodes do not find each other");
        std::thread::sleep(Duration::from_millis(5));
    }
    // Buffers of a larger transfer are freed when the connection becomes quiet, which on a busy machine happens
    // between any two calls.
    assert_eq!(check_no_allocations(&[&first, &second], &mut caller, segment, &[8, 4096]), Ok(()));
}
