//! Byte streams between two processes: through shared memory of one node, or by the Sockets Direct Protocol on a TCP connection.
//!
//! The descriptor of a stream is the kernel's TCP socket: names, ports, refused connections and the death of a peer stay the kernel's. If
//! both ends have this library, their bytes go through two rings in shared memory; otherwise the connection stays plain TCP. The calling
//! thread does all the work; there is no daemon and no thread.
//!
//! The main types are [`Stream`] and [`Listener`], used as `TcpStream` and `TcpListener` are; a [`TransportPolicy`] chooses the transport, and
//! [`Stream::reason`] explains it. The feature `tokio` adds `AsyncStream` and `AsyncListener`. [`Endpoint`] is one end by its descriptor; the
//! preload library `ddss-preload` maps libc's calls to it. [`wire`] has the streams between nodes, [`pump`] those of unmodified programs.
//!
//! ```
//! use std::io::{Read, Write};
//!
//! let listener = ddss_stream::Listener::bind("127.0.0.1:0".parse()?)?;
//! let address = listener.local_addr()?;
//! let echo = std::thread::spawn(move || -> std::io::Result<()> {
//!     let (mut stream, _) = listener.accept()?;
//!     let mut bytes = [0; 5];
//!     stream.read_exact(&mut bytes)?;
//!     stream.write_all(&bytes)
//! });
//! let mut stream = ddss_stream::Stream::connect(address)?;
//! stream.write_all(b"hello")?;
//! let mut answer = [0; 5];
//! stream.read_exact(&mut answer)?;
//! assert_eq!(&answer, b"hello");
//! echo.join().expect("the thread ends")?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![cfg_attr(loom, allow(dead_code, reason = "the models use the cursors only"))]

#[cfg(not(target_os = "linux"))]
compile_error!("DDSS needs Linux: it uses memfd, futex and epoll; build for a Linux target");

mod cursors;
#[cfg(not(loom))]
mod endpoint;
#[cfg(not(loom))]
mod forks;
#[cfg(not(loom))]
pub mod limits;
#[cfg(loom)]
#[path = "sys/loom_cell.rs"]
mod loom_cell;
#[cfg(loom)]
pub mod loom_model;
#[cfg(not(loom))]
mod owner;
#[cfg(not(loom))]
pub mod pump;
#[cfg(not(loom))]
mod reason;
#[cfg(not(loom))]
mod registry;
#[cfg(not(loom))]
mod rendezvous;
#[cfg(not(loom))]
pub mod signals;
#[cfg(not(loom))]
mod stream;
mod sync;
#[cfg(not(loom))]
mod sys;
#[cfg(not(loom))]
mod thread_lock;
#[cfg(not(loom))]
pub mod wire;

#[cfg(not(loom))]
pub use endpoint::{
    Blocked, Decision, Endpoint, Inherited, InheritedKind, Latched, Native, Ready, Spin, after_idle_sleep,
    before_sleep, set_offer_after, set_spin_max,
};
#[cfg(not(loom))]
pub use reason::Reason;
#[cfg(not(loom))]
pub use registry::{StreamRow, list, processes};
#[cfg(not(loom))]
pub use rendezvous::allow_users;
#[cfg(all(feature = "tokio", not(loom)))]
pub use stream::{AsyncListener, AsyncStream};
#[cfg(not(loom))]
pub use stream::{Listener, ReadHalf, Stream, Transport, TransportPolicy, WriteHalf};
#[cfg(not(loom))]
pub use sys::{
    Descriptor, HiddenDescriptor, ImageStart, SLOTS, UserMemory, compare_hidden_inodes, init, is_hidden, load,
    resume_address, store,
};
#[cfg(not(loom))]
pub use thread_lock::forget_thread;
