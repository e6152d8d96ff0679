//! Two network namespaces with a veth pair between them: for the network stack, two machines.

use std::fs::{self, File};
use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::os::fd::AsFd;
use std::process::{Command, id};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

/// Two namespaces. Dropping the value removes them.
#[derive(Debug)]
pub struct VethPair {
    name: String,
}

impl VethPair {
    /// Creates the pair; returns an error where this user or this kernel cannot, so that the caller skips.
    pub fn create() -> io::Result<VethPair> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let cable = VethPair { name: format!("ddss-cable-{}-{}", id(), COUNT.fetch_add(1, Ordering::Relaxed)) };
        let [left, right] = [1, 2].map(|end| cable.inside(end));
        for inside in [&left, &right] {
            ip(&["netns", "add", inside])?;
        }
        let ends = ["link", "add", "eth0", "netns", &left, "type", "veth", "peer", "name", "eth0", "netns", &right];
        ip(&ends)?;
        for (end, inside) in [(1, &left), (2, &right)] {
            ip(&["-n", inside, "addr", "add", &format!("{}/24", cable.address(end)), "dev", "eth0"])?;
            ip(&["-n", inside, "link", "set", "eth0", "up"])?;
            ip(&["-n", inside, "link", "set", "lo", "up"])?;
        }
        Ok(cable)
    }

    /// The name of the namespace at an end, 1 or 2.
    pub fn inside(&self, end: u8) -> String {
        format!("{}-{end}", self.name)
    }

    /// The address of an end.
    pub fn address(&self, end: u8) -> IpAddr {
        IpAddr::V4(Ipv4Addr::new(10, 78, 0, end))
    }

    /// Runs a closure in the namespace of an end, on a thread of its own. Its sockets stay in that namespace.
    pub fn at<T: Send>(&self, end: u8, work: impl FnOnce() -> io::Result<T> + Send) -> io::Result<T> {
        let namespace = File::open(format!("/run/netns/{}", self.inside(end)))?;
        let done = thread::scope(|scope| {
            let there = scope.spawn(|| {
                move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network))?;
                work()
            });
            there.join()
        });
        done.map_err(|_| io::Error::other("the thread in the namespace panicked"))?
    }

    /// Bytes over the veth pair, in both directions.
    pub fn bytes(&self) -> io::Result<u64> {
        let text = self.at(1, || fs::read_to_string("/proc/thread-self/net/dev"))?;
        let line = text.lines().find_map(|line| line.trim_start().strip_prefix("eth0:"));
        let columns: Vec<u64> =
            line.unwrap_or_default().split_whitespace().filter_map(|word| word.parse().ok()).collect();
        // Received bytes are the first column, sent ones the ninth.
        match (columns.first(), columns.get(8)) {
            (Some(received), Some(sent)) => Ok(received + sent),
            _ => Err(io::Error::other("the cable's counters are not there")),
        }
    }
}

fn ip(words: &[&str]) -> io::Result<()> {
    let output = Command::new("ip").args(words).output()?;
    if output.status.success() {
        return Ok(());
    }
    Err(io::Error::other(format!("ip {}: {}", words.join(" "), String::from_utf8_lossy(&output.stderr).trim())))
}

impl Drop for VethPair {
    fn drop(&mut self) {
        for end in [1, 2] {
            // An error means that the namespace was never created.
            drop(ip(&["netns", "del", &self.inside(end)]));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};

    use super::*;

    // If this failed, the other machine would be loopback, or the bytes on the wire would be miscounted.
    #[test]
    fn bytes_over_the_veth_pair_are_counted() {
        let cable = match VethPair::create() {
            Ok(cable) => cable,
            Err(error) => {
                return ddss_testkit::skipped("bytes_over_the_veth_pair_are_counted", &error.to_string());
            }
        };
        let listener = cable.at(1, || TcpListener::bind((cable.address(1), 0))).unwrap();
        let port = listener.local_addr().unwrap().port();
        let before = cable.bytes().unwrap();
        let mut there = cable.at(2, || TcpStream::connect((cable.address(1), port))).unwrap();
        let (mut here, from) = listener.accept().unwrap();
        assert_eq!(from.ip(), cable.address(2));
        there.write_all(&[7; 10_000]).unwrap();
        here.read_exact(&mut [0; 10_000]).unwrap();
        let moved = cable.bytes().unwrap() - before;
        assert!((10_000..13_000).contains(&moved), "{moved} bytes for 10,000");
    }
}
