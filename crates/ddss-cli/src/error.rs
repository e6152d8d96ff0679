//! How a command fails: one sentence, and an exit code that a script can tell apart.

use std::io;
use std::path::{Path, PathBuf};

/// What fails when the reader of standard output has gone.
pub(crate) const WRITE_OUT: &str = "write to standard output";

/// What fails when the daemon's user alone may ask.
pub(crate) const ASK: &str = "ask the daemon about its cluster";

/// Why a command did not do what it was asked for.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CommandError {
    #[error(transparent)]
    Client(#[from] ddss::Error),
    #[error(transparent)]
    Key(#[from] ddssd::KeyError),
    #[error(transparent)]
    Page(#[from] ddssd::StatusReadError),
    #[error("cannot start a node")]
    Node(#[from] ddssd::StartError),
    #[error("cannot {tried}")]
    System {
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
    #[error("the daemon in {} belongs to no cluster: `ddss cluster init` makes one, `ddss cluster join` brings it into one", folder.display())]
    Alone { folder: PathBuf },
    #[error("{0}")]
    Refused(String),
    #[error("{0}")]
    Demo(String),
    #[error("{0}")]
    Kind(String),
    #[error(
        "the file holds parts of more than one version: the segment changed meanwhile (take its lock, or export again)"
    )]
    Mixed,
    #[error("this is text for a program that reads no JSON: leave --json out")]
    NoJson,
    #[error("{0}")]
    NotServing(String),
    #[error("there is no terminal to ask at, and nothing was done: say --yes")]
    Unconfirmed,
    #[error("something has to be done: see above")]
    Sick,
}

impl CommandError {
    pub(crate) fn system(tried: &'static str) -> impl Fn(io::Error) -> Self {
        move |source| Self::System { tried, source }
    }

    /// The same of a file or a folder, which is named.
    pub(crate) fn file(tried: &'static str, path: &Path) -> impl Fn(io::Error) -> Self {
        move |source| Self::File { tried, path: path.to_owned(), source }
    }

    /// Whether it is only that nobody reads standard output any more.
    pub(crate) fn is_reader_gone(&self) -> bool {
        let Self::System { tried, source } = self else { return false };
        *tried == WRITE_OUT && source.kind() == io::ErrorKind::BrokenPipe
    }

    pub(crate) fn exit_code(&self) -> u8 {
        match self {
            Self::Client(ddss::Error::NoDaemon { .. }) => 4,
            Self::Page(ddssd::StatusReadError::NotFound { .. }) => 4,
            Self::NotServing(_) => 4,
            Self::NoJson | Self::Client(ddss::Error::BadArgument { .. }) => 2,
            Self::Client(error) if error.is_indeterminate() => 3,
            _ => 1,
        }
    }
}
