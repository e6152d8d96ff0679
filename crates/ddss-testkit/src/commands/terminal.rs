//! A terminal with a program in it, for what people see and scripts do not.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::process::{Child, Command};

use rustix::fs::OFlags;
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};

use crate::{Error, Said, binary};

/// Lines of every terminal.
const ROWS: u16 = 60;

/// The end at which a person sits.
#[derive(Debug)]
pub struct Terminal {
    master: File,
    name: String,
}

impl Terminal {
    /// A new one, so many letters wide.
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

    /// Starts a program that reads from it and writes to it.
    pub fn start(&self, mut command: Command) -> Result<Child, Error> {
        command.env("TERM", "xterm-256color").env_remove("COLUMNS");
        let ends = || -> io::Result<[OwnedFd; 3]> { Ok([self.end()?, self.end()?, self.end()?]) };
        // When the program is gone, so is `command` with its copies of the ends: whoever reads is told.
        let started =
            ends().and_then(|[stdin, stdout, stderr]| command.stdin(stdin).stdout(stdout).stderr(stderr).spawn());
        started.map_err(Error::system("starting a program in a terminal"))
    }

    /// The end at which a program sits. It is not to become the terminal of who opens it.
    fn end(&self) -> io::Result<OwnedFd> {
        let flags = OFlags::NOCTTY.bits().cast_signed();
        Ok(OpenOptions::new().read(true).write(true).custom_flags(flags).open(&self.name)?.into())
    }

    /// What a person does: types into it, reads what comes.
    pub fn hands(&self) -> Result<File, Error> {
        self.master.try_clone().map_err(Error::system("sharing a terminal"))
    }

    /// Everything that comes until the program is gone, as lines.
    fn read(mut self) -> String {
        let (mut all, mut buffer) = (Vec::new(), [0; 1 << 14]);
        // The end is an error (EIO) when nobody is left at the other end.
        while let Ok(count) = self.master.read(&mut buffer)
            && count > 0
        {
            all.extend_from_slice(&buffer[..count]);
        }
        String::from_utf8_lossy(&all).replace("\r\n", "\n")
    }
}

/// Runs `ddss` with these words in a terminal that is so wide, for the daemon in `folder`; types `typed` into it. What it says
/// to standard output and to standard error is all in `out`, as a person sees it.
pub fn say_in_terminal(folder: &Path, columns: u16, words: &[&str], typed: &str) -> Result<Said, Error> {
    let terminal = Terminal::new(columns)?;
    let mut command = Command::new(binary("ddss")?);
    command.args(words).env("DDSS_DIR", folder).env("DDSS_STATE_DIR", folder.join("state")).current_dir(folder);
    let mut child = terminal.start(command)?;
    terminal.hands()?.write_all(typed.as_bytes()).map_err(Error::system("typing into a terminal"))?;
    let out = terminal.read();
    let status = child.wait().map_err(Error::system("waiting for ddss"))?;
    Ok(Said { code: status.code().unwrap_or(-1), out, err: String::new() })
}

#[cfg(test)]
mod tests {
    use super::*;

    // If this failed, what is tested as seen in a terminal would be what scripts see.
    #[test]
    fn a_program_finds_itself_in_a_terminal_of_that_width() {
        let terminal = Terminal::new(93).unwrap();
        let mut command = Command::new("sh");
        command.args(["-c", "test -t 1 && stty size && read word && echo got $word"]);
        let mut child = terminal.start(command).unwrap();
        terminal.hands().unwrap().write_all(b"yes\n").unwrap();
        let said = terminal.read();
        assert!(child.wait().unwrap().success(), "{said}");
        assert!(said.contains("60 93\n") && said.contains("got yes\n"), "{said}");
    }
}
