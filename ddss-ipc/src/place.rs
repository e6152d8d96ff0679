//! Where a node's daemon and its clients meet when nobody says where.

use std::path::{Path, PathBuf};

/// The environment variable that names the daemon's folder.
pub const FOLDER_VARIABLE: &str = "DDSS_DIR";

/// The name of the clients' socket in the daemon's folder.
pub const SOCKET_NAME: &str = "ddssd.sock";

/// The name of the door to one of a daemon's planes: the first plane's is the daemon's.
///
/// ```
/// use ddss_ipc::{SOCKET_NAME, socket_name};
/// assert_eq!((socket_name(0).as_str(), socket_name(1).as_str()), (SOCKET_NAME, "ddssd-1.sock"));
/// ```
pub fn socket_name(plane: u8) -> String {
    name_of(plane, "sock")
}

/// The name of the status page of one of a daemon's planes, as [`socket_name`] is of its door.
pub fn status_name(plane: u8) -> String {
    name_of(plane, "status")
}

fn name_of(plane: u8, kind: &str) -> String {
    if plane == 0 { format!("ddssd.{kind}") } else { format!("ddssd-{plane}.{kind}") }
}

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
