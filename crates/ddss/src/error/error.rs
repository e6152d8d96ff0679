//! The error of each call.

use super::kind::ErrorKind;
use super::reason::Reason;
use ddss_core::{BadArgument, Completion, Failure, Limit, Version};
use std::fmt::Display;

/// Reason why a call failed. Its text names what was tried and the next step.
///
/// ```
/// use ddss::{Client, ConnectOptions, ErrorKind};
/// let error = Client::connect_with(ConnectOptions::new().directory("/nowhere")).expect_err("there is no daemon");
/// assert_eq!(error.kind(), ErrorKind::NoDaemon);
/// assert!(error.to_string().contains("ddssd --dir /nowhere"));
/// assert!(format!("{error:?}").ends_with("(NoDaemon)"));
/// ```
///
/// The debug form is the same sentence with the kind, so that a `main` that returns an error prints what to do.
#[derive(thiserror::Error)]
#[error(transparent)]
pub struct Error(Box<Reason>);

impl std::fmt::Debug for Error {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "{self} ({:?})", self.kind())
    }
}

const _: () = assert!(size_of::<Error>() == 8, "results stay small");

/// Limit that a call has met, and the numbers that are known of it.
///
/// ```
/// # let node = ddssd::EphemeralNode::start()?;
/// use ddss::{Client, ConnectOptions};
///
/// let client = Client::connect_with(ConnectOptions::new().directory(node.directory()))?;
/// if let Err(error) = client.segment("frames").allocate(1 << 20) {
///     if let Some(reached) = error.limit() {
///         eprintln!("no more {}: {:?} are used", reached.limit, reached.used);
///     }
///     return Err(error.into());
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct LimitReached {
    /// The limit: its count, and the constant or the setting that bounds it.
    pub limit: Limit,
    /// The limit's value.
    pub value: Option<u64>,
    /// Present usage of the caller.
    pub used: Option<u64>,
}

impl Error {
    /// Returns the kind of the error.
    pub fn kind(&self) -> ErrorKind {
        self.0.kind()
    }

    /// Returns true if the call may have taken effect. A get shows whether it did. Otherwise it certainly did nothing.
    pub fn is_indeterminate(&self) -> bool {
        matches!(*self.0, Reason::Indeterminate { .. } | Reason::DaemonGone { .. })
    }

    /// Returns true if the call certainly did nothing, and the same call may succeed later without any change of its
    /// arguments: capacity, a lock, a node or a majority was missing.
    ///
    /// ```
    /// # let node = ddssd::EphemeralNode::start()?;
    /// # let client = ddss::Client::connect_with(ddss::ConnectOptions::new().directory(node.directory()))?;
    /// let account = client.segment("account").allocate(64)?;
    /// let held = account.lock()?;
    /// let error = account.lock_with(ddss::LockOptions::new().timeout(std::time::Duration::ZERO)).expect_err("it is held");
    /// assert!(error.is_retryable() && !error.is_conflict());
    /// held.unlock()?;
    /// assert!(!client.segment("nothing").open().expect_err("no such name").is_retryable());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn is_retryable(&self) -> bool {
        match *self.0 {
            Reason::NoDaemon { .. } => true,
            Reason::Failed { failure, .. } | Reason::LimitReached { failure, .. } => matches!(
                failure,
                Failure::Busy(_)
                    | Failure::InProgress
                    | Failure::NodeDown
                    | Failure::TimedOut
                    | Failure::Contended
                    | Failure::Locked
                    | Failure::GoingDown
                    | Failure::NoMajority
                    | Failure::UploadGone
            ),
            _ => false,
        }
    }

    /// Returns true if a condition of the call did not hold: another caller's change came first. Read again. A get of
    /// a version that is not there yet is one, too.
    ///
    /// ```
    /// # let node = ddssd::EphemeralNode::start()?;
    /// # let client = ddss::Client::connect_with(ddss::ConnectOptions::new().directory(node.directory()))?;
    /// let account = client.segment("account").allocate(64)?;
    /// let seen = account.get(0..8)?;
    /// let other = account.put(0, b"first")?;
    /// let error = account.put_if(seen.version(), 0, b"second").expect_err("it has changed");
    /// assert!(error.is_conflict() && error.version() == Some(other.version));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn is_conflict(&self) -> bool {
        !self.is_indeterminate() && matches!(self.kind(), ErrorKind::VersionMismatch | ErrorKind::AlreadyExists)
    }

    /// Returns the version that a conditional call has found instead.
    pub fn version(&self) -> Option<Version> {
        if let Reason::OtherVersion { found, .. } = *self.0 { Some(found) } else { None }
    }

    /// Returns the limit that the call has met.
    pub fn limit(&self) -> Option<LimitReached> {
        let limit = self.failure()?.limit()?;
        let (value, used) = match *self.0 {
            Reason::LimitReached { value, .. } => (Some(value), None),
            Reason::OverQuota { allowed, used, .. } => (Some(allowed), Some(used)),
            _ => (limit.value(), None),
        };
        Some(LimitReached { limit, value, used })
    }

    /// Returns the reason.
    pub(crate) fn reason(&self) -> &Reason {
        &self.0
    }

    /// Returns the underlying failure, if the daemon reported one.
    pub(crate) fn failure(&self) -> Option<Failure> {
        self.0.failure()
    }

    /// Returns true if the call certainly did nothing, for this reason.
    pub(crate) fn has_failed_with(&self, expected: Failure) -> bool {
        matches!(*self.0, Reason::Failed { failure, .. } if failure == expected)
    }

    /// Returns the error of a whole call whose step had no effect of its own.
    pub(crate) fn without_effect(self) -> Self {
        match *self.0 {
            Reason::Indeterminate { action, target, failure } => Reason::Failed { action, target, failure }.into(),
            other => other.into(),
        }
    }

    /// Returns the error of a whole call whose earlier step had an effect, which stays.
    pub(crate) fn after_effect(self) -> Self {
        match *self.0 {
            Reason::Failed { action, target, failure } | Reason::LimitReached { action, target, failure, .. } => {
                Reason::Indeterminate { action, target, failure }.into()
            }
            Reason::NoDaemon { socket, .. } => Reason::DaemonGone { path: socket }.into(),
            other => other.into(),
        }
    }

    /// Returns the error of a call of a group: at its deadline, calls that found no room name that as their reason.
    pub(crate) fn at_deadline(self) -> Self {
        match *self.0 {
            Reason::LimitReached { action, target, .. } => {
                Reason::Failed { action, target, failure: Failure::TimedOut }.into()
            }
            other => other.into(),
        }
    }

    /// Builds the error of a call that certainly did nothing.
    pub(crate) fn failed(action: &'static str, target: impl Into<String>, failure: Failure) -> Self {
        Reason::Failed { action, target: target.into(), failure }.into()
    }

    /// Refuses an argument before a request is sent.
    pub(crate) fn bad_argument(action: &'static str, target: &str, refused: BadArgument) -> Self {
        Reason::BadArgument { action, target: target.to_owned(), refused }.into()
    }

    /// Refuses a segment of another kind or size than a call needs.
    pub(crate) fn wrong_shape(action: &'static str, target: &str, found: impl Display, wanted: impl Display) -> Self {
        let refused = BadArgument::new("segment", found, wanted, Failure::Unsupported);
        Reason::WrongShape { action, target: target.to_owned(), refused }.into()
    }

    /// Wraps an argument that was refused before a request was sent.
    pub(crate) fn argument(action: &'static str, target: &str) -> impl FnOnce(BadArgument) -> Self {
        move |refused| Self::bad_argument(action, target, refused)
    }

    /// Builds the error of an unsuccessful completion.
    #[cold]
    pub(crate) fn of_completion(completion: &Completion, action: &'static str, target: &str) -> Self {
        Reason::of_completion(completion, action, target).into()
    }
}

impl From<Reason> for Error {
    #[cold]
    fn from(reason: Reason) -> Self {
        Self(Box::new(reason))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_failure_of_the_wire_has_a_kind_of_its_own() {
        // If this broke, a new failure would reach users as "not supported".
        let known = (1..=u8::MAX).map(Failure::from_code).filter(|&failure| failure != Failure::Malformed);
        let unsupported: Vec<Failure> =
            known.filter(|&failure| ErrorKind::of(failure) == ErrorKind::Unsupported).collect();
        assert_eq!(unsupported, [Failure::Unsupported, Failure::NoCluster]);
    }

    #[test]
    fn quota_error_carries_usage_and_limit() {
        let (action, target) = ("allocate", "frames".to_owned());
        let error =
            Error::from(Reason::OverQuota { action, target, failure: Failure::QuotaBytes, used: 5, allowed: 7 });
        let expected = LimitReached { limit: Limit::QuotaBytes, value: Some(7), used: Some(5) };
        assert_eq!((error.kind(), error.limit()), (ErrorKind::OverQuota, Some(expected)));
        assert!(!error.is_indeterminate() && !error.is_retryable() && !error.is_conflict());
    }
}
