//! The commands of `ddss dsm`.

use super::run::run_ranks;
use super::{spaces, top};
use crate::arguments::dsm::DsmCommand;
use crate::error::CommandError;

pub(crate) fn run(command: &DsmCommand, json: bool) -> Result<(), CommandError> {
    match command {
        DsmCommand::Run(_) if json => Err(CommandError::NoJsonOutput),
        DsmCommand::Run(options) => run_ranks(options),
        DsmCommand::Ls(place) => spaces::list(place, json),
        DsmCommand::Top(options) => top::show(options, json),
        DsmCommand::Rm(options) => spaces::remove(options, json),
    }
}
