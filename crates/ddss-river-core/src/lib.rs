//! Engines of data flow between processes: a slow node costs its share of the speed and no more.
//!
//! The crate performs no I/O, reads no clock, starts no thread and draws no random number: events go in, the actions that
//! they cause come out. A driver executes the actions over a fabric; the simulator executes them in virtual time.
//!
//! - [`Producer`] and [`Consumer`] are the two ends of a queue. [`QueueConfig`] has their settings and limits.
//! - [`PartReader`] reads a mirrored part from both of its nodes. [`ChunkServer`] serves the readers that lag behind.
//! - [`Worker`] claims units of lists in a table, takes over those of dead workers, and finishes them.
//! - [`FlowGraph`] joins modules by edges, and refuses what cannot run.
//! - `model` has the vocabulary, `codec` the bytes of the messages between members, `delivery` the rules for messages of a
//!   lost consumer.
//!
//! Words: a *message* is bytes of the application. An *attempt* is one transfer of a message to a consumer. A *credit* is a
//! free slot of a producer's ring at a consumer. A *recall* takes back a message that its consumer has not begun. A consumer
//! is *lost* when its connection ends, and *dead* when the coordinator says so; a lost consumer may come back.
//!
//! The driver has to promise:
//!
//! - What one member sends to another arrives in order, and behind all writes that were posted before it.
//! - Nothing of a connection arrives after [`ProducerEvent::Lost`] or [`ConsumerEvent::Lost`], and a new connection begins only
//!   after both sides have reported the end of the old one.
//!
//! ```
//! use ddss_river_core::{Consumer, ConsumerEvent, ConsumerId, EdgeId, Moment, Producer, ProducerAction, ProducerEvent};
//! use ddss_river_core::{ConsumerAction, ProducerId, QueueConfig, Take};
//!
//! let (p, c) = (ProducerId(0), ConsumerId(0));
//! let mut producer = Producer::new(EdgeId(0), p, QueueConfig::default())?;
//! let mut consumer = Consumer::new(EdgeId(0), c, QueueConfig::default())?;
//! let (mut sent, mut replies) = (Vec::new(), Vec::new());
//! let moment = Moment { now_us: 0, random: 7 };
//! producer.handle(ProducerEvent::Connected(c), moment, &mut sent);
//! consumer.handle(ConsumerEvent::Connected(p), &mut replies)?;
//!
//! // The first `take` asks for messages; the producer then writes one, and a header behind it.
//! assert_eq!(consumer.take(0, &mut replies), Take::Empty);
//! let Some(ConsumerAction::Send { notice, .. }) = replies.pop() else { panic!("the consumer asks") };
//! producer.handle(ProducerEvent::Notice { from: c, notice }, moment, &mut sent);
//! let place = producer.reserve().expect("room for a message");
//! producer.put(place, 64, 0, None, moment, &mut sent);
//! let Some(ProducerAction::Write { header, .. }) = sent.pop() else { panic!("the producer writes") };
//! consumer.handle(ConsumerEvent::Message { from: p, header }, &mut replies)?;
//! let Take::Message(message) = consumer.take(5, &mut replies) else { panic!("a message is there") };
//! consumer.acknowledge(message, 9, &mut replies);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![forbid(unsafe_code)]

#[cfg(not(target_os = "linux"))]
compile_error!("DDSS needs Linux: it uses memfd, futex and epoll; build for a Linux target");

pub mod codec;
mod declustering;
mod delivery;
mod fault_injection;
mod graph;
pub mod limits;
mod model;
mod queue;
mod units;

pub use declustering::{ChunkServer, PartReader, ReadOrder, ReaderAction, ReaderConfig, ReaderEvent, RequestError};
#[cfg(feature = "planted")]
pub use fault_injection::Bug;
pub use graph::{
    Each, EdgeKind, FlowGraph, FlowProgress, GraphError, Life, MemberReport, ModuleId, ModuleState, Plan, Resume, Site,
    owner_of,
};
pub use model::{
    Attempt, ChunkReply, ChunkRequest, ConfigError, ConsumerId, EdgeId, Flags, Guarantee, Header, ListId, Load, Mirror,
    Moment, PartId, ProducerId, Progress, QueueConfig, ReaderId, Route, ToConsumer, ToProducer, UnitId, UnitRef,
    UnitRow, UnitState, WorkerId,
};
pub use queue::{
    Consumer, ConsumerAction, ConsumerEvent, Producer, ProducerAction, ProducerEvent, Take, Taken, Violation,
};
pub use units::{Claim, LeaseWatch, PutResult, UnitAction, UnitEvent, Worker, WorkerConfig};
