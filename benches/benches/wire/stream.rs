//! The measured streams: bare TCP, and the wire with each plan.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::thread;

use ddss_stream::wire::{WireConfig, WireStream};

/// Kind of a stream.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    Tcp,
    Basic { framing: bool, batching: bool },
    Enhanced { framing: bool, holding: bool },
}

impl Kind {
    pub(crate) const ALL: [Self; 9] = [
        Self::Tcp,
        Self::Basic { framing: true, batching: false },
        Self::Basic { framing: true, batching: true },
        Self::Enhanced { framing: true, holding: false },
        Self::Enhanced { framing: true, holding: true },
        Self::Basic { framing: false, batching: false },
        Self::Basic { framing: false, batching: true },
        Self::Enhanced { framing: false, holding: false },
        Self::Enhanced { framing: false, holding: true },
    ];

    /// Name and mode of its rows.
    pub(crate) fn columns(self) -> [&'static str; 2] {
        let name = match self {
            Self::Tcp => "tcp",
            Self::Basic { batching: false, .. } => "basic",
            Self::Basic { batching: true, .. } => "basic-batched",
            Self::Enhanced { holding: false, .. } => "enhanced",
            Self::Enhanced { holding: true, .. } => "enhanced-holding",
        };
        let mode = match self {
            Self::Tcp => "tcp-lo/bare/t1",
            Self::Basic { framing: true, .. } | Self::Enhanced { framing: true, .. } => "tcp-lo/framed/t1",
            Self::Basic { .. } | Self::Enhanced { .. } => "tcp-lo/plain/t1",
        };
        [name, mode]
    }

    /// Name in the table for people.
    pub(crate) fn title(self) -> &'static str {
        match self {
            Self::Tcp => "tcp",
            Self::Basic { framing: true, batching: false } => "basic",
            Self::Basic { framing: true, batching: true } => "basic, one write a call",
            Self::Enhanced { framing: true, holding: false } => "enhanced",
            Self::Enhanced { framing: true, holding: true } => "enhanced, small writes wait",
            Self::Basic { framing: false, batching: false } => "basic, no markers, no crc",
            Self::Basic { framing: false, batching: true } => "basic, one write a call, no markers, no crc",
            Self::Enhanced { framing: false, holding: false } => "enhanced, no markers, no crc",
            Self::Enhanced { framing: false, holding: true } => "enhanced, small writes wait, no markers, no crc",
        }
    }

    /// The basic plan with the same framing.
    pub(crate) fn basic(self) -> Self {
        let framing = !matches!(self, Self::Basic { framing: false, .. } | Self::Enhanced { framing: false, .. });
        Self::Basic { framing, batching: false }
    }

    fn config(self) -> Option<WireConfig> {
        let mut config = WireConfig::default();
        config.stream.no_delay = true;
        match self {
            Self::Tcp => return None,
            Self::Basic { framing, batching } => {
                config = WireConfig { markers: framing, checksums: framing, batching, ..config.basic() };
            }
            Self::Enhanced { framing, holding } => {
                (config.markers, config.checksums) = (framing, framing);
                config.stream.no_delay = !holding;
            }
        }
        Some(config)
    }
}

pub(crate) enum Stream {
    Tcp(TcpStream),
    Wire(WireStream),
}

impl Stream {
    pub(crate) fn pair(kind: Kind) -> io::Result<(Self, Self)> {
        let listener = TcpListener::bind(SocketAddr::from(([127, 0, 0, 1], 0)))?;
        let here = TcpStream::connect(listener.local_addr()?)?;
        let there = listener.accept()?.0;
        let Some(config) = kind.config() else {
            here.set_nodelay(true)?;
            there.set_nodelay(true)?;
            return Ok((Self::Tcp(here), Self::Tcp(there)));
        };
        let accepted = thread::spawn(move || WireStream::accept(there, &config));
        let here = WireStream::begin(here, &config)?;
        let there = accepted.join().map_err(|_| io::Error::other("the accepting thread panicked"))??;
        Ok((Self::Wire(here), Self::Wire(there)))
    }

    pub(crate) fn shutdown(&self) -> io::Result<()> {
        match self {
            Self::Tcp(tcp) => tcp.shutdown(std::net::Shutdown::Write),
            Self::Wire(wire) => wire.shutdown_write(),
        }
    }

    pub(crate) fn wire(&self) -> Option<&WireStream> {
        match self {
            Self::Tcp(_) => None,
            Self::Wire(wire) => Some(wire),
        }
    }
}

impl Read for Stream {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(tcp) => tcp.read(out),
            Self::Wire(wire) => wire.read(out),
        }
    }
}

impl Write for Stream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(tcp) => tcp.write(bytes),
            Self::Wire(wire) => wire.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::Tcp(tcp) => tcp.flush(),
            Self::Wire(wire) => wire.flush(),
        }
    }
}
