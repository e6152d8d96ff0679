//! A small network that a test can cut: one namespace for each node, a bridge between them, roads that fall silent.

use std::net::{IpAddr, Ipv4Addr};
use std::process::{Command, Output, id};
use std::sync::atomic::{AtomicU32, Ordering};

use crate::Error;

/// Network namespaces on one bridge. They are gone when this is dropped.
#[derive(Debug)]
pub struct Islands {
    name: String,
    count: u8,
}

/// How a node is cut off.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Cut {
    /// Nothing goes in or out.
    Both,
    /// It hears nothing, and is heard.
    Deaf,
    /// It hears everything, and is not heard.
    Mute,
}

impl Islands {
    /// As many islands; an error where this user or this kernel cannot make them, which is a reason to skip.
    pub fn new(count: u8) -> Result<Islands, Error> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let islands = Islands { name: format!("ddss-{}-{}", id(), COUNT.fetch_add(1, Ordering::Relaxed)), count };
        islands.ip(&["netns", "add", &islands.hub()])?;
        islands.in_hub(&["link", "add", "bridge", "type", "bridge"])?;
        islands.in_hub(&["link", "set", "bridge", "up"])?;
        for node in 1..=count {
            let (inside, port, address) = (islands.inside(node), port(node), format!("{}/24", islands.address(node)));
            islands.ip(&["netns", "add", &inside])?;
            let ends = ["type", "veth", "peer", "name", "eth0", "netns", &inside];
            islands.ip(&[&["link", "add", &port, "netns", &islands.hub()][..], &ends[..]].concat())?;
            islands.in_hub(&["link", "set", &port, "master", "bridge", "up"])?;
            islands.ip(&["-n", &inside, "addr", "add", &address, "dev", "eth0"])?;
            islands.ip(&["-n", &inside, "link", "set", "eth0", "up"])?;
            islands.ip(&["-n", &inside, "link", "set", "lo", "up"])?;
        }
        Ok(islands)
    }

    /// Where a node's island is, counted from 1.
    pub fn address(&self, node: u8) -> IpAddr {
        IpAddr::V4(Ipv4Addr::new(10, 77, 0, node))
    }

    /// The name of a node's namespace.
    pub fn inside(&self, node: u8) -> String {
        format!("{}-{node}", self.name)
    }

    fn hub(&self) -> String {
        format!("{}-hub", self.name)
    }

    /// From now on packets of that node are lost without a word.
    pub fn cut(&self, node: u8, how: Cut) -> Result<(), Error> {
        if matches!(how, Cut::Both | Cut::Deaf) {
            self.silence(&self.hub(), &port(node))?;
        }
        if matches!(how, Cut::Both | Cut::Mute) {
            self.silence(&self.inside(node), "eth0")?;
        }
        Ok(())
    }

    /// A road to and from that node that is slow and narrow; says how.
    pub fn slow(&self, node: u8) -> Result<&'static str, Error> {
        let kinds: [(&str, &[&str]); 2] = [
            ("200 ms and one packet in fifty lost each way", &["netem", "delay", "200ms", "20ms", "loss", "2%"]),
            (
                "256 kbit/s each way, up to 400 ms of it waiting",
                &["tbf", "rate", "256kbit", "burst", "4kb", "latency", "400ms"],
            ),
        ];
        let mut last = None;
        for (words, kind) in kinds {
            let shape = |namespace: &str, device: &str| {
                self.tc(namespace, &[&["qdisc", "replace", "dev", device, "root"][..], kind].concat())
            };
            match shape(&self.hub(), &port(node)).and_then(|()| shape(&self.inside(node), "eth0")) {
                Ok(()) => return Ok(words),
                Err(error) => last = Some(error),
            }
        }
        Err(last.expect("there is more than one kind"))
    }

    /// All roads of that node are as they were.
    pub fn heal(&self, node: u8) {
        for (namespace, device) in [(self.hub(), port(node)), (self.inside(node), "eth0".to_owned())] {
            // A road that was not touched has nothing to take away.
            drop(self.tc(&namespace, &["qdisc", "del", "dev", &device, "root"]));
        }
    }

    fn silence(&self, namespace: &str, device: &str) -> Result<(), Error> {
        self.tc(namespace, &["qdisc", "replace", "dev", device, "root", "pfifo", "limit", "0"])
    }

    fn in_hub(&self, words: &[&str]) -> Result<(), Error> {
        self.ip(&[&["-n", &self.hub()][..], words].concat())
    }

    fn tc(&self, namespace: &str, words: &[&str]) -> Result<(), Error> {
        run("tc", &[&["-n", namespace][..], words].concat())
    }

    fn ip(&self, words: &[&str]) -> Result<(), Error> {
        run("ip", words)
    }
}

fn port(node: u8) -> String {
    format!("port{node}")
}

fn run(program: &str, words: &[&str]) -> Result<(), Error> {
    let what = format!("{program} {}", words.join(" "));
    let Output { status, stderr, .. } = Command::new(program).args(words).output().map_err(Error::system(&*what))?;
    if status.success() {
        return Ok(());
    }
    let why = String::from_utf8_lossy(&stderr).trim().to_owned();
    Err(Error::system(what)(std::io::Error::other(why)))
}

impl Drop for Islands {
    fn drop(&mut self) {
        for node in 1..=self.count {
            drop(run("ip", &["netns", "del", &self.inside(node)]));
        }
        drop(run("ip", &["netns", "del", &self.hub()]));
    }
}
