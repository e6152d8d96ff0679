//! The node service: one progress thread that drains the clients' rings and the network, and what starts it.
//!
//! *The stop before:* `ddss-ipc`, where a client's request lies in a ring.
//! *The stop after:* `ddss-core`'s engine, which decides, and `ddss-verbs`, which moves the bytes.
//!
//! Start reading at `shard/event_loop.rs`.
//!
//! ```
//! use ddssd::{Config, Service};
//! let folder = std::env::temp_dir().join(format!("ddssd-doc-{}", std::process::id()));
//! let service = Service::start(Config::single(&folder))?;
//! println!("clients attach at {}", service.socket().display());
//! service.stop()?;
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
pub use config::env_check::strange_variables;
pub use config::host_port::HostPort;
pub use config::log_levels::LogLevels;
pub use config::quotas::{QuotaRule, QuotaTable};
pub use config::settings::{Mode, Settings, SettingsError};
pub use control::{ADMIN_NAME, AdminAnswer, AdminAsk, ControlError, NodeReport};
pub use ephemeral::EphemeralNode;
pub use error_chain::in_one_line;
pub use exit_code::ExitReason;
pub use log_throttle::LogThrottle;
pub use node::{FailureWatch, Node, StartError};
pub use peers::fabric::FabricChoice;
pub use privileges::drop_privileges;
pub use storage::files::UncleanFiles;
pub use storage::memory::PoolError;
pub use storage::offline::{OfflineError, OfflineNode, OfflineSegment};
pub use storage::state_dir::StateDirError;
pub use supervisor::Departure;
pub use systemd::{notify, watchdog_every};
