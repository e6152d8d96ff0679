//! One-sided operations between two fabrics, each on a core of its own, without a daemon.

use std::cell::RefCell;
use std::net::{Ipv4Addr, SocketAddr};
use std::rc::Rc;
use std::sync::mpsc;
use std::thread;

use ddss_ipc::SharedMemory;
use ddss_verbs::{
    Event, Events, Fabric, Iwarp, IwarpConfig, LocalRange, PeerId, RegionId, RemoteRange, Rights, Trust, Window, Work,
};

use crate::harness::{Cores, Figure, RoundTrip, Service, Spinner, Turn};

/// Registered bytes on each side: 32 of the largest transfers side by side.
const REGION_BYTES: usize = 4 << 20;
/// Offset of the word for atomics, behind the area for reads and writes.
const WORD_OFFSET: u64 = REGION_BYTES as u64 - 8;
/// Polls of the home within one turn.
const POLLS_PER_TURN: u32 = 64;
/// Polls within which two ends of a loopback connection have met.
const MEET_POLLS_MAX: u32 = 10_000_000;

/// Operation on the memory of the other side.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FabricOp {
    /// Reads.
    Read,
    /// Writes, followed by a read of 8 bytes: only that proves that they are in memory.
    Write,
    /// Compare and swap of a word; each finds its expected value.
    CompareSwap,
    /// Fetch and add on a word.
    FetchAdd,
}

/// The client's end; the home's end is its service.
pub struct FabricPair {
    pub(super) fabric: Iwarp,
    events: Events,
    pub(super) peer: PeerId,
    pub(super) window: Window,
    pub(super) region: RegionId,
    word: u64,
    pub(super) service: Service,
    yields: bool,
}

impl FabricPair {
    /// Creates two connected ends; the home sleeps.
    pub fn connect(cores: Cores, crc: bool) -> Rc<RefCell<FabricPair>> {
        let fabric = move |trust| {
            let mut config = IwarpConfig::default();
            config.crc = crc;
            let mut fabric = Iwarp::new(config).expect("a fabric needs no more than an epoll");
            let memory = SharedMemory::create("ddss-bench", REGION_BYTES).expect("4 MiB are to be had");
            let registered = fabric.register(memory.descriptor(), trust, 0, REGION_BYTES as u64);
            (fabric, registered.expect("sealed memory can be registered"))
        };
        let (tell, told) = mpsc::channel();
        // Created on a thread of its own, as in a process of its own: data of both sides must not share cache lines.
        let home = thread::spawn(move || {
            // As in a daemon: clients write into the memory that they read into, and only the home writes its segments.
            let (mut home, region) = fabric(Trust::Exclusive);
            let address = home.listen(SocketAddr::from((Ipv4Addr::LOCALHOST, 0))).expect("loopback listens");
            tell.send(address).expect("the receiver is alive");
            let window = admit(&mut home, region);
            (home, window)
        });
        let (mut fabric, region) = fabric(Trust::Sealed);
        let peer = fabric.connect(told.recv().expect("it listens"), b"").expect("loopback connects");
        until(&mut fabric, |_, event| matches!(event, Event::Connected { .. }).then_some(()));
        let (mut home, window) = home.join().expect("it was asked");
        let yields = cores.is_shared();
        let mut events = Events::new();
        let service = Service::start(cores, move || {
            for _ in 0..POLLS_PER_TURN {
                home.poll(&mut events);
                events.clear();
            }
            if yields {
                thread::yield_now();
            }
            Turn::Again
        });
        let pair = FabricPair { fabric, events: Events::new(), peer, window, region, word: 0, service, yields };
        Rc::new(RefCell::new(pair))
    }

    /// Polls until `left` operations have succeeded; returns the outcome of the last one.
    pub(super) fn finish(&mut self, mut left: usize) -> u64 {
        let mut last = 0;
        while left > 0 {
            let (ended, outcome) = self.some();
            left -= ended;
            last = outcome;
        }
        last
    }

    /// Polls until some operations have succeeded; returns their number and the outcome of the last one.
    pub(super) fn some(&mut self) -> (usize, u64) {
        let mut spinner = Spinner::new(self.yields);
        while self.fabric.poll(&mut self.events) == 0 {
            spinner.again();
        }
        let (mut ended, mut last) = (0, 0);
        for event in self.events.iter() {
            let Event::Done { outcome, .. } = event else { panic!("the connection is gone: {event:?}") };
            last = outcome.expect("the other side does what it is asked");
            ended += 1;
        }
        self.events.clear();
        (ended, last)
    }
}

/// Accepts the connection, and exposes all of the home's memory to it.
fn admit(home: &mut Iwarp, region: RegionId) -> Window {
    let window = until(home, |home, event| match event {
        Event::ConnectRequest { peer, .. } => {
            let rights = Rights::READ.union(Rights::WRITE).union(Rights::ATOMIC);
            let opened = home.expose(peer, region, 0, REGION_BYTES as u64, rights);
            home.accept(peer, b"").expect("it asked");
            Some(opened.expect("a fresh peer has room for a window"))
        }
        _ => None,
    });
    until(home, |_, event| matches!(event, Event::Connected { .. }).then_some(()));
    window
}

/// Polls for one kind of event.
fn until<T>(fabric: &mut Iwarp, mut found: impl FnMut(&mut Iwarp, Event<'_>) -> Option<T>) -> T {
    let mut events = Events::new();
    for _ in 0..MEET_POLLS_MAX {
        fabric.poll(&mut events);
        if let Some(found) = events.iter().find_map(|event| found(fabric, event)) {
            return found;
        }
        events.clear();
        thread::yield_now();
    }
    panic!("two ends of a loopback connection do not meet");
}

struct OneSided {
    pair: Rc<RefCell<FabricPair>>,
    op: FabricOp,
    bytes: u64,
    outstanding: usize,
    batch: Vec<Work<'static>>,
}

/// `outstanding` operations of `size_bytes` at a time, posted as one batch, over the path `path`.
pub fn one_sided(
    pair: &Rc<RefCell<FabricPair>>,
    op: FabricOp,
    path: &str,
    size_bytes: usize,
    outstanding: usize,
) -> Figure {
    let word = match op {
        FabricOp::Read => "read",
        FabricOp::Write => "write",
        FabricOp::CompareSwap => "cas",
        FabricOp::FetchAdd => "fetch_add",
    };
    let side_by_side = size_bytes * outstanding <= WORD_OFFSET as usize;
    assert!(side_by_side, "{outstanding} of {size_bytes} bytes do not lie side by side");
    let batch = Vec::with_capacity(outstanding + 1);
    let trip = OneSided { pair: Rc::clone(pair), op, bytes: size_bytes as u64, outstanding, batch };
    let figure = Figure::new("ddss", word, size_bytes, format!("{path}/spin/t1"), trip).outstanding(outstanding);
    if op == FabricOp::Write { figure.note("with a read behind each batch, which proves it placed") } else { figure }
}

impl OneSided {
    fn fill(&mut self, pair: &FabricPair) {
        let (peer, key, base) = (pair.peer, pair.window.key, pair.window.base);
        let remote_word = RemoteRange { key, address: base + WORD_OFFSET };
        self.batch.clear();
        for index in 0..self.outstanding as u64 {
            let (tag, offset) = (index, index * self.bytes);
            let local = LocalRange { region: pair.region, offset, bytes: self.bytes };
            let remote = RemoteRange { key, address: base + offset };
            let compare = pair.word + index;
            self.batch.push(match self.op {
                FabricOp::Read => Work::Read { peer, tag, local, remote },
                FabricOp::Write => Work::Write { peer, tag, local, remote },
                FabricOp::FetchAdd => Work::FetchAdd { peer, tag, remote: remote_word, add: 1 },
                FabricOp::CompareSwap => {
                    Work::CompareSwap { peer, tag, remote: remote_word, compare, swap: compare + 1 }
                }
            });
        }
        if self.op == FabricOp::Write {
            let local = LocalRange { region: pair.region, offset: WORD_OFFSET, bytes: 8 };
            self.batch.push(Work::Read { peer, tag: 0, local, remote: remote_word });
        }
    }
}

impl RoundTrip for OneSided {
    fn once(&mut self) {
        let shared = Rc::clone(&self.pair);
        let mut pair = shared.borrow_mut();
        self.fill(&pair);
        pair.fabric.post(&self.batch).expect("a batch fits");
        let last = pair.finish(self.batch.len());
        if matches!(self.op, FabricOp::CompareSwap | FabricOp::FetchAdd) {
            // The last one found the previous one's value, so all succeeded.
            pair.word += self.outstanding as u64;
            assert_eq!(last + 1, pair.word, "an atomic found another word");
        }
    }

    fn operations(&self) -> u64 {
        self.outstanding as u64
    }

    fn wake(&mut self) {
        self.pair.borrow().service.wake();
    }

    fn rest(&mut self) {
        self.pair.borrow().service.rest();
    }
}
