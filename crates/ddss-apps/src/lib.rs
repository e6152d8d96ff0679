//! Real programs on DDSS, next to the same programs without it. Each is small enough to learn from.
//!
//! The programs use only the client crate `ddss`, [`filters`] only streams, [`river`] flows, and [`dsm`] shared pages.
//!
//! * [`storage`]: pages of 8 KiB behind one trait: in a DDSS segment, in a file on a network file system, in Redis.
//! * [`tree`]: a B-tree and an R-tree on such pages, for many readers and one writer at a time, over nodes.
//! * [`datasets`]: the places of the world that fill the trees.
//! * [`storm`]: selections over records that are spread on nodes; their directory is in DDSS, or in a server.
//! * [`checkpoint`]: processes that commit their state unless another process was earlier, and restart from the last commit if they die.
//! * [`monitor`]: counters that a service publishes for all clients, with a bound on their age; and a proxy that
//!   chooses a web server by them.
//! * [`filters`]: programs made of filters, each a process: a virtual microscope and the surface of a reservoir.
//! * [`river`]: a copy, a sort, a hash join and an image loader, as flows of several processes.
//! * [`dsm`]: Barnes-Hut, a travelling salesman, a radix sort and a three-dimensional FFT, on pages that several processes share.
//! * [`cache`] and [`locks`]: a read-through cache and a lock manager.
//! * [`peer_servers`]: the daemons and servers of tests and benches.
//!
//! ```
//! use ddss::{Client, ConnectOptions, Spec};
//! use ddss_apps::storage::DdssPages;
//! use ddss_apps::tree::BTree;
//!
//! # let folder = std::env::temp_dir().join(format!("ddss-apps-lib-{}", std::process::id()));
//! # let mut config = ddssd::Config::single(&folder);
//! # config.pool_bytes = 16 << 20;
//! # let node = ddssd::Node::start(config)?;
//! let client = Client::connect_with(ConnectOptions::new().directory(&folder))?;
//! let mut tree = BTree::create(DdssPages::create(&client, "capitals", 256)?)?;
//! tree.write(|tree| {
//!     tree.insert(b"Bern", b"Switzerland")?;
//!     tree.insert(b"Lima", b"Peru")
//! })?;
//! assert_eq!(tree.get(b"Lima")?.as_deref(), Some(&b"Peru"[..]));
//! # node.stop()?;
//! # std::fs::remove_dir_all(folder)?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![deny(unsafe_code)]

pub mod cache;
pub mod checkpoint;
pub mod datasets;
pub mod dsm;
mod error;
pub mod filters;
pub mod locks;
pub mod monitor;
mod names;
mod page;
pub mod peer_servers;
pub mod river;
pub mod storage;
pub mod storm;
#[allow(unsafe_code, reason = "libnfs is a C library, opened at run time")]
mod sys;
pub mod tree;

pub use error::Error;
