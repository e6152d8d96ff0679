//! Where a node's daemon and its clients meet when nobody says where.

use std::path::{Path, PathBuf};

/// The environment variable that names the daemon's folder.
pub const FOLDER_VARIABLE: &str = "DDSS_DIR";

/// The name of the clients' socket in the daemon's folder.
pub const SOCKET_NAME: &str = "ddssd.sock";

/// The folder of this user's daemon: what `DDSS_DIR` says, else `$XDG_RUNTIME_DIR/ddss`, else `/run/ddss` for root
/// and a folder of the user's own under `/tmp` for everybody else.
pub fn default_folder() -> PathBuf {
    let variable = |name| std::env::var_os(name).filter(|value| !value.is_empty());
    if let Some(folder) = variable(FOLDER_VARIABLE) {
        return folder.into();
    }
    if let Some(runtime) = variable("XDG_RUNTIME_DIR") {
        return Path::new(&runtime).join("ddss");
    }
    match rustix::process::getuid().as_raw() {
        0 => "/run/ddss".into(),
        user => format!("/tmp/ddss-{user}").into(),
    }
}
