//! Where a node's daemon and its clients meet when nobody says where.

use crate::shm::status_page::STATUS_NAME;
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

/// Where a daemon of the whole machine is, as the packages install it.
const SYSTEM_FOLDER: &str = "/run/ddss";

/// Places of which nothing was said: what decides about them.
struct Surroundings {
    named: Option<PathBuf>,
    runtime: Option<PathBuf>,
    uid: u32,
}

impl Surroundings {
    fn here() -> Self {
        let variable = |name| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
        let uid = rustix::process::getuid().as_raw();
        Self { named: variable(FOLDER_VARIABLE), runtime: variable("XDG_RUNTIME_DIR"), uid }
    }

    /// Where a daemon of this user is, when its folder is not named. Root's is the machine's, in each of its sessions.
    fn default_folder(&self) -> PathBuf {
        match (&self.named, self.uid, &self.runtime) {
            (Some(named), ..) => named.clone(),
            (None, 0, _) => SYSTEM_FOLDER.into(),
            (None, _, Some(runtime)) => runtime.join("ddss"),
            (None, uid, None) => format!("/tmp/ddss-{uid}").into(),
        }
    }

    /// Where a client looks for a daemon, one place after the other. Each of them belongs to the user or to root.
    fn places(&self) -> Vec<PathBuf> {
        let mut places = vec![self.default_folder()];
        if self.named.is_none() {
            // Where a daemon of root was put by earlier releases, when it was started in a session.
            let of_session = self.runtime.iter().filter(|_| self.uid == 0).map(|runtime| runtime.join("ddss"));
            places.extend(of_session);
            places.push(SYSTEM_FOLDER.into());
            places.dedup();
        }
        places
    }

    /// The first place where a daemon is or was, else the first one.
    fn find(&self, is_there: impl Fn(&Path) -> bool) -> PathBuf {
        let places = self.places();
        places.into_iter().find(|place| is_there(place)).unwrap_or_else(|| self.default_folder())
    }
}

/// The folder of a daemon that this user starts: what `DDSS_DIR` says, else `/run/ddss` for root, `$XDG_RUNTIME_DIR/ddss` for
/// everybody else, and a folder of the user's own under `/tmp` where there is no such variable.
pub fn default_folder() -> PathBuf {
    Surroundings::here().default_folder()
}

/// The folder in which a client looks for its daemon: [`default_folder`] if a daemon is or was there, else `/run/ddss`, where
/// the packaged daemon is. What `DDSS_DIR` names is the only place.
pub fn client_folder() -> PathBuf {
    Surroundings::here().find(is_used)
}

/// Whether a daemon has its socket or its page there, or this user may not know.
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

    fn of(named: Option<&str>, runtime: Option<&str>, uid: u32) -> Surroundings {
        Surroundings { named: named.map(PathBuf::from), runtime: runtime.map(PathBuf::from), uid }
    }

    #[test]
    fn a_client_looks_where_its_users_daemon_is_and_then_where_the_machines_is() {
        // If this broke, a client would not find the packaged daemon, or take the machine's for its user's own.
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
