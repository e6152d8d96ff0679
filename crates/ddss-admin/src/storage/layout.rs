//! Names and places of the files of a daemon.

use std::path::{Path, PathBuf};

/// File in the state directory with the address to join, for a node that has not joined yet.
pub const JOIN_FILE_NAME: &str = "join";

/// File in the state directory that lets a node begin a cluster. `ddss cluster init` writes it, and the first start of
/// the daemon removes it: a key alone may be what is left of a lost state directory.
pub const FOUND_FILE_NAME: &str = "found";

/// Environment variable that names the state directory.
pub const STATE_VARIABLE: &str = "DDSS_STATE_DIR";

/// State directory of root's daemon, and of the packaged one.
pub const STATE_FOLDER_OF_ROOT: &str = "/var/lib/ddss";

/// Returns the default state directory: below the daemon's directory if that was named, else the user's usual state
/// directory (socket directories are often emptied at boot).
pub fn default_state_folder(folder: Option<&Path>) -> PathBuf {
    let user_state = || {
        let named = std::env::var_os("XDG_STATE_HOME").filter(|path| !path.is_empty()).map(PathBuf::from);
        let home = || Some(PathBuf::from(std::env::var_os("HOME")?).join(".local/state"));
        named.or_else(home).map(|base| base.join("ddss"))
    };
    match folder {
        Some(folder) => folder.join("state"),
        None if rustix::process::getuid().is_root() => STATE_FOLDER_OF_ROOT.into(),
        None => user_state().unwrap_or_else(|| ddss_ipc::default_folder().join("state")),
    }
}

/// Returns the memory directory of one shard; the first shard uses the daemon's memory directory itself.
pub fn shard_folder(memory_folder: &Path, shard: u8) -> PathBuf {
    if shard == 0 { memory_folder.to_owned() } else { memory_folder.join(format!("plane-{shard}")) }
}

/// Returns the directory of one shard's file segments, below the state directory.
pub fn file_folder(state_folder: &Path, shard: u8) -> PathBuf {
    shard_folder(&state_folder.join("segments"), shard)
}

/// Returns the path of an area in the directory of a shard.
pub fn area_path(folder: &Path, area: usize) -> PathBuf {
    folder.join(format!("area-{area}"))
}
