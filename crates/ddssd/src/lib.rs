//! The node service of DDSS: one process on each machine, which owns the node's segments and serves clients and peers.
//!
//! A [`Node`] has one or several *shards*. Each shard is one progress thread that polls the clients' channels
//! (`ddss-ipc`) and the network (`ddss-verbs`), and executes the decisions of the engine (`ddss-engine`). The control
//! plane (membership, directory of names, failover) runs on threads of its own.
//!
//! This crate holds the daemon `ddssd`. Applications do not depend on it: they use the crate `ddss-client`. Tests of such an
//! application start an [`EphemeralNode`].
//!
//! # Where to read
//!
//! | folder | contents |
//! | --- | --- |
//! | `shard` | event loop of one progress thread; start with `shard/event_loop.rs` |
//! | `storage` | areas, segment registry, undo log, recovery |
//! | `peers` | connections to other nodes, handshake worker |
//! | `control` | membership, directory, replication, failure detector |
//! | `auth` | handshake of nodes under the cluster key |
//! | `config` | settings, quotas, ports |
//! | `status`, `metrics` | status page and HTTP endpoint |
//!
//! # Features
//!
//! `rdma`, off by default, adds the fabric over RDMA adapters. It needs nothing to build: rdma-core is opened at run time.
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
#![cfg_attr(docsrs, feature(doc_cfg))]
#![forbid(unsafe_code)]

#[cfg(not(target_os = "linux"))]
compile_error!("DDSS needs Linux: it uses memfd, futex and epoll; build for a Linux target");

mod auth;
mod bootstrap;
mod config;
mod control;
mod cpu_placement;
mod ephemeral;
mod log_throttle;
mod metrics;
mod node;
mod peers;
mod preflight;
mod privileges;
mod shard;
mod start_error;
mod status;
mod storage;
mod supervisor;
mod systemd;
mod tests;

pub use config::config::Config;
pub use config::env_check::unknown_variables;
pub use config::quota_table::QuotaTable;
pub use control::recover;
pub use ddss_admin::storage::{
    JOIN_FILE_NAME, OfflineError, OfflineNode, OfflineSegment, STATE_VARIABLE, default_state_folder, record_command,
};
pub use ddss_admin::{
    ADMIN_SOCKET_NAME, AdminRequest, AdminResponse, Arguments, ByteSize, ClusterKey, CoreChoice, ExitReason,
    FabricChoice, HostPort, KeyError, LogLevels, MetricsAddress, Mode, NodeReport, PeerAddress, QuotaRule,
    RecoveryMode, Settings, SettingsError, UncleanFiles, format_error_chain,
};
pub use ddss_ipc::{
    Liveness, STATUS_NAME, StatusReadError, client_folder, default_folder, read_all_statuses, read_status,
};
pub use ephemeral::EphemeralNode;
pub use log_throttle::LogThrottle;
pub use node::{FailureWatch, Node};
pub use privileges::{drop_privileges, forbid_core_dumps};
pub use start_error::StartError;
pub use storage::pool_error::PoolError;
pub use storage::state_dir::StateDirError;
pub use supervisor::Departure;
pub use systemd::{notify, watchdog_interval};
