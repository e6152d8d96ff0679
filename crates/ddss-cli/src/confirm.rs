//! Questions before something is done that cannot be undone.

use crate::error::CommandError;
use std::io::{BufRead, IsTerminal, Write};

/// Asks the person at the terminal; whoever said `--yes` is not asked. Without a terminal there is nobody to ask, and
/// nothing is done.
pub(crate) fn confirm(question: &str, yes: bool) -> Result<(), CommandError> {
    if yes {
        return Ok(());
    }
    let input = std::io::stdin();
    if !input.is_terminal() {
        return Err(CommandError::Unconfirmed);
    }
    let mut told = std::io::stderr();
    write!(told, "{question} [y/N] ").and_then(|()| told.flush()).map_err(CommandError::system("ask"))?;
    let mut answer = String::new();
    input.lock().read_line(&mut answer).map_err(CommandError::system("read the answer"))?;
    if matches!(answer.trim(), "y" | "Y" | "yes") {
        Ok(())
    } else {
        Err(CommandError::Refused("nothing was done".into()))
    }
}
