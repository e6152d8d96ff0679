//! Owner of the other end of a TCP connection, as the kernel's tables of sockets name it.
//!
//! Any user can take the name by which two ends meet. So a peer of another user has to own the connection as well.

use std::ffi::CStr;
use std::net::{IpAddr, SocketAddr};

use rustix::fs::{Mode, OFlags};

use crate::limits::OWNER_BYTES;

const TABLES: [&CStr; 2] = [c"/proc/thread-self/net/tcp", c"/proc/thread-self/net/tcp6"];
/// Words of a row before that with the user.
const WORDS_BEFORE_USER: usize = 4;

/// Returns true if the socket with these addresses belongs to the user, and none with the same addresses belongs to another one.
pub(crate) fn is_owner(user: u32, local: SocketAddr, remote: SocketAddr) -> bool {
    let (mut is_found, mut is_foreign) = (false, false);
    let is_read = TABLES.iter().all(|table| {
        each_row(table, |row| {
            if (row.local, row.remote) == (local, remote) {
                is_found |= row.user == user;
                is_foreign |= row.user != user;
            }
        })
    });
    is_read && is_found && !is_foreign
}

/// Connected socket in a table.
struct Row {
    local: SocketAddr,
    remote: SocketAddr,
    user: u32,
}

impl Row {
    fn parse(line: &[u8]) -> Option<Self> {
        let mut words = std::str::from_utf8(line).ok()?.split_ascii_whitespace().skip(1);
        let (local, remote) = (address(words.next()?)?, address(words.next()?)?);
        Some(Self { local, remote, user: words.nth(WORDS_BEFORE_USER)?.parse().ok()? })
    }
}

/// Reads an address: words in the byte order of this machine, then the port.
fn address(text: &str) -> Option<SocketAddr> {
    let (ip, port) = text.split_once(':')?;
    let mut bytes = [0; 16];
    let words = ip.as_bytes().chunks_exact(8);
    for (place, word) in bytes.chunks_exact_mut(4).zip(words) {
        place.copy_from_slice(&u32::from_str_radix(std::str::from_utf8(word).ok()?, 16).ok()?.to_ne_bytes());
    }
    let [a, b, c, d, ..] = bytes;
    let ip = match ip.len() {
        8 => IpAddr::from([a, b, c, d]),
        32 => IpAddr::from(bytes).to_canonical(),
        _ => return None,
    };
    Some(SocketAddr::new(ip, u16::from_str_radix(port, 16).ok()?))
}

/// Visits the rows of a table without allocation. False: it was not read to its end.
fn each_row(table: &CStr, mut visit: impl FnMut(Row)) -> bool {
    let Ok(file) = rustix::fs::open(table, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()) else {
        // A kernel without IPv6 has one table.
        return table != TABLES[0];
    };
    let (mut buffer, mut filled, mut total) = ([0; 4096], 0, 0);
    while total < OWNER_BYTES {
        match rustix::io::read(&file, &mut buffer[filled..]) {
            Ok(0) => return true,
            Ok(bytes) => (filled, total) = (filled + bytes, total + bytes),
            Err(rustix::io::Errno::INTR) => continue,
            Err(_) => return false,
        }
        let whole = buffer[..filled].iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
        buffer[..whole].split(|byte| *byte == b'\n').filter_map(Row::parse).for_each(&mut visit);
        buffer.copy_within(whole..filled, 0);
        filled -= whole;
        if filled == buffer.len() {
            return false;
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};

    use super::*;

    #[test]
    fn connection_belongs_to_the_user_who_made_it() {
        // If this broke, an allowed user could take over the connections of all others.
        let user = rustix::process::geteuid().as_raw();
        for ip in ["127.0.0.1:0", "[::1]:0", "[::]:0"] {
            let Ok(listener) = TcpListener::bind(ip) else { continue };
            let port = listener.local_addr().unwrap().port();
            let ip = if ip == "[::]:0" { "127.0.0.1".parse().unwrap() } else { listener.local_addr().unwrap().ip() };
            let acceptor = SocketAddr::new(ip, port);
            let connected = TcpStream::connect(acceptor).unwrap();
            let accepted = listener.accept().unwrap();
            let connector = connected.local_addr().unwrap();
            for (local, remote) in [(connector, acceptor), (acceptor, connector)] {
                assert!(is_owner(user, local, remote));
                assert!(!is_owner(user + 1, local, remote));
            }
            assert!(!is_owner(user, connector, SocketAddr::new(ip, connector.port())));
            drop(accepted);
        }
    }
}
