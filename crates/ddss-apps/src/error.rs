//! Error type of the applications, grouped by the largest thing that is broken.

use std::io;

use crate::storage::PageId;

/// Why a program on DDSS could not do what it was asked for.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A call of DDSS ended otherwise than done.
    #[error(transparent)]
    Ddss(#[from] ddss::Error),
    /// The system refused something.
    #[error("{what}")]
    System {
        /// Action that failed.
        what: String,
        /// Error of the operating system.
        #[source]
        source: io::Error,
    },
    /// A server said something else than its protocol has.
    #[error("unexpected reply of {server}: {answer}")]
    Protocol {
        /// Name of the program or server.
        server: &'static str,
        /// Description of the problem.
        answer: String,
    },
    /// Something that a program here needs is not on this machine.
    #[error("{what} is not available: {why}")]
    Missing {
        /// Description of the problem.
        what: &'static str,
        /// Why not.
        why: String,
    },
    /// A page is not what a tree has at its place.
    #[error("{page} is broken: {why}")]
    Broken {
        /// Number of the page.
        page: PageId,
        /// Description of the damage.
        why: &'static str,
    },
    /// Writers were so quick that a reader never saw one version of the tree to its end.
    #[error("the tree was changed under each of {tries} tries to read it")]
    Restless {
        /// Number of attempts.
        tries: u32,
    },
    /// There is no room left for pages.
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
        /// Valid values.
        bytes_max: usize,
    },
    /// A process found a state that no commit ever made.
    #[error("an inconsistent state: {0}")]
    Inconsistent(String),
    /// A daemon or a server did not start or end as it should.
    #[error(transparent)]
    Stage(#[from] ddss_testkit::Error),
}

impl Error {
    /// For `map_err` where the system refused something.
    pub fn system(what: impl Into<String>) -> impl FnOnce(io::Error) -> Error {
        let what = what.into();
        move |source| Error::System { what, source }
    }
}
