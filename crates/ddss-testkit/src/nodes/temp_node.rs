//! A directory and an address for one node that no other test uses.

use std::net::{IpAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU16, Ordering};
use std::{env, fs, process};

use tempfile::TempDir;

use crate::Error;

/// The ports that are tried. They are below those that the kernel assigns to outgoing connections.
const PORTS: std::ops::Range<u16> = 10_000..32_000;

/// A directory for one node, in a memory file system if there is one. Dropping the value removes it.
#[derive(Debug)]
pub struct TempNode {
    folder: TempDir,
}

impl TempNode {
    /// Creates an empty directory that only this user can open.
    pub fn new() -> Result<TempNode, Error> {
        let memory = Path::new("/dev/shm");
        let usable = fs::metadata(memory).is_ok_and(|metadata| metadata.is_dir());
        let in_memory = usable.then(|| tempfile::Builder::new().prefix("ddss-").tempdir_in(memory).ok()).flatten();
        let folder = match in_memory {
            Some(folder) => folder,
            None => tempfile::Builder::new()
                .prefix("ddss-")
                .tempdir()
                .map_err(Error::system(format!("making a folder in {}", env::temp_dir().display())))?,
        };
        Ok(TempNode { folder })
    }

    /// The path of the directory.
    pub fn path(&self) -> &Path {
        self.folder.path()
    }

    /// Returns the path of a file in the directory.
    pub fn join(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }
}

/// Returns a port of `ip` that is free together with its successor: a cluster node takes two.
///
/// The port is not reserved. One process never returns a port twice, and two processes start their search at different
/// ports.
pub fn free_tcp_port(ip: IpAddr) -> Result<u16, Error> {
    static GIVEN: AtomicU16 = AtomicU16::new(0);
    let count = PORTS.end - PORTS.start;
    // Neighbouring pids start 101 ports apart, which is more than one test program takes.
    let first = process::id().wrapping_mul(101) % u32::from(count);
    for _ in 0..count {
        let given = GIVEN.fetch_add(2, Ordering::Relaxed);
        let offset = ((first + u32::from(given)) % u32::from(count)) & !1;
        let port = PORTS.start + u16::try_from(offset).expect("the offset is smaller than the count");
        if TcpListener::bind((ip, port)).is_ok() && TcpListener::bind((ip, port + 1)).is_ok() {
            return Ok(port);
        }
    }
    Err(Error::NoFreePort(ip))
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    // If this failed, tests would leave directories behind.
    #[test]
    fn node_directory_is_removed_with_its_node() {
        let node = TempNode::new().unwrap();
        let path = node.path().to_path_buf();
        fs::write(node.join("file"), "words").unwrap();
        assert!(path.join("file").is_file());
        drop(node);
        assert!(!path.exists());
    }

    // If this failed, two daemons of one test would get the same port, and one of them would not start.
    #[test]
    fn free_port_is_unused_and_handed_out_once() {
        let ip = IpAddr::V4(Ipv4Addr::LOCALHOST);
        let ports: Vec<u16> = (0..50).map(|_| free_tcp_port(ip).unwrap()).collect();
        for (index, port) in ports.iter().enumerate() {
            assert!(!ports[..index].contains(port), "{port} was given twice");
        }
        let taken = TcpListener::bind((ip, 0)).unwrap();
        assert!(!ports.contains(&taken.local_addr().unwrap().port()));
    }
}
