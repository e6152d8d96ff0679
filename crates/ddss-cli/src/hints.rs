//! Hints: the next step after an error whose own message does not name one.

use crate::error::{CommandError, QUERY_CLUSTER};
use ddss::{Error, Failure};
use std::io;

/// Hint for a call whose outcome is unknown.
const CHECK_OUTCOME: &str = "check before a retry: `ddss stat NAME` shows a version one higher if the put took effect";
/// Hint for a call whose outcome is unknown because its daemon ended.
const RESTART_AND_CHECK: &str =
    "restart the daemon, then check: `ddss stat NAME` shows a version one higher if the put took effect";

/// Returns the next step after an error.
pub(crate) fn next_step(error: &CommandError) -> Option<&'static str> {
    match error {
        CommandError::Client(Error::OutOfRange { .. }) => Some("`ddss stat NAME` shows the size of the segment"),
        CommandError::Client(why @ Error::Attach(_)) if is_permission_denied(why) => Some(
            "run the command as the daemon's user or as root, or open the socket to other users (ddssd --socket-mode)",
        ),
        CommandError::Client(Error::Attach(_)) => {
            Some("`ddss status` and `ddss counters` show whether the daemon hangs; its log shows why")
        }
        CommandError::Client(Error::DaemonGone { .. }) => Some(RESTART_AND_CHECK),
        // The message itself names the valid values.
        CommandError::Client(Error::BadArgument { .. }) => None,
        CommandError::Client(Error::Indeterminate { .. }) => Some(CHECK_OUTCOME),
        CommandError::Client(error) => step_after(error.failure()?),
        CommandError::Io { tried: QUERY_CLUSTER, source } if source.kind() == io::ErrorKind::PermissionDenied => {
            Some("run the command as the daemon's user or as root")
        }
        _ => None,
    }
}

/// Returns true if a source of the error is `EACCES` or `EPERM`.
fn is_permission_denied(error: &dyn std::error::Error) -> bool {
    std::iter::successors(error.source(), |error| error.source())
        .filter_map(|error| error.downcast_ref::<io::Error>())
        .any(|error| error.kind() == io::ErrorKind::PermissionDenied)
}

/// Returns the next step after a failure that the daemon reported.
fn step_after(failure: Failure) -> Option<&'static str> {
    Some(match failure {
        Failure::NotFound => "`ddss ls` lists the segments",
        Failure::AlreadyExists => "`ddss stat NAME` shows the existing segment, `ddss release NAME` frees the name",
        Failure::PermissionDenied => "the owner and root can grant access: `ddss chmod MODE NAME`",
        Failure::TooLarge => "transfer it in parts (--offset, --length)",
        Failure::NoSpace => {
            "`ddss ls` shows the sizes of the segments; release some, or restart ddssd with more --pool-bytes"
        }
        Failure::SegmentsFull => "`ddss ls` lists the segments; release some, or choose another node (--home)",
        Failure::NodeDown => "`ddss nodes` shows the live nodes",
        Failure::TimedOut => {
            "`ddss locks NAME` shows the holder of the lock, `ddss nodes` the live nodes, `ddss counters` the load of this node"
        }
        Failure::VersionMismatch => "`ddss stat NAME` shows the present version",
        Failure::VersionGone => "`ddss history NAME` lists the versions that remain",
        Failure::Locked | Failure::LockLost => "`ddss locks NAME` shows the holder of the lock",
        Failure::Contended => "take the lock of the segment, or read fewer bytes at once",
        Failure::Damaged => "`ddss get` copies the other rows; `ddss release NAME` frees the table",
        Failure::Unsupported => "compare the releases of all nodes: `ddss nodes`, and `ddssd --version` on each",
        Failure::GoingDown => "`ddss status` shows when a daemon serves again",
        _ => return None,
    })
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
        let steps = (0..=u8::MAX)
            .filter_map(|code| step_after(Failure::from_code(code)))
            .chain([CHECK_OUTCOME, RESTART_AND_CHECK]);
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
