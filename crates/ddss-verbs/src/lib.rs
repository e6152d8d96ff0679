//! Transport between nodes: one-sided transfers behind the [`Fabric`] trait.
//!
//! A [`Fabric`] registers memory, connects peers, and moves bytes with `read`, `write`, `compare_swap`, `fetch_add` and
//! `send`. It knows nothing of segments, locks or coherence: `ddssd` turns the engine's actions into [`Work`], posts it,
//! and passes each [`Event`] back to the engine.
//!
//! - [`Iwarp`] is iWARP in user space over plain TCP: MPA, DDP and RDMAP by the RFCs, so that kernel and adapter
//!   implementations can be its peers. It needs no driver and no privilege.
//! - `rdma::Rdma` (feature `rdma`) uses an adapter through rdma-core, which is loaded at the first use.
//! - [`sim::Sim`] is a network within one process, in virtual time, for tests.
//!
//! ```
//! use std::os::fd::AsFd;
//!
//! use ddss_verbs::{Event, Events, Fabric, Iwarp, IwarpConfig, LocalRange, RemoteRange, Rights, Trust, Work};
//! # use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};
//! # fn memory(bytes: u64) -> std::io::Result<std::os::fd::OwnedFd> {
//! #     let fd = memfd_create("example", MemfdFlags::ALLOW_SEALING | MemfdFlags::CLOEXEC)?;
//! #     ftruncate(&fd, bytes)?;
//! #     fcntl_add_seals(&fd, SealFlags::SHRINK)?;
//! #     Ok(fd)
//! # }
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let mut fabric = Iwarp::new(IwarpConfig::default())?;
//! let mut other = Iwarp::new(IwarpConfig::default())?;
//! let source = other.register(memory(4096)?.as_fd(), Trust::Sealed, 0, 4096)?;
//! let target = fabric.register(memory(4096)?.as_fd(), Trust::Sealed, 0, 4096)?;
//!
//! let address = other.listen("127.0.0.1:0".parse()?)?;
//! let peer = fabric.connect(address, b"hello")?;
//! let (mut here, mut there) = (Events::new(), Events::new());
//! let mut window = None;
//! 'outer: loop {
//!     other.poll(&mut there);
//!     for event in there.iter() {
//!         if let Event::ConnectRequest { peer, .. } = event {
//!             window = Some(other.expose(peer, source, 0, 4096, Rights::READ)?);
//!             other.accept(peer, b"welcome")?;
//!         }
//!     }
//!     there.clear();
//!     fabric.poll(&mut here);
//!     for event in here.iter() {
//!         match event {
//!             Event::Connected { peer, .. } => {
//!                 let window = window.expect("the other side exposes it before it accepts");
//!                 let local = LocalRange { region: target, offset: 0, bytes: 8 };
//!                 let remote = RemoteRange { key: window.key, address: window.base };
//!                 fabric.post(&[Work::Read { peer, tag: 7, local, remote }])?;
//!             }
//!             Event::Done { tag, outcome, .. } => {
//!                 assert_eq!((tag, outcome), (7, Ok(0)));
//!                 break 'outer;
//!             }
//!             _ => {}
//!         }
//!     }
//!     here.clear();
//! }
//! fabric.close(peer);
//! # Ok(())
//! # }
//! ```
#![cfg_attr(docsrs, feature(doc_cfg))]

#[cfg(not(target_os = "linux"))]
compile_error!("DDSS needs Linux: it uses memfd, futex and epoll; build for a Linux target");

mod events;
mod fabric;
mod id;
mod iwarp;
pub mod limits;
mod memory;
mod parts;
#[cfg(feature = "rdma")]
pub mod rdma;
mod sealing;
pub mod sim;
mod slab;
mod sys;
mod terminate_code;
mod work;

pub use events::{CloseReason, Event, Events, WorkError};
pub use fabric::{
    Admission, AdmissionFilter, AdmissionToken, AtomicScope, Capabilities, Fabric, FabricError, Rights, Trust, Window,
};
pub use id::{PeerId, RegionId};
#[cfg(feature = "fuzzing")]
pub use iwarp::fuzzing;
pub use iwarp::{Iwarp, IwarpConfig, Revision};
pub use parts::{Parts, Place};
pub use sealing::{Sealing, TAG_BYTES};
pub use terminate_code::TerminateCode;
pub use work::{LocalRange, PostError, PostErrorKind, RemoteRange, SendMode, Work};
