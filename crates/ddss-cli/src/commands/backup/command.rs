//! The commands about the whole of a cluster's segments.

use super::{recover, restore, snapshot};
use crate::arguments::BackupCommand;
use crate::error::CommandError;

pub(crate) fn run(command: &BackupCommand, json: bool) -> Result<(), CommandError> {
    match command {
        BackupCommand::Snapshot(options) => snapshot::run(options, json),
        BackupCommand::Restore(options) => restore::run(options, json),
        BackupCommand::Recover(options) => recover::run(options, json),
    }
}
