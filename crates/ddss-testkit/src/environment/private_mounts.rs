//! Small file systems in memory that only some processes see, for tests with full or read-only file systems.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use super::skipped::skipped;
use crate::{Error, TempNode};

/// A directory with small file systems mounted below it, visible only inside one mount namespace.
///
/// The mounts disappear when the value is dropped and the last process in the namespace has ended.
#[derive(Debug)]
pub struct PrivateMounts {
    // The order of fields counts: the mounts must be dropped before the directory that they are mounted in.
    holder: Child,
    folder: TempNode,
}

/// Shell script that mounts its arguments, in pairs, and then sleeps.
const SCRIPT: &str = "while [ $# -gt 1 ]; do mount -t tmpfs -o \"$2,mode=700\" ddss \"$1\" || exit 1; shift 2; done
    echo there; exec sleep 3600";

impl PrivateMounts {
    /// Mounts one file system for each name, with options as `mount` takes them (`size=8m`, `ro`).
    ///
    /// Returns `None`, and reports `test` as skipped, if this user or this kernel cannot mount them.
    pub fn new(test: &str, mounts: &[(&str, &str)]) -> Option<PrivateMounts> {
        match PrivateMounts::mount(mounts) {
            Ok(mounts) => Some(mounts),
            Err(error) => {
                skipped(test, &format!("it needs root and mount namespaces: {error}"));
                None
            }
        }
    }

    fn mount(mounts: &[(&str, &str)]) -> Result<PrivateMounts, Error> {
        let folder = TempNode::new()?;
        let mut command = Command::new("unshare");
        command.args(["--mount", "--propagation", "private", "sh", "-c", SCRIPT, "sh"]);
        for (name, options) in mounts {
            let mount = folder.join(name);
            std::fs::create_dir(&mount).map_err(Error::system(format!("making {}", mount.display())))?;
            command.arg(mount).arg(options);
        }
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut holder = command.spawn().map_err(Error::system("starting unshare"))?;
        let out = holder.stdout.take().expect("standard output was asked for as a pipe");
        let mut said = String::new();
        let heard = BufReader::new(out).read_line(&mut said);
        let mounts = PrivateMounts { holder, folder };
        match heard {
            Ok(_) if said == "there\n" => Ok(mounts),
            _ => Err(Error::system("mounting a small file system")(std::io::Error::other("it could not be made"))),
        }
    }

    /// Returns the path of a mount; for an unknown name, a path beside the mounts with enough space.
    pub fn mount_path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// Returns the arguments that start a program inside the namespace.
    pub fn command_prefix(&self) -> Vec<String> {
        ["nsenter", "-t", &self.holder.id().to_string(), "-m", "--"].map(str::to_owned).into()
    }

    /// Fills the file system of a directory to the last block, or up to `kib`; the file is called `filler`.
    pub fn fill(&self, folder: &Path, kib: Option<u32>) {
        let count = kib.map_or_else(String::new, |kib| format!("count={kib}"));
        self.run(&format!("dd if=/dev/zero of={}/filler bs=1k {count}", folder.display()));
    }

    /// Removes the file `filler`.
    pub fn empty(&self, folder: &Path) {
        self.run(&format!("rm -f {}/filler", folder.display()));
    }

    fn run(&self, script: &str) {
        let through = self.command_prefix();
        let mut command = Command::new(&through[0]);
        command.args(&through[1..]).args(["sh", "-c", script]);
        // A full file system is the goal here, and `dd` reports it as an error.
        let _ = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status();
    }
}

impl Drop for PrivateMounts {
    fn drop(&mut self) {
        // This process only keeps the namespace alive.
        let _ = self.holder.kill();
        let _ = self.holder.wait();
    }
}
