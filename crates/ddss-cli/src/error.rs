//! Error type of the commands: one sentence and an exit code for scripts.

use ddss::ErrorKind;
use std::io;
use std::path::{Path, PathBuf};

/// Action that fails when the reader of standard output has gone.
pub(crate) const WRITE_STDOUT: &str = "write to standard output";

/// Action that only the daemon's user and root may do.
pub(crate) const QUERY_CLUSTER: &str = "ask the daemon about its cluster";

/// Reason for the failure of a command.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CommandError {
    #[error(transparent)]
    Client(#[from] ddss::Error),
    #[error(transparent)]
    Key(#[from] ddss_admin::KeyError),
    #[error(transparent)]
    StatusRead(#[from] ddss_admin::StatusReadError),
    #[error("cannot start a node: {0}")]
    Node(String),
    #[error("cannot {tried}")]
    Io {
        tried: &'static str,
        #[source]
        source: io::Error,
    },
    #[error("cannot {tried} {}", path.display())]
    File {
        tried: &'static str,
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("the daemon in {} belongs to no cluster: create one with `ddss cluster init`, or join one with `ddss cluster join`", folder.display())]
    NoCluster { folder: PathBuf },
    #[error("{0}")]
    Refused(String),
    #[error("{0}")]
    Demo(String),
    #[error("{0}")]
    InvalidInput(String),
    #[error("{0}")]
    InvalidSize(String),
    #[error(
        "the file holds parts of several versions, because the segment changed during the export: export again, or take its lock"
    )]
    MixedVersions,
    #[error("the snapshot lacks {count} segments: take another one when they can be read")]
    Incomplete {
        /// Number of segments.
        count: usize,
    },
    #[error("{why}")]
    Recovery {
        /// Reason that the daemon's program gave.
        why: String,
        /// Its exit code.
        code: u8,
    },
    #[error("{count} segments were not restored: make room for them, and go on with --skip-existing")]
    Unrestored {
        /// Number of segments.
        count: usize,
    },
    #[error("this command has no JSON output: omit --json")]
    NoJsonOutput,
    #[error("{0}")]
    DaemonEnded(String),
    #[error("cannot ask for confirmation without a terminal, nothing was done: repeat with --yes")]
    Unconfirmed,
    #[error("some checks failed: follow the advice above")]
    ChecksFailed,
    #[error(transparent)]
    Space(#[from] ddss_dsm::SpaceError),
    #[error(transparent)]
    River(ddss_river::QueueError),
    #[error(transparent)]
    Flow(ddss_river::flow::FlowError),
    #[error("interrupted: the work that was begun is given back")]
    Returned {
        /// Number of the signal.
        signal: u8,
    },
    #[error("interrupted: the collection is not loaded")]
    Unloaded {
        /// Number of the signal.
        signal: u8,
    },
    #[error("interrupted: all processes have ended")]
    Interrupted {
        /// Number of the signal.
        signal: u8,
    },
}

impl From<ddss_river::QueueError> for CommandError {
    fn from(error: ddss_river::QueueError) -> Self {
        match error {
            ddss_river::QueueError::Client(error) => Self::Client(error),
            other => Self::River(other),
        }
    }
}

impl From<ddss_river::flow::FlowError> for CommandError {
    fn from(error: ddss_river::flow::FlowError) -> Self {
        match error {
            ddss_river::flow::FlowError::Client(error) => Self::Client(error),
            ddss_river::flow::FlowError::Queue(error) => error.into(),
            other => Self::Flow(other),
        }
    }
}

impl CommandError {
    /// Returns a constructor of errors of the operating system.
    pub(crate) fn system(tried: &'static str) -> impl Fn(io::Error) -> Self {
        move |source| Self::Io { tried, source }
    }

    /// Returns a constructor of errors about a file or a directory.
    pub(crate) fn file(tried: &'static str, path: &Path) -> impl Fn(io::Error) -> Self {
        move |source| Self::File { tried, path: path.to_owned(), source }
    }

    /// Returns true if the only problem is that the reader of standard output has gone.
    pub(crate) fn is_closed_output(&self) -> bool {
        let Self::Io { tried, source } = self else { return false };
        *tried == WRITE_STDOUT && source.kind() == io::ErrorKind::BrokenPipe
    }

    /// Returns the exit code for scripts.
    pub(crate) fn exit_code(&self) -> u8 {
        match self {
            Self::StatusRead(ddss_admin::StatusReadError::NotFound { .. }) => 4,
            Self::DaemonEnded(_) => 4,
            // The other codes of the daemon mean something else here.
            Self::Recovery { code: 2, .. } => 2,
            Self::NoJsonOutput | Self::InvalidSize(_) | Self::River(ddss_river::QueueError::Config(_)) => 2,
            // As a shell reports a program that the signal ended.
            Self::Interrupted { signal } | Self::Returned { signal } | Self::Unloaded { signal } => 128 + signal,
            Self::Client(error) => match error.kind() {
                ErrorKind::NoDaemon => 4,
                _ if error.is_indeterminate() => 3,
                ErrorKind::BadArgument | ErrorKind::WrongShape => 2,
                _ => 1,
            },
            _ => 1,
        }
    }
}
