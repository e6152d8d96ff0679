//! The node service: one progress thread that drains the clients' rings and the network, and what starts it.
//!
//! *The stop before:* `ddss-ipc`, where a client's request lies in a ring.
//! *The stop after:* `ddss-core`'s engine, which decides, and `ddss-verbs`, which moves the bytes.
//!
//! Start reading at `progress.rs`.
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

mod accounts;
mod admission;
#[cfg(test)]
mod allocation;
mod arguments;
mod audiences;
mod byte_size;
mod chores;
mod config;
mod control;
mod core_claim;
mod data_plane;
mod doorman;
mod drain;
mod endings;
mod environment;
mod ephemeral;
mod fabric;
mod fetches;
mod files;
mod folder;
mod kept;
#[cfg(test)]
mod liars;
mod links;
mod log_levels;
mod log_rate;
mod meeting;
mod memory;
mod metrics;
mod notify;
mod perform;
mod place;
mod preflight;
mod privileges;
mod progress;
mod pulse;
mod quotas;
mod recovery;
mod register;
mod remains;
mod requests;
mod service;
mod settings;
mod status;
#[cfg(test)]
mod strangers;
mod tables;
mod trust;
mod undo;
mod vital;
mod words;

pub use arguments::Arguments;
pub use byte_size::ByteSize;
pub use config::{
    Config, CoreChoice, JOIN_FILE_NAME, MetricsAddress, PeerAddress, STATE_VARIABLE, default_state_folder,
};
pub use ddss_ipc::{Life, STATUS_NAME, StatusReadError, client_folder, default_folder, read_all_statuses, read_status};

pub use control::{ADMIN_NAME, AdminAnswer, AdminAsk, ControlError, NodeReport};
pub use endings::Ending;
pub use environment::strange_variables;
pub use ephemeral::Ephemeral;
pub use fabric::FabricChoice;
pub use files::UncleanFiles;
pub use folder::FolderError;
pub use log_levels::LogLevels;
pub use log_rate::LogRate;
pub use memory::PoolError;
pub use notify::{notify, watchdog_every};
pub use place::HostPort;
pub use privileges::drop_privileges;
pub use quotas::{QuotaRule, QuotaTable};
pub use remains::{NoRemains, Remain, Remains};
pub use service::{Service, StartError, Vigil};
pub use settings::{Mode, Settings, SettingsError};
pub use trust::{ClusterKey, KeyError};
pub use vital::Departure;
pub use words::in_one_line;
