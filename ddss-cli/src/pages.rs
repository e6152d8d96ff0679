//! Completions and manual pages, made of the same words as `--help`.

use crate::arguments::Arguments;
use crate::failure::CommandError;
use clap::CommandFactory;
use std::path::Path;

pub(crate) fn completions(shell: clap_complete::Shell) -> Result<(), CommandError> {
    clap_complete::generate(shell, &mut Arguments::command(), "ddss", &mut std::io::stdout().lock());
    Ok(())
}

pub(crate) fn manual(folder: &Path) -> Result<(), CommandError> {
    std::fs::create_dir_all(folder).map_err(CommandError::system("make the folder"))?;
    clap_mangen::generate_to(Arguments::command(), folder).map_err(CommandError::system("write the manual pages"))
}
