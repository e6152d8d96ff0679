//! What can go wrong before a test begins.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

/// What can go wrong before a test begins.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The programs of the workspace could not be built.
    #[error("building the programs of the workspace failed: {0}")]
    Build(String),
    /// The workspace has no such program.
    #[error("no program of the workspace is called {0}")]
    NoSuchProgram(String),
    /// The system refused something.
    #[error("{what} failed")]
    System {
        /// What was tried, and with what.
        what: String,
        /// Why it was refused.
        source: io::Error,
    },
    /// A process ended that should serve.
    #[error("{program} ended before it served: {status}; its last words:\n{words}")]
    Ended {
        /// The program.
        program: PathBuf,
        /// How it ended.
        status: String,
        /// The end of what it printed.
        words: String,
    },
    /// A process did not serve in time.
    #[error("{program} did not serve within {deadline:?}; its last words:\n{words}")]
    NotReady {
        /// The program.
        program: PathBuf,
        /// How long it had.
        deadline: Duration,
        /// The end of what it printed.
        words: String,
    },
    /// A client process could not begin.
    #[error("{program} said: {said}")]
    Said {
        /// The program.
        program: PathBuf,
        /// What it said.
        said: String,
    },
    /// Every port that was tried is taken.
    #[error("no free TCP port on {0}")]
    NoFreePort(std::net::IpAddr),
}

impl Error {
    /// For `map_err`: names what was tried.
    pub(crate) fn system(what: impl Into<String>) -> impl FnOnce(io::Error) -> Error {
        let what = what.into();
        move |source| Error::System { what, source }
    }
}
