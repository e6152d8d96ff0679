//! Which of the four ways a client and the service talk.

use std::fmt;
use std::str::FromStr;

/// How requests and replies travel and who waits how (the paper's section 3). A client chooses when it attaches;
/// the results are the same under each.
///
/// | strategy | request | reply | who waits how |
/// | --- | --- | --- | --- |
/// | `Mq` | System V message queue | System V message queue | both sleep in the kernel |
/// | `Rmq` | ring in shared memory | System V message queue | service polls, client sleeps |
/// | `Rcq` | ring | ring | both poll |
/// | `Auto` | ring | ring | spin a bounded time, then park |
///
/// ```
/// use ddss_ipc::Strategy;
///
/// assert_eq!("rcq".parse::<Strategy>()?, Strategy::Rcq);
/// assert_eq!(Strategy::default().to_string(), "auto");
/// assert!("fast".parse::<Strategy>().is_err());
/// # Ok::<(), ddss_ipc::UnknownStrategy>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Strategy {
    /// Message queues both ways.
    Mq,
    /// A ring for requests, a message queue for replies.
    Rmq,
    /// Rings both ways, both sides poll.
    Rcq,
    /// Rings both ways; spin a bounded time, then park.
    #[default]
    Auto,
}

/// The environment variable that [`Strategy::from_environment`] reads.
pub const STRATEGY_VARIABLE: &str = "DDSS_STRATEGY";

impl Strategy {
    /// All four, in the order of the paper.
    pub const ALL: [Strategy; 4] = [Strategy::Mq, Strategy::Rmq, Strategy::Rcq, Strategy::Auto];

    /// What `DDSS_STRATEGY` names, or nothing when it is not set.
    pub fn from_environment() -> Result<Option<Self>, UnknownStrategy> {
        match std::env::var(STRATEGY_VARIABLE) {
            Ok(name) => name.parse().map(Some),
            Err(std::env::VarError::NotPresent) => Ok(None),
            Err(std::env::VarError::NotUnicode(name)) => Err(UnknownStrategy(name.to_string_lossy().into_owned())),
        }
    }

    /// Whether requests go through the ring.
    pub(crate) fn requests_by_ring(self) -> bool {
        !matches!(self, Self::Mq)
    }

    /// Whether replies come through the ring.
    pub(crate) fn replies_by_ring(self) -> bool {
        matches!(self, Self::Rcq | Self::Auto)
    }

    /// Whether the paper has the service poll for such a client, rather than sleep.
    pub fn wants_polling(self) -> bool {
        matches!(self, Self::Rmq | Self::Rcq)
    }

    /// The number that travels in the handshake.
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
    type Err = UnknownStrategy;

    fn from_str(name: &str) -> Result<Self, UnknownStrategy> {
        let found = Self::ALL.into_iter().find(|strategy| strategy.to_string().eq_ignore_ascii_case(name.trim()));
        found.ok_or_else(|| UnknownStrategy(name.to_owned()))
    }
}

/// A name that is none of the four.
///
/// ```
/// use ddss_ipc::{Strategy, UnknownStrategy};
///
/// let unknown: UnknownStrategy = "fast".parse::<Strategy>().expect_err("there is none of that name");
/// assert_eq!(unknown.to_string(), "unknown strategy \"fast\": it is one of mq, rmq, rcq, auto");
/// ```
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("unknown strategy {0:?}: it is one of mq, rmq, rcq, auto")]
pub struct UnknownStrategy(String);

/// How urgent an operation is, which decides how its caller waits (the paper's section 3.2).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum WaitClass {
    /// Get, put, atomics: the strategy's own way, polling where it polls.
    Polling,
    /// Locks: the same, but who stands in line with many others waits for them and not for the service, and sleeps.
    InLine,
    /// Allocate, release and the like: may sleep under every strategy.
    Sleeping,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_strategy_survives_its_name_and_its_number() {
        // If this broke, a client would get another strategy than the one it asked for.
        for strategy in Strategy::ALL {
            assert_eq!(strategy.to_string().parse(), Ok(strategy));
            assert_eq!(Strategy::from_code(strategy.code()), Some(strategy));
        }
        assert_eq!(" RCQ ".parse(), Ok(Strategy::Rcq));
        assert_eq!(Strategy::from_code(0), None);
    }
}
