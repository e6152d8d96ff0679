//! Files of the state folder that a crash leaves either old or new.

use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// Mode of a file of the state folder, whatever the umask is.
pub(crate) const STATE_FILE_MODE: u32 = 0o600;

/// Replaces a file atomically; returns when the new content would survive a loss of power.
pub(crate) fn replace_file_atomically(folder: &Path, name: &str, bytes: &[u8]) -> io::Result<()> {
    let (path, fresh) = (folder.join(name), folder.join(format!("{name}.new")));
    let mut options = File::options();
    let created = options.create(true).truncate(true).write(true).mode(STATE_FILE_MODE).open(&fresh);
    let written = created.and_then(|mut file| {
        file.write_all(bytes)?;
        file.sync_all()?;
        std::fs::rename(&fresh, &path)
    });
    if written.is_err() {
        // A partial file would occupy scarce disk space.
        let _ = std::fs::remove_file(&fresh);
    }
    written.and_then(|()| File::open(folder)?.sync_all())
}

pub(crate) fn remove_file_if_present(folder: &Path, name: &str) -> io::Result<()> {
    match std::fs::remove_file(folder.join(name)) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}
