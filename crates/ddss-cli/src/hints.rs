//! Hints: the next step after an error whose own message does not name one.

use crate::error::{CommandError, QUERY_CLUSTER};
use ddss::{ErrorKind, Limit};
use std::io;

/// Hint for a call whose outcome is unknown.
const CHECK_OUTCOME: &str = "check before a retry: `ddss stat NAME` shows a version one higher if the put took effect";
/// Hint for a call whose outcome is unknown because its daemon ended.
const RESTART_AND_CHECK: &str =
    "restart the daemon, then check: `ddss stat NAME` shows a version one higher if the put took effect";

/// Hints for errors of calls, by kind.
const HINTS: &[(ErrorKind, &str)] = &[
    (ErrorKind::OutOfRange, "`ddss stat NAME` shows the size of the segment"),
    (ErrorKind::DaemonGone, RESTART_AND_CHECK),
    (ErrorKind::NotFound, "`ddss ls` lists the segments"),
    (ErrorKind::AlreadyExists, "`ddss stat NAME` shows the existing segment, `ddss release NAME` frees the name"),
    (ErrorKind::PermissionDenied, "the owner and root can grant access: `ddss chmod MODE NAME`"),
    (
        ErrorKind::NoSpace,
        "`ddss ls` shows the sizes of the segments; release some, or give the node more memory (ddssd --pool-bytes, df /dev/shm)",
    ),
    (ErrorKind::NodeDown, "`ddss nodes` shows the live nodes, `ddss status` whether this one serves"),
    (
        ErrorKind::TimedOut,
        "`ddss locks NAME` shows the holder of the lock, `ddss nodes` the live nodes, `ddss counters` the load of this node",
    ),
    (ErrorKind::VersionMismatch, "`ddss stat NAME` shows the present version"),
    (ErrorKind::VersionGone, "`ddss history NAME` lists the versions that remain"),
    (ErrorKind::Locked, LOCK_HOLDER),
    (ErrorKind::LockLost, LOCK_HOLDER),
    (ErrorKind::Contended, "take the lock of the segment, or read fewer bytes at once"),
    (ErrorKind::Damaged, "`ddss get` copies the other rows; `ddss release NAME` frees the table"),
    (ErrorKind::Unsupported, "compare the releases of all nodes: `ddss nodes`, and `ddssd --version` on each"),
    (ErrorKind::System, DAEMON_HANGS),
];
const DAEMON_HANGS: &str = "`ddss status` and `ddss counters` show whether the daemon hangs; its log shows why";
const LOCK_HOLDER: &str = "`ddss locks NAME` shows the holder of the lock";
const FULL_NODE: &str = "`ddss ls` lists the segments; release some, or choose another node (--home)";

/// Returns the next step after an error.
pub(crate) fn next_step(error: &CommandError) -> Option<&'static str> {
    match error {
        CommandError::Client(error) if is_refused_by_socket(error) => Some(
            "run the command as the daemon's user or as root, or open the socket to other users (ddssd --socket-mode)",
        ),
        CommandError::Client(error) if error.limit().is_some_and(|reached| reached.limit == Limit::Segments) => {
            Some(FULL_NODE)
        }
        CommandError::Client(error) if error.is_indeterminate() && error.kind() != ErrorKind::DaemonGone => {
            Some(CHECK_OUTCOME)
        }
        // A call that was too late may be repeated; a connection that the daemon did not answer needs a look at the daemon.
        CommandError::Client(error) if error.kind() == ErrorKind::TimedOut && !error.is_retryable() => {
            Some(DAEMON_HANGS)
        }
        CommandError::Client(error) => HINTS.iter().find(|(kind, _)| *kind == error.kind()).map(|&(_, step)| step),
        CommandError::Io { tried: QUERY_CLUSTER, source } if source.kind() == io::ErrorKind::PermissionDenied => {
            Some("run the command as the daemon's user or as root")
        }
        _ => None,
    }
}

/// Returns true if the operating system refused the connection to the daemon's socket.
fn is_refused_by_socket(error: &ddss::Error) -> bool {
    error.kind() == ErrorKind::PermissionDenied && is_permission_denied(error)
}

/// Returns true if a source of the error is `EACCES` or `EPERM`.
fn is_permission_denied(error: &dyn std::error::Error) -> bool {
    std::iter::successors(error.source(), |error| error.source())
        .filter_map(|error| error.downcast_ref::<io::Error>())
        .any(|error| error.kind() == io::ErrorKind::PermissionDenied)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hints_name_existing_commands() {
        // A hint with an unknown command would mislead a user who already has a problem.
        use clap::CommandFactory;
        let command = crate::arguments::Arguments::command();
        let known = |word: &str| command.get_subcommands().any(|known| known.get_name() == word);
        let steps = HINTS.iter().map(|&(_, step)| step).chain([CHECK_OUTCOME, FULL_NODE]);
        let mut seen = 0;
        for step in steps {
            for typed in step.split('`').skip(1).step_by(2).filter_map(|typed| typed.strip_prefix("ddss ")) {
                assert!(known(typed.split(' ').next().unwrap_or_default()), "{step}");
                seen += 1;
            }
        }
        assert!(seen > 10, "{seen}");
    }
}
