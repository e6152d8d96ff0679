//! The engine of one node: events in, [actions](Action) out. It decides everything and touches no memory, socket or clock.
//!
//! ```text
//!   client's request ──► Engine::request ──┐
//!   peer's message   ──► Engine::on_message ──┼──► next_action ──► Copy, Commit  (this node's memory)
//!   fetch finished   ──► Engine::on_fetched ──┤                    Fetch, Stage, SendStaged (another node's memory)
//!   time             ──► Engine::tick    ──┘                    Send          (another node's engine)
//!                                                               Reply         (a client's ring)
//! ```
//!
//! Nothing in this crate does I/O, starts a thread, reads a clock or draws a random number. So the same code runs under
//! `ddssd`, under the simulator and under a fuzzer. Only nodes decide: a client links `ddss-core` and no engine.
//!
//! | file or folder | content |
//! | --- | --- |
//! | `engine.rs` | the type [`Engine`]: clients, peers, time |
//! | `dispatch.rs`, `peer_messages.rs` | decide where a client's request is executed; handle a peer's message |
//! | `results.rs`, `cluster.rs`, `storage.rs` | results of actions; decisions of the cluster; restart, files and quotas |
//! | `action.rs` | [`Action`]: every effect that the engine may ask for |
//! | `config.rs`, `ids.rs`, `requester.rs`, `role.rs` | settings and time; ids; requesters; roles for replicated segments |
//! | `fault_injection.rs` | bugs that tests switch on and have to find |
//! | `home/` | this node as a home: which handler does a step, and the work that follows from it |
//! | `home/execute.rs` | each operation at its home, for clients of this node and for peers |
//! | `home/fast_path.rs`, `home/inline_path.rs` | uncontended puts, and puts that fit in a ring entry |
//! | `home/metadata.rs`, `home/upload_calls.rs` | lists, segment info and permissions; large puts |
//! | `home/roles.rs`, `home/replica_messages.rs` | decisions of the cluster; messages between a home and its replica |
//! | `home/follow_up.rs` | operations that a replica has acknowledged, and the service of lock queues |
//! | `operations/` | gets, puts, atomics, locks and sweeps at their home, by the handler `Operations` |
//! | `lifecycle/` | names, creation and release of segments and replicas, by the handler `Lifecycle` |
//! | `commits/` | the next version of a segment or of a row |
//! | `locks/` | locks, waits for them, watches of versions, and waits for sweeps |
//! | `uploads/`, `outgoing_bytes.rs` | the parts of large puts; bytes on their way to other nodes |
//! | `replica/` | the replica's side |
//! | `remote/` | operations on segments whose home is another node, by the handler `Remote` |
//! | `remote/call.rs` | each operation for another home: the message `Call`, or one-sided reads |
//! | `remote/remote_get.rs`, `remote/served_get.rs` | gets by one-sided reads, and those that the home executes |
//! | `remote/cached_gets.rs` | cached copies of remote Temporal segments |
//! | `remote/remote_ops.rs`, `remote/granted_locks.rs` | puts, atomics and locks; locks that local clients hold on other homes |
//! | `remote/name_lookup.rs` | names that the whole cluster agrees on |
//! | `replication/` | the home's side of its replicas |
//! | `replication/failover.rs` | transitions of the home's replica |
//! | `replication/forward.rs`, `replication/resync.rs` | forwarded puts, and the first copy |
//! | `state/` | tables that know nothing of [`Engine`]: output, segments, lock queues, waits, replication, memory |
//!
//! The feature `planted`, off by default, adds bugs that tests must find.
#![forbid(unsafe_code)]

mod action;
mod cluster;
mod commits;
mod config;
mod dispatch;
mod engine;
mod fault_injection;
mod home;
mod ids;
mod lifecycle;
mod locks;
mod operations;
mod outgoing_bytes;
mod peer_messages;
mod remote;
mod replica;
mod replication;
mod requester;
mod results;
mod role;
mod state;
mod storage;
mod uploads;

pub use action::{
    Action, Commit, CommitSource, ControlAction, CopyOut, Fetch, FetchTarget, GarbageSearch, MessageBody, PeerAction,
    RangeSet, Reply, SegmentCommit,
};
pub use cluster::NameState;
pub use config::{Counters, EngineConfig, Now};
pub use engine::Engine;
#[cfg(feature = "planted")]
pub use fault_injection::Bug;
pub use home::inline_path::InlineCommit;
pub use ids::{BufferId, ClaimId, ServedGetId, StepId};
pub use role::{Proposal, ProposalKind, ReplicaCounts, RoleAssignment};
pub use state::segments::quotas::{Quota, Quotas};
