//! Copies of programs that a test starts.

use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use crate::Error;

/// Copies a program to a path from which every user can execute it.
///
/// Another process does the copying. If this process had the copy open for writing, a child that another test forks at that moment
/// would inherit the descriptor, and starting the copy would fail with *Text file busy*.
pub fn copy_program(program: &Path, path: &Path) -> Result<(), Error> {
    let what = || format!("copying {} to {}", program.display(), path.display());
    let output = Command::new("cp").arg("--").args([program, path]).output().map_err(Error::system(what()))?;
    if !output.status.success() {
        let why = String::from_utf8_lossy(&output.stderr).trim_end().to_owned();
        return Err(Error::system(what())(io::Error::other(why)));
    }
    fs::set_permissions(path, Permissions::from_mode(0o755)).map_err(Error::system(what()))
}

/// Writes a program of the shell, which another process puts in its place, as [`copy_program`] does.
pub fn write_program(path: &Path, text: &str) -> Result<(), Error> {
    let source = path.with_extension("text");
    fs::write(&source, text).map_err(Error::system(format!("writing {}", source.display())))?;
    copy_program(&source, path)?;
    fs::remove_file(&source).map_err(Error::system(format!("removing {}", source.display())))
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::CommandExt;
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;

    const COPIES: usize = 200;

    // If this failed, a test that starts a copy of a program would fail now and then, whenever another test starts a
    // program.
    #[test]
    fn copied_program_starts_while_other_threads_fork() {
        let folder = tempfile::tempdir().unwrap();
        let is_done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    while !is_done.load(Ordering::Relaxed) {
                        // If the child changes its user, it takes longer from its fork to `exec`, which closes
                        // descriptors.
                        let user = rustix::process::geteuid().as_raw();
                        Command::new("true").uid(user).status().unwrap();
                    }
                });
            }
            let failed: Vec<String> = (0..COPIES)
                .filter_map(|number| {
                    let path = folder.path().join(number.to_string());
                    copy_program(Path::new("/bin/true"), &path).unwrap();
                    let started = Command::new(&path).status();
                    fs::remove_file(&path).unwrap();
                    started.err().map(|error| error.to_string())
                })
                .collect();
            is_done.store(true, Ordering::Relaxed);
            assert!(failed.is_empty(), "{} of {COPIES}: {failed:?}", failed.len());
        });
    }

    #[test]
    fn copy_that_fails_names_both_paths() {
        let error = copy_program(Path::new("/nowhere/program"), Path::new("/tmp/never")).unwrap_err().to_string();
        assert!(error.contains("/nowhere/program") && error.contains("/tmp/never"), "{error}");
    }
}
