//! Interface between a daemon and the operator's programs on the same machine.
//!
//! `ddssd` and the command `ddss` share this crate, so that the command does not link the daemon. It holds no thread and
//! serves nothing: the daemon does.
//!
//! - [`Settings`] merges flags, environment and file; [`Arguments`] is the command line of `ddssd`.
//! - [`ClusterKey`] is the secret that all nodes of a cluster share.
//! - [`AdminRequest`] asks a running daemon about its cluster.
//! - [`storage`] says where the files of a daemon are, and reads those of a daemon that does not run.
//!
//! ```
//! use ddss_admin::Settings;
//! let settings = Settings { dir: Some("/run/ddss".into()), ..Settings::default() }.resolved();
//! assert_eq!(settings.memory_dir.as_deref(), Some("/run/ddss/memory".as_ref()));
//! ```
#![forbid(unsafe_code)]

#[cfg(not(target_os = "linux"))]
compile_error!("DDSS needs Linux: it uses memfd, futex and epoll; build for a Linux target");

mod admin_socket;
mod error_chain;
mod exit_code;
mod key;
mod recovery;
mod release;
mod settings;
pub mod storage;

pub use admin_socket::{ADMIN_SOCKET_NAME, AdminRequest, AdminResponse, NameReport, NodeReport};
pub use ddss_ipc::{Liveness, StatusReadError, client_folder, read_all_statuses, read_status};
pub use error_chain::format_error_chain;
pub use exit_code::ExitReason;
pub use key::{ClusterKey, KeyError};
pub use recovery::{RecoveredName, RecoveryMode, RecoveryReport, SurvivorReport};
pub use release::{NodeRelease, ProtocolRange, Release};
pub use settings::arguments::Arguments;
pub use settings::byte_size::ByteSize;
pub use settings::choices::{CoreChoice, FabricChoice, MetricsAddress, PeerAddress, UncleanFiles};
pub use settings::host_port::HostPort;
pub use settings::log_levels::LogLevels;
pub use settings::quota_rule::{QuotaLimits, QuotaRule, QuotaSubject};
pub use settings::settings::{Mode, Settings, SettingsError};
