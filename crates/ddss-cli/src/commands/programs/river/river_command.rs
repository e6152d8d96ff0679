//! The choice of a command of `river`.

use super::units;
use crate::arguments::river::RiverCommand;
use crate::error::CommandError;

pub(crate) fn run(command: &RiverCommand, json: bool) -> Result<(), CommandError> {
    match command {
        RiverCommand::Units(command) => units::run(command, json),
    }
}
