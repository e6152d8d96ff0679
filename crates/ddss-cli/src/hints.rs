//! What to do next about an error, where its own sentence does not say so.

use crate::error::{ASK, CommandError};
use ddss::{Error, Failure};
use std::io;

/// What to do before anything that may have happened is done again.
const LOOK: &str =
    "look before you do it again: `ddss stat NAME` shows what is there, its version one higher if it was put";
/// The same where the daemon has to come back first.
const LOOK_THERE: &str =
    "start the daemon again, then look: `ddss stat NAME` shows what is there, its version one higher if it was put";

/// The next step, as a part of a sentence.
pub(crate) fn next_step(error: &CommandError) -> Option<&'static str> {
    match error {
        CommandError::Client(Error::OutOfRange { .. }) => Some("`ddss stat NAME` says how large it is"),
        CommandError::Client(why @ Error::Attach(_)) if denies(why) => {
            Some("run it as the daemon's user or as root, or have the socket opened to others (ddssd --socket-mode)")
        }
        CommandError::Client(Error::Attach(_)) => {
            Some("`ddss status` and `ddss counters` tell whether it hangs, its log tells why")
        }
        CommandError::Client(Error::DaemonGone { .. }) => Some(LOOK_THERE),
        // It says what is good.
        CommandError::Client(Error::BadArgument { .. }) => None,
        CommandError::Client(Error::Indeterminate { .. }) => Some(LOOK),
        CommandError::Client(error) => about(error.failure()?),
        CommandError::System { tried: ASK, source } if source.kind() == io::ErrorKind::PermissionDenied => {
            Some("run it as the daemon's user or as root")
        }
        _ => None,
    }
}

/// Whether the system said, somewhere below, that this user may not.
fn denies(error: &dyn std::error::Error) -> bool {
    std::iter::successors(error.source(), |error| error.source())
        .filter_map(|error| error.downcast_ref::<io::Error>())
        .any(|error| error.kind() == io::ErrorKind::PermissionDenied)
}

fn about(failure: Failure) -> Option<&'static str> {
    Some(match failure {
        Failure::NotFound => "`ddss ls` shows what there is",
        Failure::AlreadyExists => "`ddss stat NAME` shows that one, `ddss release NAME` frees the name",
        Failure::PermissionDenied => "its owner and root may let others in: `ddss chmod MODE NAME`",
        Failure::TooLarge => "take it in parts (--offset, --length), or `ddss export` and `ddss import` it",
        Failure::NoSpace => "`ddss ls` shows what takes it; release some, or start ddssd with more --pool-bytes",
        Failure::SegmentsFull => "`ddss ls` shows them; release some, or name another node (--home)",
        Failure::NodeDown => "`ddss nodes` shows who is alive",
        Failure::TimedOut => {
            "`ddss locks NAME` shows who holds it, `ddss nodes` who is alive, `ddss counters` what the node does"
        }
        Failure::VersionMismatch => "`ddss stat NAME` shows the version that it has",
        Failure::VersionGone => "`ddss history NAME` shows those that are kept",
        Failure::Locked | Failure::LockLost => "`ddss locks NAME` shows who holds it",
        Failure::Contended => "take its lock, or read less at once",
        Failure::Unsupported => "are all nodes of one release? `ddss nodes`, and `ddssd --version` on each",
        Failure::GoingDown => "`ddss status` tells when a daemon serves again",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_names_commands_that_there_are() {
        // If this broke, who is in trouble would be told to type what the program does not know.
        use clap::CommandFactory;
        let command = crate::arguments::Arguments::command();
        let known = |word: &str| command.get_subcommands().any(|known| known.get_name() == word);
        let steps = (0..=u8::MAX).filter_map(|code| about(Failure::from_code(code))).chain([LOOK, LOOK_THERE]);
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
