//! Many operations outstanding: the client crate's requests, written into one channel by the bench itself, because the
//! crate's calls wait one by one.

use std::rc::Rc;
use std::time::{Duration, Instant};

use ddss::{SegmentId, Strategy};
use ddss_core::limits::ARENA_SLOT_BYTES;
use ddss_core::{
    ArenaRange, Completion, Entry, Operation, Outcome, Payload, PutConditions, ReadOptions, Request, RequestId,
};
use ddss_ipc::{AttachOptions, Attachment, Channel, WaitClass, WaitOutcome};

use super::{Cluster, Kind};
use crate::harness::{Figure, RoundTrip};

/// Time limit for an answer.
const ANSWER_MAX: Duration = Duration::from_secs(20);

/// Repeated request.
#[derive(Debug, Clone, Copy)]
pub enum Task {
    /// A null call.
    Null,
    /// A get of that many bytes.
    Transfer(Kind, SegmentId, usize),
}

struct Pipeline {
    cluster: Rc<Cluster>,
    channel: Channel,
    requests: Vec<Entry>,
    _attachment: Attachment,
}

/// `outstanding` operations at a time: all are submitted, the doorbell is rung once, all are reaped.
pub fn pipeline(cluster: &Rc<Cluster>, task: Task, path: &str, strategy: Strategy, outstanding: usize) -> Figure {
    let mut options = AttachOptions::default();
    options.strategy = strategy;
    options.channels = 1;
    cluster.wake();
    let attachment = Attachment::connect(&cluster.own().socket(), &options).expect("the daemon takes clients");
    let channel = attachment.take_channel().expect("a fresh attachment has a channel");
    cluster.rest();
    let requests = (0..outstanding).map(|index| request(task, index).encode()).collect();
    let (op, size_bytes) = match task {
        Task::Null => ("null", 8),
        Task::Transfer(kind, _, bytes) => (kind.word(), bytes),
    };
    let trip = Pipeline { cluster: Rc::clone(cluster), channel, requests, _attachment: attachment };
    Figure::new("ddss", op, size_bytes, format!("{path}/{strategy}/t1"), trip).outstanding(outstanding)
}

/// Creates the request with this index; each request has arena slots of its own.
fn request(task: Task, index: usize) -> Request {
    let operation = match task {
        Task::Null => Operation::Null,
        Task::Transfer(kind, segment, bytes) => {
            let slot = (index * bytes.div_ceil(ARENA_SLOT_BYTES)) as u32;
            let range = ArenaRange { slot, bytes: bytes as u32 };
            match kind {
                Kind::Get => {
                    Operation::Get { segment, offset: 0, into: range, inline: false, options: ReadOptions::default() }
                }
                Kind::Put => Operation::Put {
                    segment,
                    offset: 0,
                    from: Payload::Arena(range),
                    conditions: PutConditions::default(),
                },
            }
        }
    };
    Request::new(RequestId(index as u64), operation)
}

impl RoundTrip for Pipeline {
    fn once(&mut self) {
        for request in &self.requests {
            self.channel.submit(*request).expect("as many fit as are under way");
        }
        self.channel.ring_doorbell();
        let mut left = self.requests.len();
        while left > 0 {
            while let Some(entry) = self.channel.reap() {
                assert_eq!(Completion::decode(&entry).outcome, Outcome::Done);
                left -= 1;
            }
            if left > 0 {
                let waited = self.channel.wait(WaitClass::Polling, Instant::now() + ANSWER_MAX);
                assert_eq!(waited, WaitOutcome::Ready, "no answer");
            }
        }
    }

    fn operations(&self) -> u64 {
        self.requests.len() as u64
    }

    fn wake(&mut self) {
        self.cluster.wake();
    }

    fn rest(&mut self) {
        self.cluster.rest();
    }
}
