//! Shell completions and manual pages, generated from the argument definitions.

use crate::arguments::{Arguments, Program};
use crate::error::{CommandError, WRITE_STDOUT};
use clap::CommandFactory;
use ddss_admin::Release;
use std::io::Write;
use std::path::Path;

fn command(program: Program) -> clap::Command {
    match program {
        Program::Ddss => visible_commands(&Arguments::command()),
        Program::Ddssd => ddss_admin::Arguments::command(),
    }
}

/// Returns `ddss` without its hidden commands, which only the program itself starts.
fn visible_commands(whole: &clap::Command) -> clap::Command {
    clap::Command::new("ddss")
        .version(Release::VERSION)
        .long_version(Release::long())
        .about(whole.get_about().cloned().unwrap_or_default())
        .after_help(whole.get_after_help().cloned().unwrap_or_default())
        .args(whole.get_arguments().cloned())
        .subcommand_required(whole.is_subcommand_required_set())
        .subcommands(whole.get_subcommands().filter(|command| !command.is_hide_set()).cloned())
}

pub(crate) fn completions(shell: clap_complete::Shell, of: Program) -> Result<(), CommandError> {
    let mut words = Vec::new();
    let mut command = command(of);
    let name = command.get_name().to_owned();
    clap_complete::generate(shell, &mut command, name, &mut words);
    std::io::stdout().lock().write_all(&words).map_err(CommandError::system(WRITE_STDOUT))
}

pub(crate) fn manual(folder: &Path) -> Result<(), CommandError> {
    std::fs::create_dir_all(folder).map_err(CommandError::file("create the folder", folder))?;
    for program in [Program::Ddss, Program::Ddssd] {
        clap_mangen::generate_to(command(program), folder)
            .map_err(CommandError::file("write the manual pages into", folder))?;
    }
    Ok(())
}
