//! Runs a program in a pseudo-terminal, for output that only people see.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::process::{Child, Command};

use rustix::fs::OFlags;
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};

use crate::{CommandOutput, Error, binary};

/// Number of lines of every terminal.
const ROWS: u16 = 60;

/// A pseudo-terminal; this is the user's side.
#[derive(Debug)]
pub struct Terminal {
    master: File,
    name: String,
}

impl Terminal {
    /// Opens a pseudo-terminal that is `columns` characters wide.
    pub fn new(columns: u16) -> Result<Terminal, Error> {
        Terminal::open(columns).map_err(Error::system("opening a terminal"))
    }

    fn open(columns: u16) -> io::Result<Terminal> {
        let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY)?;
        grantpt(&master)?;
        unlockpt(&master)?;
        tcsetwinsize(&master, Winsize { ws_row: ROWS, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 })?;
        let name = ptsname(&master, Vec::new())?.into_string().map_err(io::Error::other)?;
        Ok(Terminal { master: master.into(), name })
    }

    /// Starts a program whose input and output are this terminal.
    pub fn start(&self, mut command: Command) -> Result<Child, Error> {
        command.env("TERM", "xterm-256color").env_remove("COLUMNS");
        let ends = || -> io::Result<[OwnedFd; 3]> { Ok([self.end()?, self.end()?, self.end()?]) };
        // The parent drops `command` with its copies of the terminal, so that the reader sees the end of the program.
        let started =
            ends().and_then(|[stdin, stdout, stderr]| command.stdin(stdin).stdout(stdout).stderr(stderr).spawn());
        started.map_err(Error::system("starting a program in a terminal"))
    }

    /// Opens the program's side of the terminal. It must not become the controlling terminal of the test.
    fn end(&self) -> io::Result<OwnedFd> {
        let flags = OFlags::NOCTTY.bits().cast_signed();
        Ok(OpenOptions::new().read(true).write(true).custom_flags(flags).open(&self.name)?.into())
    }

    /// Returns the user's side of the terminal, for typing and reading.
    pub fn user_end(&self) -> Result<File, Error> {
        self.master.try_clone().map_err(Error::system("sharing a terminal"))
    }

    /// Reads lines until the program ends.
    fn read(mut self) -> String {
        let (mut all, mut buffer) = (Vec::new(), [0; 1 << 14]);
        // Linux reports a closed program side as EIO.
        while let Ok(count) = self.master.read(&mut buffer)
            && count > 0
        {
            all.extend_from_slice(&buffer[..count]);
        }
        String::from_utf8_lossy(&all).replace("\r\n", "\n")
    }
}

/// Runs `ddss` with these arguments in a terminal of this width, for the daemon in `folder`, and types `typed` into it.
/// Standard output and standard error both arrive in `out`, as on a real terminal.
pub fn run_ddss_in_terminal(folder: &Path, columns: u16, words: &[&str], typed: &str) -> Result<CommandOutput, Error> {
    let terminal = Terminal::new(columns)?;
    let mut command = Command::new(binary("ddss")?);
    command.args(words).env("DDSS_DIR", folder).env("DDSS_STATE_DIR", folder.join("state")).current_dir(folder);
    let mut child = terminal.start(command)?;
    terminal.user_end()?.write_all(typed.as_bytes()).map_err(Error::system("typing into a terminal"))?;
    let out = terminal.read();
    let status = child.wait().map_err(Error::system("waiting for ddss"))?;
    Ok(CommandOutput { code: status.code().unwrap_or(-1), out, err: String::new() })
}

#[cfg(test)]
mod tests {
    use super::*;

    // If this failed, tests of terminal output would test the output for scripts.
    #[test]
    fn program_sees_a_terminal_of_the_given_width() {
        let terminal = Terminal::new(93).unwrap();
        let mut command = Command::new("sh");
        command.args(["-c", "test -t 1 && stty size && read word && echo got $word"]);
        let mut child = terminal.start(command).unwrap();
        terminal.user_end().unwrap().write_all(b"yes\n").unwrap();
        let said = terminal.read();
        assert!(child.wait().unwrap().success(), "{said}");
        assert!(said.contains("60 93\n") && said.contains("got yes\n"), "{said}");
    }
}
