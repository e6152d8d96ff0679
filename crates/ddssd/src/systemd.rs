//! What the service manager is told: one datagram to the socket that it named, if it named one.

use std::ffi::OsStr;
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::Duration;

/// How often the service manager wants to hear `WATCHDOG=1`, if it does: after twice as long without it takes the daemon for
/// one that hangs, and starts another one. For this process only, not for one that has inherited its environment.
pub fn watchdog_every() -> Option<Duration> {
    watched(std::env::var_os("WATCHDOG_USEC").as_deref(), std::env::var_os("WATCHDOG_PID").as_deref())
}

fn watched(usec: Option<&OsStr>, pid: Option<&OsStr>) -> Option<Duration> {
    let number = |text: &OsStr| text.to_str()?.parse::<u64>().ok();
    if pid.is_some_and(|pid| number(pid) != Some(std::process::id().into())) {
        return None;
    }
    usec.and_then(number).filter(|&usec| usec > 0).map(|usec| Duration::from_micros(usec.div_ceil(2)))
}

/// Tells the service manager (systemd, `Type=notify`) how this daemon is: `READY=1`, `STOPPING=1` and the like.
/// Without one nobody is told, and that is no error.
pub fn notify(state: &str) -> io::Result<()> {
    let Some(path) = std::env::var_os("NOTIFY_SOCKET") else { return Ok(()) };
    let address = match path.to_str().and_then(|path| path.strip_prefix('@')) {
        Some(name) => SocketAddr::from_abstract_name(name)?,
        None => SocketAddr::from_pathname(&path)?,
    };
    // A service manager that reads nothing is in nobody's way.
    let socket = UnixDatagram::unbound()?;
    socket.set_nonblocking(true)?;
    socket.send_to_addr(state.as_bytes(), &address).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_is_watched_says_so_twice_in_each_span_and_nobody_else_does() {
        // If this broke, systemd would end a daemon that is well, or a child of one would keep a daemon that hangs alive.
        let own = std::process::id().to_string();
        let asked = |usec: Option<&str>, pid: Option<&str>| watched(usec.map(OsStr::new), pid.map(OsStr::new));
        assert_eq!(asked(Some("30000000"), None), Some(Duration::from_secs(15)));
        assert_eq!(asked(Some("1"), Some(&own)), Some(Duration::from_micros(1)));
        assert_eq!(asked(Some("30000000"), Some("1")), None);
        assert_eq!([asked(None, Some(&own)), asked(Some("0"), None), asked(Some("soon"), None)], [None; 3]);
    }
}
