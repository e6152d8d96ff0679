//! Counters that a service publishes and every process reads with a maximum age; and a web farm that uses them.
//!
//! # For a service
//!
//! [`Publisher`] keeps one struct of counters in a segment at home on the service's own node: publishing is a write to
//! the node's own memory. [`Watcher`] reads those of all instances, each by a one-sided get, all in one submission. The
//! service's process takes no part in it, however many watchers there are.
//!
//! ```
//! # let folder = std::env::temp_dir().join(format!("ddss-apps-monitor-{}", std::process::id()));
//! # let mut config = ddssd::Config::single(&folder);
//! # config.pool_bytes = 16 << 20;
//! # let node = ddssd::Node::start(config)?;
//! # let client = ddss::Client::connect_with(ddss::ConnectOptions::new().directory(&folder))?;
//! use ddss_apps::monitor::{Load, Publisher, Watcher};
//! use std::time::Duration;
//!
//! let publisher = Publisher::start(&client, "web", "server-1", &Load::default())?;
//! publisher.publish(&Load { active: 3, served: 1000 })?;
//!
//! let mut watcher = Watcher::<Load>::new(&client, "web");
//! watcher.discover()?;
//! for reading in watcher.read(Duration::from_millis(10))? {
//!     println!("{}: {} requests under way, {:?} ago", reading.instance, reading.value.active, reading.age());
//! }
//! # assert_eq!(watcher.read(Duration::ZERO)?[0].value.served, 1000);
//! # node.stop()?;
//! # std::fs::remove_dir_all(folder)?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # The web farm
//!
//! [`Farm`] is the paper's: web servers with a file of 16 KiB, each on a node of its own, and a proxy that sends each
//! request to the server with the least load, which it reads every few milliseconds. The measurement is the time that
//! clients wait.

mod farm;
mod proxy;
mod publish;
mod web;

pub use farm::{Farm, FarmOptions, Progress, Response, Watched};
pub use proxy::Proxy;
pub use publish::{Publisher, Reading, Watcher};
pub use web::{FILE_BYTES, Load, WebServer, get};
