//! IPC strategies: the four ways in which a client and the service communicate.

use std::fmt;
use std::str::FromStr;

/// Transport of requests and replies, and wait policy of both sides (the paper's section 3). A client chooses when it
/// attaches; the results are the same under each.
///
/// | strategy | request | reply | waiting |
/// | --- | --- | --- | --- |
/// | `Mq` | System V message queue | System V message queue | both sleep in the kernel |
/// | `Rmq` | ring in shared memory | System V message queue | service polls, client sleeps |
/// | `Rcq` | ring | ring | both poll |
/// | `Auto` | ring | ring | spin, then yield, then sleep |
///
/// ```
/// # use ddss_ipc as ddss;
/// use ddss::Strategy;
///
/// assert_eq!("rcq".parse::<Strategy>()?, Strategy::Rcq);
/// assert_eq!(Strategy::default().to_string(), "auto");
/// let unknown = "fast".parse::<Strategy>().expect_err("there is none of that name");
/// assert_eq!(unknown, "unknown strategy \"fast\": use mq, rmq, rcq or auto");
/// # Ok::<(), String>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Strategy {
    /// Message queues both ways.
    Mq,
    /// A ring for requests, a message queue for replies.
    Rmq,
    /// Rings both ways, both sides poll.
    Rcq,
    /// Rings both ways; spin, then yield, then sleep.
    #[default]
    Auto,
}

/// Environment variable that [`Strategy::from_environment`] reads.
pub const STRATEGY_VARIABLE: &str = "DDSS_STRATEGY";

impl Strategy {
    /// All four strategies, in the order of the paper.
    pub const ALL: [Strategy; 4] = [Strategy::Mq, Strategy::Rmq, Strategy::Rcq, Strategy::Auto];

    /// Returns the strategy that `DDSS_STRATEGY` names, or `None` if it is not set.
    #[doc(hidden)]
    pub fn from_environment() -> Result<Option<Self>, String> {
        match std::env::var(STRATEGY_VARIABLE) {
            Ok(name) => name.parse().map(Some),
            Err(std::env::VarError::NotPresent) => Ok(None),
            Err(std::env::VarError::NotUnicode(name)) => Err(unknown(&name.to_string_lossy())),
        }
    }

    /// Returns true if requests use the ring.
    pub(crate) fn requests_by_ring(self) -> bool {
        !matches!(self, Self::Mq)
    }

    /// Returns true if replies use the ring.
    pub(crate) fn replies_by_ring(self) -> bool {
        matches!(self, Self::Rcq | Self::Auto)
    }

    /// Returns true if the service should poll for such a client, rather than sleep (as in the paper).
    #[doc(hidden)]
    pub fn wants_polling(self) -> bool {
        matches!(self, Self::Rmq | Self::Rcq)
    }

    /// Returns the code of the handshake.
    pub(crate) fn code(self) -> u32 {
        match self {
            Self::Mq => 1,
            Self::Rmq => 2,
            Self::Rcq => 3,
            Self::Auto => 4,
        }
    }

    pub(crate) fn from_code(code: u32) -> Option<Self> {
        Self::ALL.into_iter().find(|strategy| strategy.code() == code)
    }
}

impl fmt::Display for Strategy {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Self::Mq => "mq",
            Self::Rmq => "rmq",
            Self::Rcq => "rcq",
            Self::Auto => "auto",
        })
    }
}

impl FromStr for Strategy {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|strategy| strategy.to_string().eq_ignore_ascii_case(name.trim()));
        found.ok_or_else(|| unknown(name))
    }
}

/// Returns the text of an error: the name is not one of the four strategies.
fn unknown(name: &str) -> String {
    format!("unknown strategy {name:?}: use mq, rmq, rcq or auto")
}

/// Class of an operation, which decides how its caller waits (the paper's section 3.2).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum WaitClass {
    /// Get, put, atomics, locks: as the strategy says, polling where it polls.
    Polling,
    /// Allocate, release and the like: may sleep under every strategy.
    Sleeping,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strategy_round_trips_through_name_and_code() {
        // If this failed, a client would get another strategy than requested.
        for strategy in Strategy::ALL {
            assert_eq!(strategy.to_string().parse(), Ok(strategy));
            assert_eq!(Strategy::from_code(strategy.code()), Some(strategy));
        }
        assert_eq!(" RCQ ".parse(), Ok(Strategy::Rcq));
        assert_eq!(Strategy::from_code(0), None);
    }
}
