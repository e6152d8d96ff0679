//! Programs that a command starts several times, each in a group of processes of its own.

use crate::error::CommandError;
use rustix::process::{Pid, Signal, kill_process_group};
use std::ffi::OsString;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, ExitStatus, Stdio};

/// A process that has been started. It is killed when this value is dropped.
pub(super) struct Started {
    pub(super) number: u16,
    pub(super) child: Child,
}

impl Started {
    /// Starts a program, which ends with this process. `prepare` sets its variables.
    pub(super) fn start(
        number: u16,
        program: &[OsString],
        prepare: impl FnOnce(&mut Command),
    ) -> Result<Self, CommandError> {
        let own = std::env::current_exe().map_err(CommandError::system("find this program"))?;
        let mut command = Command::new(own);
        // A group of its own: a wrapper and the program that it starts end together.
        command.process_group(0).stdin(Stdio::null());
        command.args(["dsm-rank", "--parent", &std::process::id().to_string(), "--"]).args(program);
        prepare(&mut command);
        let child = command.spawn().map_err(CommandError::system("start a program"))?;
        Ok(Self { number, child })
    }

    /// Sends a signal to the process, and to those that it has started.
    pub(super) fn signal(&self, signal: Signal) {
        if let Some(group) = Pid::from_raw(self.child.id().cast_signed()) {
            // All of them may have ended.
            let _ = kill_process_group(group, signal);
        }
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        self.signal(Signal::KILL);
        // It fails if the process has ended already.
        let _ = self.child.wait();
    }
}

/// Returns the words for the end of a process.
pub(super) fn ending(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("ended with status {code}"),
        (None, Some(signal)) => format!("was killed by signal {signal}"),
        (None, None) => "ended".to_owned(),
    }
}
