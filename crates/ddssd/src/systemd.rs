//! Notifications to the service manager: one datagram to the socket that it named, if it named one.

use std::ffi::OsStr;
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::Duration;

/// Returns the interval for `WATCHDOG=1` messages, if the service manager expects them. After two missed intervals it
/// restarts the daemon. The setting applies to this process only, not to a child that inherited the environment.
pub fn watchdog_interval() -> Option<Duration> {
    interval_from(std::env::var_os("WATCHDOG_USEC").as_deref(), std::env::var_os("WATCHDOG_PID").as_deref())
}

fn interval_from(usec: Option<&OsStr>, pid: Option<&OsStr>) -> Option<Duration> {
    let number = |text: &OsStr| text.to_str()?.parse::<u64>().ok();
    if pid.is_some_and(|pid| number(pid) != Some(std::process::id().into())) {
        return None;
    }
    usec.and_then(number).filter(|&usec| usec > 0).map(|usec| Duration::from_micros(usec.div_ceil(2)))
}

/// Sends a state of this daemon to the service manager (systemd, `Type=notify`): `READY=1`, `STOPPING=1` and the like.
/// Does nothing without a service manager.
pub fn notify(state: &str) -> io::Result<()> {
    let Some(path) = std::env::var_os("NOTIFY_SOCKET") else { return Ok(()) };
    let address = match path.to_str().and_then(|path| path.strip_prefix('@')) {
        Some(name) => SocketAddr::from_abstract_name(name)?,
        None => SocketAddr::from_pathname(&path)?,
    };
    // A service manager that does not read must not block the daemon.
    let socket = UnixDatagram::unbound()?;
    socket.set_nonblocking(true)?;
    socket.send_to_addr(state.as_bytes(), &address).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn watchdog_interval_is_half_of_configured_time_for_own_pid_only() {
        // If this broke, systemd would end a healthy daemon, or a child process would keep a hanging daemon alive.
        let own = std::process::id().to_string();
        let interval = |usec: Option<&str>, pid: Option<&str>| interval_from(usec.map(OsStr::new), pid.map(OsStr::new));
        assert_eq!(interval(Some("30000000"), None), Some(Duration::from_secs(15)));
        assert_eq!(interval(Some("1"), Some(&own)), Some(Duration::from_micros(1)));
        assert_eq!(interval(Some("30000000"), Some("1")), None);
        assert_eq!([interval(None, Some(&own)), interval(Some("0"), None), interval(Some("soon"), None)], [None; 3]);
    }
}
