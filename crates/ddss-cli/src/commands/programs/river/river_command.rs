//! The choice of a command of `river`.

use super::{listing, messages, units};
use crate::arguments::river::RiverCommand;
use crate::error::CommandError;

pub(crate) fn run(command: &RiverCommand, json: bool) -> Result<(), CommandError> {
    match command {
        RiverCommand::Ls(place) => listing::list(place, json),
        RiverCommand::Show(named) => listing::show(named, json),
        RiverCommand::Put(options) => messages::put(options, json),
        RiverCommand::Take(options) => messages::take(options, json),
        RiverCommand::Units(command) => units::run(command, json),
    }
}
