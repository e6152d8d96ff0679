//! Users by their names, as the system knows them: by `/etc/passwd`, a directory service, or both.

use nix::unistd::User;
use std::process::{Command, Stdio};

/// The number of a user. With the C library of most systems that is an answer of the name service switch (files, LDAP, sssd);
/// a program that is linked statically knows the file alone, so `getent` is asked as well where there is one.
pub(crate) fn uid_of(name: &str) -> Result<u32, String> {
    let unknown = || {
        format!(
            "there is no user {name:?} on this system (getent passwd {name} shows what it knows): give the quota to the user's \
             number"
        )
    };
    match User::from_name(name) {
        Ok(Some(user)) => Ok(user.uid.as_raw()),
        Ok(None) => by_getent(name).ok_or_else(unknown),
        Err(errno) => Err(format!("cannot look up the user {name:?}: {errno}; give the quota to the user's number")),
    }
}

/// Asks the system's own program, by the places where it is and not by a search path.
fn by_getent(name: &str) -> Option<u32> {
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

/// The number in a line of `/etc/passwd`, if the line is that user's.
fn uid_in(name: &str, line: &str) -> Option<u32> {
    let mut fields = line.lines().next()?.split(':');
    (fields.next()? == name).then(|| fields.nth(1)?.parse().ok())?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_a_number_or_a_sentence() {
        // If this broke, a quota would bound another user, or nobody.
        assert_eq!(uid_of("root"), Ok(0));
        let told = uid_of("nobody-of-that-name").unwrap_err();
        assert!(told.contains("no user") && told.contains("getent passwd nobody-of-that-name"), "{told}");
        assert_eq!(uid_in("alice", "alice:x:1001:1002::/home/alice:/bin/sh\n"), Some(1001));
        assert_eq!(
            [uid_in("alice", "alicia:x:1:1::"), uid_in("alice", "alice:x:many:1"), uid_in("alice", "")],
            [None; 3]
        );
    }
}
