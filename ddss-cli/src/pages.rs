//! Completions and manual pages, made of the same words as `--help`.

use crate::arguments::{Arguments, Program};
use crate::failure::CommandError;
use clap::CommandFactory;
use std::io::Write;
use std::path::Path;

fn command(program: Program) -> clap::Command {
    match program {
        Program::Ddss => Arguments::command(),
        Program::Ddssd => ddssd::Arguments::command(),
    }
}

pub(crate) fn completions(shell: clap_complete::Shell, of: Program) -> Result<(), CommandError> {
    let mut words = Vec::new();
    let mut command = command(of);
    let name = command.get_name().to_owned();
    clap_complete::generate(shell, &mut command, name, &mut words);
    std::io::stdout().lock().write_all(&words).map_err(CommandError::system("write to standard output"))
}

pub(crate) fn manual(folder: &Path) -> Result<(), CommandError> {
    std::fs::create_dir_all(folder).map_err(CommandError::system("make the folder"))?;
    for program in [Program::Ddss, Program::Ddssd] {
        clap_mangen::generate_to(command(program), folder).map_err(CommandError::system("write the manual pages"))?;
    }
    Ok(())
}
