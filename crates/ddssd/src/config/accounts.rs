//! Lookup of user names: `/etc/passwd`, a directory service, or both.

use nix::unistd::User;
use std::process::{Command, Stdio};

/// Returns the uid of a user name.
///
/// Most C libraries answer through the name service switch (files, LDAP, sssd). A statically linked program sees the
/// file only, so it also asks `getent`, if the system has it.
pub(crate) fn uid_of(name: &str) -> Result<u32, String> {
    let unknown = || {
        format!(
            "there is no user {name:?} on this system (getent passwd {name} shows what it knows): give the quota to the user's \
             number"
        )
    };
    match User::from_name(name) {
        Ok(Some(user)) => Ok(user.uid.as_raw()),
        Ok(None) => uid_from_getent(name).ok_or_else(unknown),
        Err(errno) => Err(format!("cannot look up the user {name:?}: {errno}; give the quota to the user's number")),
    }
}

/// Asks `getent` by its absolute path, and not by the search path.
fn uid_from_getent(name: &str) -> Option<u32> {
    if cfg!(target_env = "gnu") || name.starts_with('-') {
        return None;
    }
    ["/usr/bin/getent", "/bin/getent"].iter().find_map(|program| {
        let mut command = Command::new(program);
        command.args(["passwd", name]).stdin(Stdio::null()).stderr(Stdio::null());
        let output = command.output().ok().filter(|output| output.status.success())?;
        uid_in(name, &String::from_utf8_lossy(&output.stdout))
    })
}

/// Returns the uid in a line of `/etc/passwd`, if the line is that user's.
fn uid_in(name: &str, line: &str) -> Option<u32> {
    let mut fields = line.lines().next()?.split(':');
    (fields.next()? == name).then(|| fields.nth(1)?.parse().ok())?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_user_is_reported_with_next_step() {
        // If this broke, a quota would limit the wrong user, or none.
        assert_eq!(uid_of("root"), Ok(0));
        let error = uid_of("nobody-of-that-name").unwrap_err();
        assert!(error.contains("no user") && error.contains("getent passwd nobody-of-that-name"), "{error}");
        assert_eq!(uid_in("alice", "alice:x:1001:1002::/home/alice:/bin/sh\n"), Some(1001));
        assert_eq!(
            [uid_in("alice", "alicia:x:1:1::"), uid_in("alice", "alice:x:many:1"), uid_in("alice", "")],
            [None; 3]
        );
    }
}
