//! Confirmation before an action that cannot be undone.

use crate::error::CommandError;
use std::io::{BufRead, IsTerminal, Write};

/// Asks for confirmation at the terminal, unless `yes` is set. Without a terminal the action is refused.
pub(crate) fn confirm(question: &str, yes: bool) -> Result<(), CommandError> {
    if yes {
        return Ok(());
    }
    let input = std::io::stdin();
    if !input.is_terminal() {
        return Err(CommandError::Unconfirmed);
    }
    let mut output = std::io::stderr();
    write!(output, "{question} [y/N] ")
        .and_then(|()| output.flush())
        .map_err(CommandError::system("ask for confirmation"))?;
    let mut answer = String::new();
    input.lock().read_line(&mut answer).map_err(CommandError::system("read the answer"))?;
    if matches!(answer.trim(), "y" | "Y" | "yes") {
        Ok(())
    } else {
        Err(CommandError::Refused("nothing was done".into()))
    }
}
