//! IPC between the clients and the daemon of one node: shared memory, rings, queues, sleep and wake.
//!
//! `ddss` writes a request into the [`Channel`] of the calling thread. The progress thread of `ddssd` takes copies of
//! requests from its [`IpcServer`], for the engine in `ddss-core`; that thread is the *service* of the clients. This
//! crate does not know what an [`Entry`](ddss_core::Entry) means, what a segment is, or that there are other nodes.
//!
//! ```text
//!        client process                                  daemon
//!   +------------------------+    hello, descriptors   +-------------------------+
//!   | Attachment::connect    | <---- Unix socket ----> | Acceptor (own thread)   |
//!   |                        |                         |     | ClientEvent       |
//!   |  Channel (one a thread)|    one sealed memfd     |     v                   |
//!   |    submit  ---------------> request ring ----------> IpcServer::poll       |
//!   |    reap   <-------------- completion ring <--------- IpcServer::reply      |
//!   |    arena  <------------- payloads, both ways ------> IpcServer::arena      |
//!   +------------------------+                         +-------------------------+
//!                      service page: daemon writes, clients only read
//! ```
//!
//! | directory | contents |
//! | --- | --- |
//! | `client` | [`Attachment`], [`Channel`] |
//! | `server` | [`IpcServer`], [`Acceptor`], the poll scheduler |
//! | `shm` | layout of the shared memory, rings, service page, status page |
//! | `transport` | rings and System V queues under one interface |
//! | `wait` | spin, yield and park |
//! | `sys` | kernel interfaces: the unsafe code |
//! | [`lock_free`] | structures for threads and tasks of a client that share a channel |
//!
//! ```
//! use ddss_core::{ChannelId, Entry, NodeId};
//! use ddss_ipc::{
//!     Acceptor, AcceptorConfig, AttachOptions, Attachment, ClientEvent, IpcServer, TracedRequest, WaitClass, WaitOutcome,
//! };
//! use std::time::{Duration, Instant};
//! let folder = tempfile::tempdir()?;
//! let path = folder.path().join("socket");
//! // The daemon: a server and an acceptor.
//! let mut server = IpcServer::open(NodeId(1))?;
//! let acceptor = Acceptor::start(&path, AcceptorConfig::new(&server), server.inbox().sink())?;
//! let service = std::thread::spawn(move || -> Result<(), ddss_ipc::MemoryError> {
//!     loop {
//!         match server.next_event() {
//!             Some(ClientEvent::Attached(session)) => drop(server.add_client(session)?),
//!             Some(ClientEvent::Detached(_)) => return Ok(()),
//!             None => {}
//!         }
//!         server.serve(64, &mut |_: ChannelId, [word, question, ..]: &Entry, _: Option<TracedRequest>| {
//!             Some([*word, question + 1, 0, 0, 0, 0, 0, 0])
//!         });
//!         server.flush();
//!     }
//! });
//! // A client, usually in another process.
//! let attachment = Attachment::connect(&path, &AttachOptions::default())?;
//! let mut channel = attachment.take_channel().ok_or("all channels are taken")?;
//! channel.submit([0, 41, 0, 0, 0, 0, 0, 0])?;
//! channel.ring_doorbell();
//! assert_eq!(channel.wait(WaitClass::Polling, Instant::now() + Duration::from_secs(2)), WaitOutcome::Ready);
//! assert_eq!(channel.reap().map(|entry| entry[1]), Some(42));
//! drop((channel, attachment));
//! service.join().expect("the service did not panic")?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

#![cfg_attr(loom, allow(dead_code, unreachable_pub, reason = "the models use a part of the crate"))]

mod client;
#[cfg(not(loom))]
mod client_handshake;
#[cfg(not(loom))]
mod connection;
pub mod lock_free;
#[cfg(loom)]
#[doc(hidden)]
pub mod loom_model;
#[cfg(not(loom))]
mod paths;
mod server;
mod shm;
#[cfg(not(loom))]
mod socket;
#[cfg(not(loom))]
mod strategy;
mod sync;
mod sys;
#[cfg(not(loom))]
mod trace_sampling;
mod transport;
mod wait;

#[cfg(not(loom))]
pub use client::attachment::{AttachError, AttachOptions, Attachment};
#[cfg(not(loom))]
pub use client::channel::{Channel, ChannelFull};
#[cfg(not(loom))]
pub use paths::{FOLDER_VARIABLE, SOCKET_NAME, STATUS_NAME, client_folder, default_folder, socket_name, status_name};
#[cfg(not(loom))]
pub use server::{
    Acceptor, AcceptorConfig, AreaAccess, ClientEvent, IdleMode, Inbox, IpcServer, ProtocolViolation, RequestHandler,
    ServerCounts, Session, UserLimit,
};
#[cfg(not(loom))]
pub use shm::layout::LAYOUT_VERSION;
#[cfg(not(loom))]
pub use shm::status_page::{Liveness, StatusReadError, read_all_statuses, read_status};
#[cfg(not(loom))]
pub use strategy::{STRATEGY_VARIABLE, Strategy, WaitClass};
#[cfg(not(loom))]
pub use sys::{Access, Credentials, InheritedSocket, MemoryError, SharedMemory};
#[cfg(not(loom))]
pub use trace_sampling::{TracedRequest, clock_ns};
#[cfg(not(loom))]
pub use transport::channel_transport::WaitOutcome;
#[cfg(not(loom))]
pub use wait::back_off::BackOff;
