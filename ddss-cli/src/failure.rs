//! How a command fails: one sentence, and an exit code that a script can tell apart.

use std::error::Error;
use std::io;

/// Why a command did not do what it was asked for.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CommandError {
    #[error(transparent)]
    Client(#[from] ddss::Error),
    #[error("cannot start a node")]
    Node(#[from] ddssd::StartError),
    #[error("cannot {tried}")]
    System {
        tried: &'static str,
        #[source]
        source: io::Error,
    },
    #[error("{0}")]
    Demo(String),
}

impl CommandError {
    pub(crate) fn system(tried: &'static str) -> impl Fn(io::Error) -> Self {
        move |source| Self::System { tried, source }
    }

    pub(crate) fn exit_code(&self) -> u8 {
        match self {
            Self::Client(ddss::Error::NoDaemon { .. }) => 4,
            Self::Client(error) if error.is_indeterminate() => 3,
            _ => 1,
        }
    }

    /// The error and its causes; a cause that the sentence before it tells already is left out.
    pub(crate) fn in_one_line(&self) -> String {
        let mut text = self.to_string();
        let mut next = self.source();
        while let Some(cause) = next {
            let cause_text = cause.to_string();
            if !text.contains(&cause_text) {
                text = format!("{text}: {cause_text}");
            }
            next = cause.source();
        }
        text
    }
}
