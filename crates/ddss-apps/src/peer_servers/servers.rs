//! The servers that DDSS is compared with, as Debian ships them.

use std::fs;
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::process::Command;
use std::time::Duration;

use ddss_testkit::{Process, TempNode, free_tcp_port};

use crate::Error;
use crate::storage::{NfsPages, RedisClient};

/// Directory that an [`NfsServer`] exports.
pub const NFS_EXPORT: &str = "/pages";
/// Maximum time until a server is ready.
const READY_MAX: Duration = Duration::from_secs(20);
/// Pages of the file with which a server is probed.
const PAGES: u32 = 1;

/// Location of a server.
#[derive(Debug, Clone)]
pub struct Site {
    /// Its network namespace; `None` is that of this process.
    pub namespace: Option<String>,
    /// Its address there.
    pub address: IpAddr,
    /// Its core, if it is pinned to one.
    pub core: Option<usize>,
}

impl Site {
    /// Returns a command that runs there.
    fn command(&self, program: &str) -> Command {
        let mut words: Vec<String> = Vec::new();
        if let Some(namespace) = &self.namespace {
            words.extend(["ip", "netns", "exec", namespace].map(str::to_owned));
        }
        if let Some(core) = self.core {
            words.extend(["taskset", "-c", &core.to_string()].map(str::to_owned));
        }
        words.push(program.to_owned());
        let mut command = Command::new(&words[0]);
        command.args(&words[1..]);
        command
    }
}

fn is_installed(what: &'static str, programs: &[&str]) -> Result<(), Error> {
    let folders = ["/usr/bin", "/usr/sbin", "/sbin", "/bin"];
    let missing = programs
        .iter()
        .find(|name| !folders.iter().any(|folder| fs::exists(format!("{folder}/{name}")).unwrap_or(false)));
    match missing {
        None => Ok(()),
        Some(name) => Err(Error::Missing { what, why: format!("{name} is not installed") }),
    }
}

/// An NFS server (nfs-ganesha, version 3 of the protocol) with a directory in memory. It is removed when this is
/// dropped.
#[derive(Debug)]
pub struct NfsServer {
    // The process ends before its directory is removed.
    process: Process,
    _folder: TempNode,
    host: String,
}

impl NfsServer {
    /// Starts the server in a network namespace: the ports of NFS are fixed, and exist once in each network.
    pub fn start(site: &Site) -> Result<NfsServer, Error> {
        let what = "nfs-ganesha";
        is_installed(what, &["ganesha.nfsd", "rpcbind", "unshare", "ip"])?;
        if site.namespace.is_none() || !rustix::process::geteuid().is_root() {
            return Err(Error::Missing { what, why: "it needs a network namespace and root".to_owned() });
        }
        let folder = TempNode::new()?;
        let (export, host) = (folder.join("export"), site.address.to_string());
        let config = format!(
            "NFS_CORE_PARAM {{ Protocols = 3; NFS_Port = 2049; MNT_Port = 20048; Enable_NLM = false; Enable_UDP = false;\n\
             Enable_RQUOTA = false; mount_path_pseudo = true; }}\n\
             NFS_KRB5 {{ Active_krb5 = false; }}\n\
             NFSV4 {{ Graceless = true; RecoveryRoot = \"{recovery}\"; }}\n\
             EXPORT {{ Export_Id = 1; Path = \"{export}\"; Pseudo = {NFS_EXPORT}; Access_Type = RW; SecType = sys;\n\
             Squash = No_Root_Squash; Protocols = 3; Transports = TCP; FSAL {{ Name = VFS; }} }}\n",
            recovery = folder.join("recovery").display(),
            export = export.display(),
        );
        let path = folder.join("ganesha.conf");
        let written = fs::create_dir(&export).and_then(|()| fs::write(&path, config));
        written.map_err(Error::system(format!("writing {}", path.display())))?;
        // The port mapper has a socket and a lock in /run: these two processes get a private /run, and end together.
        let script = format!(
            "mount -t tmpfs none /run && {{ rpcbind -f & }} && sleep 0.2 && \
             exec ganesha.nfsd -F -f '{}' -L '{}' -p '{}'",
            path.display(),
            folder.join("ganesha.log").display(),
            folder.join("ganesha.pid").display(),
        );
        let mut command = site.command("unshare");
        command.args(["--mount", "--pid", "--fork", "--kill-child=KILL", "sh", "-c", &script]);
        let process = Process::start(command, folder.path(), "ganesha")?;
        Ok(NfsServer { process, _folder: folder, host })
    }

    /// Returns its address.
    pub fn host(&self) -> &str {
        &self.host
    }

    /// Opens a file of pages, from a thread in a namespace that reaches the server; waits until it serves.
    pub fn pages(&mut self, path: &str, pages: u32) -> Result<NfsPages, Error> {
        let host = self.host.clone();
        let serves = |_: &Process| NfsPages::open(&host, NFS_EXPORT, "/ready", PAGES).is_ok();
        self.process.wait_until(READY_MAX, serves)?;
        NfsPages::open(&self.host, NFS_EXPORT, path, pages)
    }
}

impl Drop for NfsServer {
    fn drop(&mut self) {
        // `unshare` handles no signal while its child runs. Its end ends all processes that it started.
        drop(self.process.kill());
    }
}

/// A Redis server that keeps everything in memory. It is killed when this is dropped.
#[derive(Debug)]
pub struct RedisServer {
    process: Process,
    _folder: TempNode,
    address: SocketAddr,
}

impl RedisServer {
    /// Starts the server.
    pub fn start(site: &Site) -> Result<RedisServer, Error> {
        is_installed("redis", &["redis-server"])?;
        let folder = TempNode::new()?;
        // In a namespace of its own every port is free.
        let port = if site.namespace.is_some() { 6379 } else { free_tcp_port(site.address)? };
        let mut command = site.command("redis-server");
        command.args(["--bind", &site.address.to_string(), "--port", &port.to_string(), "--dir"]).arg(folder.path());
        command.args(["--save", "", "--appendonly", "no", "--protected-mode", "no", "--daemonize", "no"]);
        let process = Process::start(command, folder.path(), "redis")?;
        Ok(RedisServer { process, _folder: folder, address: SocketAddr::new(site.address, port) })
    }

    /// Connects, from a thread in a namespace that reaches the server; waits until it serves.
    pub fn client(&mut self) -> Result<RedisClient, Error> {
        let address = self.address;
        self.process.wait_until(READY_MAX, |_| TcpStream::connect(address).is_ok())?;
        RedisClient::connect(address)
    }
}
