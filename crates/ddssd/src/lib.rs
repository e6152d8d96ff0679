//! The node service of DDSS: one process on each machine, which owns the node's segments and serves clients and peers.
//!
//! A [`Node`] has one or several *shards*. Each shard is one progress thread that polls the clients' channels
//! (`ddss-ipc`) and the network (`ddss-verbs`), and executes the decisions of the engine (`ddss-core`). The control
//! plane (membership, directory of names, failover) runs on threads of its own.
//!
//! This crate holds the daemon `ddssd` and what the command line needs to know of it. Applications do not depend on
//! it: they use the crate `ddss`. Tests of such an application start an [`EphemeralNode`].
//!
//! # Where to read
//!
//! | folder | contents |
//! | --- | --- |
//! | `shard` | event loop of one progress thread; start with `shard/event_loop.rs` |
//! | `storage` | areas, segment registry, undo log, recovery |
//! | `peers` | connections to other nodes, handshake worker |
//! | `control` | membership, directory, replication, failure detector |
//! | `auth` | cluster key, handshake, sealed channel |
//! | `config` | settings, quotas, checks before the start |
//! | `status`, `metrics` | status page and HTTP endpoint |
//!
//! # Example
//!
//! ```
//! use ddssd::{Config, Node};
//! let folder = std::env::temp_dir().join(format!("ddssd-doc-{}", std::process::id()));
//! let node = Node::start(Config::single(&folder))?;
//! println!("clients attach at {}", node.socket().display());
//! node.stop()?;
//! # std::fs::remove_dir_all(folder)?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![forbid(unsafe_code)]

mod auth;
mod bootstrap;
mod config;
mod control;
mod cpu_placement;
mod ephemeral;
mod error_chain;
mod exit_code;
mod log_throttle;
mod metrics;
mod node;
mod peers;
mod privileges;
mod shard;
mod status;
mod storage;
mod supervisor;
mod systemd;
mod tests;

pub use config::arguments::Arguments;
pub use config::byte_size::ByteSize;
pub use config::config::{
    Config, CoreChoice, JOIN_FILE_NAME, MetricsAddress, PeerAddress, STATE_VARIABLE, default_state_folder,
};
pub use ddss_ipc::{
    Liveness, STATUS_NAME, StatusReadError, client_folder, default_folder, read_all_statuses, read_status,
};

pub use auth::{ClusterKey, KeyError};
pub use config::env_check::unknown_variables;
pub use config::host_port::HostPort;
pub use config::log_levels::LogLevels;
pub use config::quota_rules::{QuotaRule, QuotaTable};
pub use config::settings::{Mode, Settings, SettingsError};
pub use control::{ADMIN_SOCKET_NAME, AdminRequest, AdminResponse, ControlError, NodeReport};
pub use ephemeral::EphemeralNode;
pub use error_chain::format_error_chain;
pub use exit_code::ExitReason;
pub use log_throttle::LogThrottle;
pub use node::{FailureWatch, Node, StartError};
pub use peers::fabric::FabricChoice;
pub use privileges::drop_privileges;
pub use storage::file_segments::UncleanFiles;
pub use storage::memory::PoolError;
pub use storage::offline::{OfflineError, OfflineNode, OfflineSegment};
pub use storage::state_dir::StateDirError;
pub use supervisor::Departure;
pub use systemd::{notify, watchdog_interval};
