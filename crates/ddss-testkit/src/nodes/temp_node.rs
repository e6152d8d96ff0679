//! Where a node of a test lives: a folder and an address that no other test has.

use std::net::{IpAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU16, Ordering};
use std::{env, fs, process};

use tempfile::TempDir;

use crate::Error;

/// The ports that are tried: below those that the kernel takes for connections that go out.
const PORTS: std::ops::Range<u16> = 10_000..32_000;

/// A folder for one node, in memory where there is such a file system. It is gone when this is dropped.
#[derive(Debug)]
pub struct TempNode {
    folder: TempDir,
}

impl TempNode {
    /// A new empty folder that only this user can open.
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

    /// The folder.
    pub fn path(&self) -> &Path {
        self.folder.path()
    }

    /// A file in it.
    pub fn join(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }
}

/// A port of `ip` on which nobody listens, nor on the next one: a node of a cluster takes two.
///
/// It is not reserved. It is never given twice by one process, and two processes begin to look at different ports.
pub fn free_tcp_port(ip: IpAddr) -> Result<u16, Error> {
    static GIVEN: AtomicU16 = AtomicU16::new(0);
    let count = PORTS.end - PORTS.start;
    // Neighbouring pids begin far from each other: 101 ports are more than one test program takes.
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

    // If this failed, a test would leave its folder behind on the machine of whoever ran it.
    #[test]
    fn a_folder_goes_with_its_node() {
        let node = TempNode::new().unwrap();
        let path = node.path().to_path_buf();
        fs::write(node.join("file"), "words").unwrap();
        assert!(path.join("file").is_file());
        drop(node);
        assert!(!path.exists());
    }

    // If this failed, two daemons of one test would want the same port, and one of them would not start.
    #[test]
    fn a_port_is_free_and_given_once() {
        let ip = IpAddr::V4(Ipv4Addr::LOCALHOST);
        let ports: Vec<u16> = (0..50).map(|_| free_tcp_port(ip).unwrap()).collect();
        for (index, port) in ports.iter().enumerate() {
            assert!(!ports[..index].contains(port), "{port} was given twice");
        }
        let taken = TcpListener::bind((ip, 0)).unwrap();
        assert!(!ports.contains(&taken.local_addr().unwrap().port()));
    }
}
