//! Default paths at which a node's daemon and its clients meet.

use std::path::{Path, PathBuf};

/// Environment variable that names the daemon's directory.
pub const FOLDER_VARIABLE: &str = "DDSS_DIR";

/// Name of the client socket in the daemon's directory.
pub const SOCKET_NAME: &str = "ddssd.sock";

/// Name of the status page in the daemon's directory: a link to the file.
pub const STATUS_NAME: &str = "ddssd.status";

/// Returns the socket name of a shard. The first shard's name is that of the daemon.
///
/// ```
/// use ddss_ipc::{SOCKET_NAME, socket_name};
/// assert_eq!((socket_name(0).as_str(), socket_name(1).as_str()), (SOCKET_NAME, "ddssd-1.sock"));
/// ```
pub fn socket_name(shard: u8) -> String {
    name_of(shard, "sock")
}

/// Returns the name of a shard's status page, as [`socket_name`] does for its socket.
pub fn status_name(shard: u8) -> String {
    name_of(shard, "status")
}

fn name_of(shard: u8, kind: &str) -> String {
    if shard == 0 { format!("ddssd.{kind}") } else { format!("ddssd-{shard}.{kind}") }
}

/// Directory of a system-wide daemon, as the packages install it.
const SYSTEM_FOLDER: &str = "/run/ddss";

/// Inputs that decide the default directory.
struct Environment {
    named: Option<PathBuf>,
    runtime: Option<PathBuf>,
    uid: u32,
}

impl Environment {
    fn here() -> Self {
        let variable = |name| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
        let uid = rustix::process::getuid().as_raw();
        Self { named: variable(FOLDER_VARIABLE), runtime: variable("XDG_RUNTIME_DIR"), uid }
    }

    /// Returns the directory of this user's daemon when none is named. Root uses the system directory in each of its
    /// sessions.
    fn default_folder(&self) -> PathBuf {
        match (&self.named, self.uid, &self.runtime) {
            (Some(named), ..) => named.clone(),
            (None, 0, _) => SYSTEM_FOLDER.into(),
            (None, _, Some(runtime)) => runtime.join("ddss"),
            (None, uid, None) => format!("/tmp/ddss-{uid}").into(),
        }
    }

    /// Lists the directories in which a client looks for a daemon, in order. Each belongs to the user or to root.
    fn candidates(&self) -> Vec<PathBuf> {
        let mut candidates = vec![self.default_folder()];
        if self.named.is_none() {
            // Earlier releases put a daemon that root started in a session here.
            let of_session = self.runtime.iter().filter(|_| self.uid == 0).map(|runtime| runtime.join("ddss"));
            candidates.extend(of_session);
            candidates.push(SYSTEM_FOLDER.into());
            candidates.dedup();
        }
        candidates
    }

    /// Returns the first directory with traces of a daemon, or else the first directory.
    fn find(&self, is_there: impl Fn(&Path) -> bool) -> PathBuf {
        let candidates = self.candidates();
        candidates.into_iter().find(|place| is_there(place)).unwrap_or_else(|| self.default_folder())
    }
}

/// Returns the directory of a daemon that this user starts.
///
/// This is `DDSS_DIR` if set, `/run/ddss` for root, `$XDG_RUNTIME_DIR/ddss` for other users, or else a directory of the
/// user under `/tmp`.
pub fn default_folder() -> PathBuf {
    Environment::here().default_folder()
}

/// Returns the directory in which a client looks for its daemon.
///
/// This is [`default_folder`] if a daemon runs or ran there, or else `/run/ddss` of the packaged daemon. If `DDSS_DIR`
/// is set, it is the only candidate.
pub fn client_folder() -> PathBuf {
    Environment::here().find(is_used)
}

/// Returns true if a daemon has its socket or status page in the directory, or if this user may not look.
fn is_used(folder: &Path) -> bool {
    let is_there = |name: &str| match std::fs::symlink_metadata(folder.join(name)) {
        Ok(_) => true,
        Err(error) => error.kind() == std::io::ErrorKind::PermissionDenied,
    };
    is_there(SOCKET_NAME) || is_there(STATUS_NAME)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(named: Option<&str>, runtime: Option<&str>, uid: u32) -> Environment {
        Environment { named: named.map(PathBuf::from), runtime: runtime.map(PathBuf::from), uid }
    }

    #[test]
    fn client_prefers_daemon_of_its_user_over_system_daemon() {
        // If this failed, a client would miss the packaged daemon, or use the system daemon instead of its user's.
        let (session, nobody) = (Some("/run/user/7"), |_: &Path| false);
        let only = |place: &'static str| move |path: &Path| path == Path::new(place);
        let root = of(None, Some("/run/user/0"), 0);
        assert_eq!(root.default_folder(), Path::new("/run/ddss"));
        assert_eq!(root.find(nobody), Path::new("/run/ddss"));
        assert_eq!(root.find(only("/run/user/0/ddss")), Path::new("/run/user/0/ddss"));
        let user = of(None, session, 7);
        assert_eq!(user.default_folder(), Path::new("/run/user/7/ddss"));
        assert_eq!(user.find(only("/run/ddss")), Path::new("/run/ddss"));
        assert_eq!(user.find(|_| true), Path::new("/run/user/7/ddss"));
        assert_eq!(user.find(nobody), Path::new("/run/user/7/ddss"));
        assert_eq!(of(None, None, 7).find(nobody), Path::new("/tmp/ddss-7"));
        assert_eq!(of(Some("/elsewhere"), session, 7).find(only("/run/ddss")), Path::new("/elsewhere"));
    }
}
