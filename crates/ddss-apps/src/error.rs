//! Error type of the applications, grouped by the largest thing that is broken.

use std::io;

use crate::page::PageId;

/// Error of an application on DDSS.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A call of DDSS failed, or its outcome is unknown.
    #[error(transparent)]
    Ddss(#[from] ddss::Error),
    /// A system call failed.
    #[error("{what}")]
    System {
        /// Action that failed.
        what: String,
        /// Error of the operating system.
        #[source]
        source: io::Error,
    },
    /// A server violated its protocol.
    #[error("unexpected reply of {server}: {answer}")]
    Protocol {
        /// Name of the program or server.
        server: &'static str,
        /// Description of the problem.
        answer: String,
    },
    /// A required program or file is missing on this machine.
    #[error("{what} is not available: {why}")]
    Missing {
        /// Description of the problem.
        what: &'static str,
        /// Cause.
        why: String,
    },
    /// A page of a tree is damaged.
    #[error("{page} is broken: {why}")]
    Broken {
        /// Number of the page.
        page: PageId,
        /// Description of the damage.
        why: &'static str,
    },
    /// Concurrent writers changed the tree in every attempt of a reader.
    #[error("the tree was changed under each of {tries} tries to read it")]
    Restless {
        /// Number of attempts.
        tries: u32,
    },
    /// The page store is full.
    #[error("all {pages} pages are in use")]
    Full {
        /// Number of pages of the store.
        pages: u32,
    },
    /// A key or a value is too long for a page.
    #[error("a key of {key_bytes} and a value of {value_bytes} bytes are more than {bytes_max} together")]
    TooLong {
        /// Bytes of the key.
        key_bytes: usize,
        /// Bytes of the value.
        value_bytes: usize,
        /// Valid range.
        bytes_max: usize,
    },
    /// A process found a state that no commit ever made.
    #[error("an inconsistent state: {0}")]
    Inconsistent(String),
    /// A flow ended with an error.
    #[error(transparent)]
    Flow(#[from] ddss_river::flow::FlowError),
    /// A list of work failed.
    #[error(transparent)]
    Queue(#[from] ddss_river::QueueError),
    /// A space of shared pages ended, or refused a call.
    #[error(transparent)]
    Space(#[from] ddss_dsm::SpaceError),
    /// A program of flows or of shared pages failed, or its output is wrong.
    #[error("{0}")]
    Wrong(String),
    /// A daemon or a server did not start or end as it should.
    #[error(transparent)]
    Stage(#[from] ddss_testkit::Error),
}

impl Error {
    /// Creates the error of a failed system call, for `map_err`.
    pub fn system(what: impl Into<String>) -> impl FnOnce(io::Error) -> Error {
        let what = what.into();
        move |source| Error::System { what, source }
    }
}
