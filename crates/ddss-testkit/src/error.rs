//! Errors of the test kit.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

/// An error during the preparation of a test.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The programs of the workspace could not be built.
    #[error("building the programs of the workspace failed: {0}")]
    Build(String),
    /// The workspace has no such program.
    #[error("no program of the workspace is called {0}")]
    NoSuchProgram(String),
    /// The directory of built programs lacks this program.
    #[error("{} is not there: build it into this folder, or unset DDSS_BIN_DIR", .0.display())]
    NotBuilt(PathBuf),
    /// A system call failed.
    #[error("{what} failed")]
    System {
        /// The operation and its object.
        what: String,
        /// The cause.
        source: io::Error,
    },
    /// A process ended that should have kept running.
    #[error("{program} ended before it served: {status}; its last words:\n{words}")]
    Ended {
        /// The program.
        program: PathBuf,
        /// Exit status.
        status: String,
        /// End of its output.
        words: String,
    },
    /// A process was not ready in time.
    #[error("{program} did not serve within {deadline:?}; its last words:\n{words}")]
    NotReady {
        /// The program.
        program: PathBuf,
        /// Time limit.
        deadline: Duration,
        /// End of its output.
        words: String,
    },
    /// A client process could not attach.
    #[error("{program} said: {said}")]
    Said {
        /// The program.
        program: PathBuf,
        /// The first line of its output.
        said: String,
    },
    /// Every port that was tried is taken.
    #[error("no free TCP port on {0}")]
    NoFreePort(std::net::IpAddr),
}

impl Error {
    /// Returns a closure for `map_err` that adds the operation.
    pub(crate) fn system(what: impl Into<String>) -> impl FnOnce(io::Error) -> Error {
        let what = what.into();
        move |source| Error::System { what, source }
    }
}
