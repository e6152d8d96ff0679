//! Small file systems in memory that only some processes see: to be filled up, or to be read only.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use super::skipped::skipped;
use crate::{Error, TempNode};

/// A folder in which some folders are small file systems of their own, for whoever is in its mount namespace. They are
/// gone when this is dropped and nobody else is in it.
#[derive(Debug)]
pub struct Closet {
    // The order counts: what is mounted goes before the folder that it is mounted in.
    holder: Child,
    folder: TempNode,
}

/// Mounts what its arguments say, two and two, and stays.
const SCRIPT: &str = "while [ $# -gt 1 ]; do mount -t tmpfs -o \"$2,mode=700\" ddss \"$1\" || exit 1; shift 2; done
    echo there; exec sleep 3600";

impl Closet {
    /// Shelves of these names, each a file system with options as `mount` takes them (`size=8m`, `ro`). Nothing, and it is
    /// said why `test` is skipped, where this user or this kernel cannot make them.
    pub fn new(test: &str, shelves: &[(&str, &str)]) -> Option<Closet> {
        match Closet::mount(shelves) {
            Ok(closet) => Some(closet),
            Err(error) => {
                skipped(test, &format!("it needs root and mount namespaces: {error}"));
                None
            }
        }
    }

    fn mount(shelves: &[(&str, &str)]) -> Result<Closet, Error> {
        let folder = TempNode::new()?;
        let mut command = Command::new("unshare");
        command.args(["--mount", "--propagation", "private", "sh", "-c", SCRIPT, "sh"]);
        for (name, options) in shelves {
            let shelf = folder.join(name);
            std::fs::create_dir(&shelf).map_err(Error::system(format!("making {}", shelf.display())))?;
            command.arg(shelf).arg(options);
        }
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut holder = command.spawn().map_err(Error::system("starting unshare"))?;
        let out = holder.stdout.take().expect("standard output was asked for as a pipe");
        let mut said = String::new();
        let heard = BufReader::new(out).read_line(&mut said);
        let closet = Closet { holder, folder };
        match heard {
            Ok(_) if said == "there\n" => Ok(closet),
            _ => Err(Error::system("mounting a small file system")(std::io::Error::other("it could not be made"))),
        }
    }

    /// Where a shelf is; or, for another name, a place beside the shelves with room enough.
    pub fn shelf(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// What goes before the name of a program to start it in there.
    pub fn through(&self) -> Vec<String> {
        ["nsenter", "-t", &self.holder.id().to_string(), "-m", "--"].map(str::to_owned).into()
    }

    /// Fills the file system of a folder to the last block, or as far as `kib` says; the file's name is `filler`.
    pub fn fill(&self, folder: &Path, kib: Option<u32>) {
        let count = kib.map_or_else(String::new, |kib| format!("count={kib}"));
        self.run(&format!("dd if=/dev/zero of={}/filler bs=1k {count}", folder.display()));
    }

    /// Takes the filler away.
    pub fn empty(&self, folder: &Path) {
        self.run(&format!("rm -f {}/filler", folder.display()));
    }

    fn run(&self, script: &str) {
        let through = self.through();
        let mut command = Command::new(&through[0]);
        command.args(&through[1..]).args(["sh", "-c", script]);
        // A full file system is what is wanted, and an error to who fills it.
        let _ = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status();
    }
}

impl Drop for Closet {
    fn drop(&mut self) {
        // It does nothing but hold the namespace.
        let _ = self.holder.kill();
        let _ = self.holder.wait();
    }
}
