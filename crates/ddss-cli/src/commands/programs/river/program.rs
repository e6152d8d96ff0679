//! A program that runs for each piece of work.

use crate::error::CommandError;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::ioctl_fionbio;
use rustix::process::{Pid, Signal, kill_process_group};
use std::ffi::{OsStr, OsString};
use std::io::{self, Write, stderr};
use std::os::fd::AsFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::{Duration, Instant};

/// Text in an argument that stands for the content.
const PLACEHOLDER: &[u8] = b"{}";
/// Time in which an interrupted program may end by itself.
const END_MAX: Duration = Duration::from_secs(10);
/// Time between two looks at a program.
const LOOK_EVERY: Timespec = Timespec { tv_sec: 0, tv_nsec: 10_000_000 };

/// Requests of signals: none, one for an end in order, or another one for an end at once.
#[derive(Default, Debug)]
pub(super) struct Interruption(AtomicU8);

impl Interruption {
    /// Notes a signal.
    pub(super) fn raise(&self) {
        let _ = self.0.fetch_update(Ordering::AcqRel, Ordering::Acquire, |asked| Some(asked.saturating_add(1).min(2)));
    }

    /// Takes one request off: the caller ends in order, and the next signal counts as the first.
    pub(super) fn heed(&self) {
        let _ = self.0.fetch_update(Ordering::AcqRel, Ordering::Acquire, |asked| asked.checked_sub(1));
    }

    pub(super) fn is_raised(&self) -> bool {
        self.0.load(Ordering::Acquire) > 0
    }

    fn is_raised_twice(&self) -> bool {
        self.0.load(Ordering::Acquire) > 1
    }
}

/// End of a program.
#[derive(Clone, Copy, Debug)]
pub(super) enum ProgramEnd {
    Exited(ExitStatus),
    /// It was ended, because its work is not wanted any more.
    Stopped,
}

/// A program and its arguments.
#[derive(Debug)]
pub(super) struct Program<'a> {
    words: &'a [OsString],
    has_placeholder: bool,
    /// Its output is not that of the command.
    is_aside: bool,
}

/// A program that runs. It is killed when this value is dropped.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        self.signal(Signal::KILL);
        // It fails if the program has ended already.
        let _ = self.0.wait();
    }
}

impl Running {
    fn signal(&self, signal: Signal) {
        // It fails if the whole group has ended.
        let _ = kill_process_group(Pid::from_child(&self.0), signal);
    }
}

impl<'a> Program<'a> {
    /// Names a program, which has to be one: else all work would fail by it. With `is_aside` its output goes to standard error.
    pub(super) fn new(words: &'a [OsString], is_aside: bool) -> Result<Self, CommandError> {
        let Some(name) = words.first() else {
            return Err(CommandError::InvalidInput("name a program to run".to_owned()));
        };
        if !is_program(name) {
            let source = io::Error::from(io::ErrorKind::NotFound);
            return Err(CommandError::File { tried: "run", path: PathBuf::from(name), source });
        }
        let has_placeholder = words.iter().any(|word| find(word.as_bytes()).is_some());
        Ok(Self { words, has_placeholder, is_aside })
    }

    /// Runs the program for this content, with these variables. Ends it when `is_unwanted` says so, or a signal came.
    pub(super) fn run(
        &self,
        content: &[u8],
        variables: &[(&str, String)],
        interruption: &Interruption,
        is_unwanted: impl Fn() -> bool,
    ) -> Result<ProgramEnd, CommandError> {
        let own = std::env::current_exe().map_err(CommandError::system("find this program"))?;
        let mut command = Command::new(own);
        // It ends with this process: another worker gets the work then.
        command.args(["dsm-rank", "--parent", &std::process::id().to_string(), "--"]);
        command.args(self.words.iter().map(|word| replace(word, content))).process_group(0);
        command.envs(variables.iter().map(|(name, value)| (name, value)));
        command.stdin(if self.has_placeholder { Stdio::null() } else { Stdio::piped() });
        if self.is_aside {
            let aside = stderr().as_fd().try_clone_to_owned().map_err(CommandError::system("use standard error"))?;
            command.stdout(aside);
        }
        let mut running = Running(command.spawn().map_err(CommandError::system("start a program"))?);
        let input = running.0.stdin.take().map(|pipe| Input { pipe, rest: content });
        if let Some(input) = &input {
            ioctl_fionbio(&input.pipe, true)
                .map_err(|error| CommandError::system("write to a program")(error.into()))?;
        }
        running.watch(input, interruption, is_unwanted)
    }
}

/// Standard input of a program, and what it has to get yet. A process that the program leaves behind may hold the other end
/// without reading it: a write must not block.
struct Input<'a> {
    pipe: ChildStdin,
    rest: &'a [u8],
}

impl Input<'_> {
    /// Writes what the pipe has room for; waits for room, up to the next look. Returns false at the end.
    fn write(&mut self) -> bool {
        let mut room = [PollFd::new(&self.pipe, PollFlags::OUT)];
        // An error shows at the write.
        let _ = poll(&mut room, Some(&LOOK_EVERY));
        match self.pipe.write(self.rest) {
            Ok(written) => self.rest = &self.rest[written..],
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => {}
            // A program may end without reading it.
            Err(_) => return false,
        }
        !self.rest.is_empty()
    }
}

impl Running {
    fn watch(
        &mut self,
        mut input: Option<Input<'_>>,
        interruption: &Interruption,
        is_unwanted: impl Fn() -> bool,
    ) -> Result<ProgramEnd, CommandError> {
        let mut end = None;
        loop {
            if let Some(status) = self.0.try_wait().map_err(CommandError::system("wait for a program"))? {
                return Ok(if end.is_some() { ProgramEnd::Stopped } else { ProgramEnd::Exited(status) });
            }
            if interruption.is_raised() || is_unwanted() {
                let end = *end.get_or_insert_with(|| {
                    self.signal(Signal::TERM);
                    Instant::now() + END_MAX
                });
                if interruption.is_raised_twice() || Instant::now() >= end {
                    self.signal(Signal::KILL);
                }
            }
            if !input.as_mut().is_some_and(Input::write) {
                input = None;
                let _ = poll(&mut [], Some(&LOOK_EVERY));
            }
        }
    }
}

/// Returns true if the system would find a program of this name.
fn is_program(name: &OsStr) -> bool {
    let is_executable =
        |path: &Path| path.metadata().is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0);
    if name.as_bytes().contains(&b'/') {
        return is_executable(Path::new(name));
    }
    let folders = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&folders).any(|folder| is_executable(&folder.join(name)))
}

fn find(word: &[u8]) -> Option<usize> {
    word.windows(PLACEHOLDER.len()).position(|part| part == PLACEHOLDER)
}

/// Puts the content in the place of each placeholder.
fn replace(word: &OsStr, content: &[u8]) -> OsString {
    let (mut rest, mut replaced) = (word.as_bytes(), Vec::new());
    while let Some(at) = find(rest) {
        replaced.extend_from_slice(&rest[..at]);
        replaced.extend_from_slice(content);
        rest = &rest[at + PLACEHOLDER.len()..];
    }
    replaced.extend_from_slice(rest);
    OsString::from_vec(replaced)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_placeholder_is_replaced_and_the_content_is_not_searched() {
        let replaced = |word: &str| replace(OsStr::new(word), b"a {} b").into_string().unwrap_or_default();
        assert_eq!(replaced("plain"), "plain");
        assert_eq!(replaced("{}"), "a {} b");
        assert_eq!(replaced("--in={},{}{"), "--in=a {} b,a {} b{");
        assert!(is_program(OsStr::new("sh")) && is_program(OsStr::new("/bin/sh")));
        assert!(!is_program(OsStr::new("/bin")) && !is_program(OsStr::new("no-such-program-here")));
    }
}
