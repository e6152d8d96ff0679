//! The calls of the client crate, one at a time.

use std::rc::Rc;

use ddss::{Client, Segment, Strategy};

use super::Cluster;
use crate::harness::{Figure, RoundTrip};

/// Kind of call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// `Segment::get_into`.
    Get,
    /// `Segment::put`.
    Put,
}

impl Kind {
    /// Returns its name in the rows.
    pub fn word(self) -> &'static str {
        match self {
            Kind::Get => "get",
            Kind::Put => "put",
        }
    }
}

struct Ping {
    cluster: Rc<Cluster>,
    client: Client,
}

/// `Client::ping`: to the progress thread of a daemon in another process, through its engine, and back.
pub fn ping(cluster: &Rc<Cluster>, strategy: Strategy) -> Figure {
    let client = cluster.client(strategy);
    cluster.rest();
    let trip = Ping { cluster: Rc::clone(cluster), client };
    Figure::new("ddss", "null", 8, format!("shm/{strategy}/t1"), trip)
}

impl RoundTrip for Ping {
    fn once(&mut self) {
        self.client.ping().expect("the daemon answers");
    }

    fn wake(&mut self) {
        self.cluster.wake();
    }

    fn rest(&mut self) {
        self.cluster.rest();
    }
}

struct InPlace {
    _cluster: Rc<Cluster>,
    segment: Segment,
    bytes: Vec<u8>,
}

/// A get of all of `segment`, at home on the client's own node, while the daemon there is stopped.
pub fn near_get(cluster: &Rc<Cluster>, segment: &Segment) -> Figure {
    cluster.rest();
    let size_bytes = usize::try_from(segment.len()).expect("a segment of a bench is small");
    let trip = InPlace { _cluster: Rc::clone(cluster), segment: segment.clone(), bytes: vec![5; size_bytes] };
    Figure::new("ddss", "get", size_bytes, "near/spin/t1", trip)
}

impl RoundTrip for InPlace {
    fn once(&mut self) {
        self.segment.get_into(0, &mut self.bytes).expect("a local read needs no daemon");
    }
}

struct Call {
    cluster: Rc<Cluster>,
    segment: Segment,
    kind: Kind,
    bytes: Vec<u8>,
}

/// A get or a put of all of `segment`, which a client of `cluster` has opened.
pub fn call(cluster: &Rc<Cluster>, segment: &Segment, kind: Kind, path: &str, strategy: Strategy) -> Figure {
    cluster.rest();
    let size_bytes = usize::try_from(segment.len()).expect("a segment of a bench is small");
    let trip = Call { cluster: Rc::clone(cluster), segment: segment.clone(), kind, bytes: vec![5; size_bytes] };
    Figure::new("ddss", kind.word(), size_bytes, format!("{path}/{strategy}/t1"), trip)
}

impl RoundTrip for Call {
    fn once(&mut self) {
        let Call { segment, kind, bytes, .. } = self;
        let done = match kind {
            Kind::Get => segment.get_into(0, bytes),
            Kind::Put => segment.put(0, bytes),
        };
        done.expect("the home is there");
    }

    fn wake(&mut self) {
        self.cluster.wake();
    }

    fn rest(&mut self) {
        self.cluster.rest();
    }
}

/// Word and operation of an atomic.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Word {
    /// `Word::fetch_add`.
    FetchAdd,
    /// `Word::compare_and_swap`; each finds its expected value.
    CompareSwap,
}

struct Atomic {
    cluster: Rc<Cluster>,
    segment: Segment,
    word: Word,
    now: u64,
}

/// An atomic on the first word of `segment`, without competing writers.
pub fn atomic(cluster: &Rc<Cluster>, segment: &Segment, word: Word, path: &str, strategy: Strategy) -> Figure {
    cluster.wake();
    let now = segment.word(0).fetch_add(0).expect("the home is there").before;
    cluster.rest();
    let op = match word {
        Word::FetchAdd => "fetch_add",
        Word::CompareSwap => "cas",
    };
    let trip = Atomic { cluster: Rc::clone(cluster), segment: segment.clone(), word, now };
    Figure::new("ddss", op, 8, format!("{path}/{strategy}/t1"), trip)
}

impl RoundTrip for Atomic {
    fn once(&mut self) {
        let Atomic { segment, word, now, .. } = self;
        let changed = match word {
            Word::FetchAdd => segment.word(0).fetch_add(1),
            Word::CompareSwap => segment.word(0).compare_and_swap(*now, *now + 1),
        };
        assert_eq!(changed.expect("the home is there").before, *now, "another writer changed the word");
        *now += 1;
    }

    fn wake(&mut self) {
        self.cluster.wake();
    }

    fn rest(&mut self) {
        self.cluster.rest();
    }
}
