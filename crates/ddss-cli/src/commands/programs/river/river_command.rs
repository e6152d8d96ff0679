//! The choice of a command of `river`.

use super::run::run_flow;
use super::{files, flows, listing, messages, top, units};
use crate::arguments::river::RiverCommand;
use crate::error::CommandError;

pub(crate) fn run(command: &RiverCommand, json: bool) -> Result<(), CommandError> {
    match command {
        RiverCommand::Ls(place) => listing::list(place, json),
        RiverCommand::Run(_) | RiverCommand::Dot(_) if json => Err(CommandError::NoJsonOutput),
        RiverCommand::Run(options) => run_flow(options),
        RiverCommand::Dot(named) => flows::dot(named),
        RiverCommand::Cancel(named) => flows::cancel(named, json),
        RiverCommand::Show(named) => listing::show(named, json),
        RiverCommand::Top(options) => top::show(options, json),
        RiverCommand::Put(options) => messages::put(options, json),
        RiverCommand::Take(options) => messages::take(options, json),
        RiverCommand::Serve(_) if json => Err(CommandError::NoJsonOutput),
        RiverCommand::Cat(_) if json => Err(CommandError::NoJsonOutput),
        RiverCommand::Serve(options) => files::serve(options),
        RiverCommand::Load(options) => files::load(options, json),
        RiverCommand::Cat(options) => files::cat(options),
        RiverCommand::Files(place) => files::list(place, json),
        RiverCommand::Verify(options) => files::verify(options, json),
        RiverCommand::Repair(options) => files::repair(options, json),
        RiverCommand::Units(command) => units::run(command, json),
    }
}
