//! Other processes of the same example.

use crate::{Failed, PATIENCE};
use ddss::{Client, ConnectOptions};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

/// Environment variable that marks a worker process.
const MARK: &str = "--as-worker";

/// Task of a worker, and its node.
#[derive(Clone, Debug)]
pub struct Task {
    /// Name of the task.
    pub name: String,
    /// Directory of its node.
    pub folder: PathBuf,
}

impl Task {
    /// Returns the task of this process, if it is a worker.
    pub fn given() -> Option<Self> {
        let mut words = std::env::args_os().skip(1);
        (words.next()? == MARK).then_some(())?;
        Some(Self { name: words.next()?.into_string().ok()?, folder: words.next()?.into() })
    }

    /// Connects a client to the task's node.
    pub fn client(&self) -> Result<Client, Failed> {
        Ok(Client::connect_with(ConnectOptions::new().directory(&self.folder).timeout(PATIENCE))?)
    }
}

/// A process of this example. It is killed if it still runs when this is dropped.
#[derive(Debug)]
pub struct Worker(Child);

impl Worker {
    pub(crate) fn start(task: &Task) -> Result<Self, Failed> {
        let mut command = Command::new(std::env::current_exe()?);
        command.arg(MARK).arg(&task.name).arg(&task.folder).stdin(Stdio::null());
        Ok(Self(command.spawn()?))
    }

    /// Returns its process id.
    pub fn pid(&self) -> u32 {
        self.0.id()
    }

    /// Waits until it has done its task.
    pub fn finish(mut self) -> Result<(), Failed> {
        let status = self.0.wait()?;
        crate::check(status.success(), || format!("a worker process failed: {status}"))
    }

    /// Kills it as `kill -9` does: it cannot clean up.
    pub fn kill(mut self) -> Result<(), Failed> {
        self.0.kill()?;
        self.0.wait()?;
        Ok(())
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        // Fails if the process has ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
