//! Streams between two filters.

use std::fmt;
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

use ddss_stream::wire::{WireConfig, WireStream};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::Error;

/// Maximum time until the filter before connects.
const ACCEPT_MAX: Duration = Duration::from_secs(60);

/// Kind of the streams of a program.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum LinkKind {
    /// TCP of the kernel.
    Tcp,
    /// Unix sockets.
    Unix,
    /// `ddss-stream`: shared memory between processes of one node.
    SameNode,
    /// The Sockets Direct Protocol on TCP, as in its specification: private buffers and credits.
    Basic,
    /// The Sockets Direct Protocol on TCP without redundant copies, messages and credits.
    Enhanced,
}

impl LinkKind {
    /// All kinds.
    pub const ALL: [Self; 5] = [Self::Tcp, Self::Unix, Self::SameNode, Self::Basic, Self::Enhanced];
}

impl fmt::Display for LinkKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Tcp => "tcp",
            Self::Unix => "unix",
            Self::SameNode => "same-node",
            Self::Basic => "basic",
            Self::Enhanced => "enhanced",
        })
    }
}

impl FromStr for LinkKind {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        Self::ALL.into_iter().find(|kind| kind.to_string() == text).ok_or_else(|| {
            let known = Self::ALL.map(|kind| kind.to_string()).join(", ");
            super::query::refused(format!("no link is called {text}; there are: {known}"))
        })
    }
}

/// Returns the settings of a stream on the wire.
fn wire(kind: LinkKind) -> WireConfig {
    let mut config = if kind == LinkKind::Basic { WireConfig::default().basic() } else { WireConfig::default() };
    // A filter flushes before it waits for its input, so that its units may wait for each other. Basic lets them wait for credits.
    config.stream.no_delay = kind == LinkKind::Basic;
    config
}

/// Input of a filter that listens until the filter before connects.
#[derive(Debug)]
pub struct StageInput {
    listener: Listener,
    address: String,
}

#[derive(Debug)]
enum Listener {
    Tcp(TcpListener),
    Unix(UnixListener),
    SameNode(ddss_stream::Listener),
    Wire(TcpListener, WireConfig),
}

impl StageInput {
    /// Listens. A Unix socket is created in `folder`, under `name`.
    pub fn listen(kind: LinkKind, folder: &Path, name: &str) -> Result<Self, Error> {
        let any = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let made = || -> io::Result<Self> {
            Ok(match kind {
                LinkKind::Tcp => {
                    let listener = TcpListener::bind(any)?;
                    Self { address: listener.local_addr()?.to_string(), listener: Listener::Tcp(listener) }
                }
                LinkKind::Unix => {
                    let path = folder.join(format!("{name}.sock"));
                    let listener = Listener::Unix(UnixListener::bind(&path)?);
                    Self { listener, address: path.to_string_lossy().into_owned() }
                }
                LinkKind::Basic | LinkKind::Enhanced => {
                    let listener = TcpListener::bind(any)?;
                    Self { address: listener.local_addr()?.to_string(), listener: Listener::Wire(listener, wire(kind)) }
                }
                LinkKind::SameNode => {
                    let listener = ddss_stream::Listener::bind(any)?;
                    Self { address: listener.local_addr()?.to_string(), listener: Listener::SameNode(listener) }
                }
            })
        };
        made().map_err(Error::system(format!("filter {name} listens ({kind})")))
    }

    /// Returns the address for the filter before.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// Waits for the filter before; fails if it does not come.
    pub fn accept(self) -> Result<Box<dyn Read>, Error> {
        let accepted = || -> io::Result<Box<dyn Read>> {
            wait_readable(self.fd())?;
            Ok(match &self.listener {
                Listener::Tcp(listener) => {
                    let (stream, _) = listener.accept()?;
                    Box::new(stream)
                }
                Listener::Unix(listener) => Box::new(listener.accept()?.0),
                Listener::SameNode(listener) => Box::new(listener.accept()?.0),
                Listener::Wire(listener, config) => Box::new(WireStream::accept(listener.accept()?.0, config)?),
            })
        };
        accepted().map_err(Error::system(format!("waiting for the filter before at {}", self.address)))
    }

    fn fd(&self) -> BorrowedFd<'_> {
        match &self.listener {
            Listener::Tcp(listener) => listener.as_fd(),
            Listener::Unix(listener) => listener.as_fd(),
            Listener::SameNode(listener) => listener.as_fd(),
            Listener::Wire(listener, _) => listener.as_fd(),
        }
    }
}

pub(super) fn wait_readable(fd: BorrowedFd<'_>) -> io::Result<()> {
    let limit = Timespec { tv_sec: ACCEPT_MAX.as_secs().cast_signed(), tv_nsec: 0 };
    match poll(&mut [PollFd::from_borrowed_fd(fd, PollFlags::IN)], Some(&limit))? {
        0 => Err(io::Error::new(io::ErrorKind::TimedOut, format!("it did not connect in {ACCEPT_MAX:?}"))),
        _ => Ok(()),
    }
}

/// Output of a filter.
#[derive(Debug)]
pub struct StageOutput;

impl StageOutput {
    /// Connects to the next filter.
    pub fn connect(kind: LinkKind, address: &str) -> Result<Box<dyn Write>, Error> {
        let socket = || address.parse::<SocketAddr>().map_err(io::Error::other);
        let connected = || -> io::Result<Box<dyn Write>> {
            Ok(match kind {
                LinkKind::Tcp => {
                    let stream = TcpStream::connect(socket()?)?;
                    // As every program that writes small units would do.
                    stream.set_nodelay(true)?;
                    Box::new(stream)
                }
                LinkKind::Unix => Box::new(UnixStream::connect(PathBuf::from(address))?),
                LinkKind::SameNode => Box::new(ddss_stream::Stream::connect(socket()?)?),
                LinkKind::Basic | LinkKind::Enhanced => Box::new(WireStream::connect(socket()?, &wire(kind))?),
            })
        };
        connected().map_err(Error::system(format!("connecting to the next filter at {address} ({kind})")))
    }
}
