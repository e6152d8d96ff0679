//! The streams alone: two processes that only move bytes.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::net::{UnixListener, UnixStream};
use std::process::{Command, Stdio};
use std::time::Instant;

use ddss_stream::{Listener, Stream, Transport, TransportPolicy};
use rustix::time::{ClockId, clock_gettime};

use crate::compare::{Options, Row, Sample, compare};
use crate::measured_process::MeasuredProcess;

/// Bytes of a small message.
const SMALL_BYTES: usize = 64;
/// Bytes of a write and of a read of a stream.
const LARGE_BYTES: usize = 64 << 10;
/// Round trips before the measurement: the stream leaves TCP, and the spin adapts.
const WARM_TRIPS: usize = 2000;
/// Round trips where both sides sleep between two messages.
const TRIPS: usize = 20_000;
/// Factor of round trips if both sides stay awake.
const AWAKE: usize = 10;
/// Spin limit of the library; the rows without spin replace it.
const SPIN_NS: u64 = 20_000;
/// Bytes of a stream.
const STREAM_BYTES: usize = 2 << 30;

/// Transport, and how its ends wait.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Tcp { spins: bool },
    Unix { spins: bool },
    Shared { spins: bool },
}

const ROWS: [Row<Kind>; 6] = [
    Row { kind: Kind::Tcp { spins: false }, name: "tcp" },
    Row { kind: Kind::Unix { spins: false }, name: "unix socket" },
    Row { kind: Kind::Shared { spins: false }, name: "shared memory, no spin" },
    Row { kind: Kind::Tcp { spins: true }, name: "tcp, awake" },
    Row { kind: Kind::Unix { spins: true }, name: "unix socket, awake" },
    Row { kind: Kind::Shared { spins: true }, name: "shared memory, awake" },
];

/// The rows in which both sides stay awake.
const AWAKE_ROWS: [Row<Kind>; 3] = [ROWS[3], ROWS[4], ROWS[5]];
const SLEEPING_ROWS: [Row<Kind>; 3] = [ROWS[0], ROWS[1], ROWS[2]];

enum End {
    Tcp(TcpStream),
    Unix(UnixStream),
    Shared(Stream),
}

enum Acceptor {
    Tcp(TcpListener),
    Unix(UnixListener),
    Shared(Listener),
}

impl Acceptor {
    /// Listens, and returns the address in words for the other process.
    fn bind(kind: Kind, folder: &std::path::Path) -> io::Result<(Self, String)> {
        let any = SocketAddr::from(([127, 0, 0, 1], 0));
        Ok(match kind {
            Kind::Tcp { .. } => {
                let listener = TcpListener::bind(any)?;
                let address = listener.local_addr()?.to_string();
                (Self::Tcp(listener), address)
            }
            Kind::Unix { .. } => {
                let path = folder.join("socket");
                let _ = std::fs::remove_file(&path);
                (Self::Unix(UnixListener::bind(&path)?), path.display().to_string())
            }
            Kind::Shared { .. } => {
                let listener = Listener::bind(any)?;
                let address = listener.local_addr()?.to_string();
                (Self::Shared(listener), address)
            }
        })
    }

    fn accept(&self) -> io::Result<End> {
        Ok(match self {
            Self::Tcp(listener) => End::Tcp(listener.accept()?.0),
            Self::Unix(listener) => End::Unix(listener.accept()?.0),
            Self::Shared(listener) => End::Shared(listener.accept()?.0),
        })
    }
}

impl End {
    fn connect(kind: Kind, address: &str) -> io::Result<Self> {
        let parse = || address.parse::<SocketAddr>().map_err(io::Error::other);
        Ok(match kind {
            Kind::Tcp { .. } => Self::Tcp(TcpStream::connect(parse()?)?),
            Kind::Unix { .. } => Self::Unix(UnixStream::connect(address)?),
            Kind::Shared { .. } => Self::Shared(Stream::connect_with(parse()?, &TransportPolicy::Auto)?),
        })
    }

    /// Makes the end wait as its kind does. Shared memory spins by itself, as long as its limit permits.
    fn prepare(&self, kind: Kind) -> io::Result<()> {
        match (self, kind) {
            (Self::Tcp(tcp), Kind::Tcp { spins }) => {
                tcp.set_nodelay(true)?;
                tcp.set_nonblocking(spins)
            }
            (Self::Unix(unix), Kind::Unix { spins }) => unix.set_nonblocking(spins),
            (_, Kind::Shared { spins: false }) => {
                ddss_stream::set_spin_max(0);
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn read_once(&mut self, out: &mut [u8]) -> io::Result<usize> {
        loop {
            let read = match self {
                Self::Tcp(tcp) => tcp.read(out),
                Self::Unix(unix) => unix.read(out),
                Self::Shared(stream) => stream.read(out),
            };
            match read {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => std::hint::spin_loop(),
                found => return found,
            }
        }
    }

    fn read_whole(&mut self, out: &mut [u8]) -> io::Result<bool> {
        let mut done = 0;
        while done < out.len() {
            match self.read_once(&mut out[done..])? {
                0 => return Ok(false),
                bytes => done += bytes,
            }
        }
        Ok(true)
    }

    fn write_whole(&mut self, bytes: &[u8]) -> io::Result<()> {
        let mut done = 0;
        while done < bytes.len() {
            let written = match self {
                Self::Tcp(tcp) => tcp.write(&bytes[done..]),
                Self::Unix(unix) => unix.write(&bytes[done..]),
                Self::Shared(stream) => stream.write(&bytes[done..]),
            };
            match written {
                Ok(bytes) => done += bytes,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => std::hint::spin_loop(),
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn check(&self) -> io::Result<()> {
        match self {
            Self::Shared(stream) if stream.transport() != Transport::SameNode => {
                Err(io::Error::other(format!("the stream stayed on TCP: {}", stream.reason().text())))
            }
            _ => Ok(()),
        }
    }
}

/// Returns the processor time of this process in microseconds.
fn processor_us() -> f64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    time.tv_sec as f64 * 1e6 + time.tv_nsec as f64 / 1e3
}

/// The other process: it echoes small messages until the end of the first part, then reads `bytes` and answers with its processor time.
///
/// Arguments: transport, awake or asleep, address, trips before the measurement, trips, bytes.
pub(crate) fn run_peer(arguments: &[String]) -> io::Result<()> {
    let [transport, waits, address, warm, trips, bytes] = arguments else {
        return Err(io::Error::other("wrong arguments"));
    };
    let spins = waits == "awake";
    let kind = match transport.as_str() {
        "tcp" => Kind::Tcp { spins },
        "unix" => Kind::Unix { spins },
        _ => Kind::Shared { spins },
    };
    let number = |text: &String| text.parse::<usize>().map_err(io::Error::other);
    let mut end = End::connect(kind, address)?;
    end.prepare(kind)?;
    let (mut small, mut large) = ([0; SMALL_BYTES], vec![0; LARGE_BYTES]);
    let mut echo = |end: &mut End, count| -> io::Result<()> {
        for _ in 0..count {
            end.read_whole(&mut small)?;
            end.write_whole(&small)?;
        }
        Ok(())
    };
    echo(&mut end, number(warm)?)?;
    let begin = processor_us();
    echo(&mut end, number(trips)?)?;
    let mut left = number(bytes)?;
    while left > 0 {
        match end.read_once(&mut large)? {
            0 => return Err(io::Error::other("the stream ended early")),
            bytes => left -= bytes,
        }
    }
    let used = processor_us() - begin;
    end.write_whole(&used.to_le_bytes())
}

/// A running pair of processes.
struct Pair {
    end: End,
    _peer: MeasuredProcess,
    _folder: tempfile::TempDir,
}

impl Pair {
    fn start(options: &Options, kind: Kind, trips: usize, bytes: usize) -> io::Result<Self> {
        let folder = tempfile::tempdir()?;
        let (acceptor, address) = Acceptor::bind(kind, folder.path())?;
        let (transport, spins) = match kind {
            Kind::Tcp { spins } => ("tcp", spins),
            Kind::Unix { spins } => ("unix", spins),
            Kind::Shared { spins } => ("shared", spins),
        };
        let cores = options.cores;
        let mut command = Command::new(std::env::current_exe()?);
        command.args(["peer", transport, if spins { "awake" } else { "asleep" }, &address]);
        let warm = WARM_TRIPS / options.scale;
        command.args([warm, trips, bytes].map(|number| number.to_string())).stdout(Stdio::null());
        let peer = MeasuredProcess::start(&mut command, cores, cores.service)?;
        let mut end = acceptor.accept()?;
        ddss_stream::set_spin_max(if spins { SPIN_NS } else { 0 });
        end.prepare(kind)?;
        exchange(&mut end, warm)?;
        end.check()?;
        Ok(Self { end, _peer: peer, _folder: folder })
    }

    /// Returns the processor time of the peer in microseconds.
    fn finish(&mut self) -> io::Result<f64> {
        let mut answer = [0; 8];
        self.end.read_whole(&mut answer)?;
        Ok(f64::from_le_bytes(answer))
    }
}

fn exchange(end: &mut End, trips: usize) -> io::Result<()> {
    let mut message = [1; SMALL_BYTES];
    for _ in 0..trips {
        end.write_whole(&message)?;
        if !end.read_whole(&mut message)? {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    }
    Ok(())
}

/// Measures round trips of small messages.
pub(crate) fn ping_pong(options: &Options) -> io::Result<()> {
    if !options.wants("64-byte ping-pong") {
        return Ok(());
    }
    for rows in [SLEEPING_ROWS, AWAKE_ROWS] {
        compare(options, "64-byte ping-pong", "trips/s", &rows, true, |kind| {
            let is_awake =
                matches!(kind, Kind::Tcp { spins: true } | Kind::Unix { spins: true } | Kind::Shared { spins: true });
            let trips = TRIPS * if is_awake { AWAKE } else { 1 } / options.scale;
            let mut pair = Pair::start(options, kind, trips, 0)?;
            let (begin, used) = (Instant::now(), processor_us());
            exchange(&mut pair.end, trips)?;
            let (elapsed, used) = (begin.elapsed().as_secs_f64(), processor_us() - used);
            let trips = trips as f64;
            Ok(Sample { rate: trips / elapsed, server_us: pair.finish()? / trips, client_us: used / trips })
        })?;
    }
    Ok(())
}

/// Measures a stream in one direction. An operation is a write of 64 KiB.
pub(crate) fn stream(options: &Options) -> io::Result<()> {
    if !options.wants("64 KiB stream") {
        return Ok(());
    }
    for rows in [SLEEPING_ROWS, AWAKE_ROWS] {
        compare(options, "64 KiB stream", "MB/s", &rows, true, |kind| {
            let writes = STREAM_BYTES / LARGE_BYTES / options.scale;
            let mut pair = Pair::start(options, kind, 0, writes * LARGE_BYTES)?;
            let block = vec![7; LARGE_BYTES];
            let (begin, used) = (Instant::now(), processor_us());
            for _ in 0..writes {
                pair.end.write_whole(&block)?;
            }
            let used = processor_us() - used;
            let server_us = pair.finish()?;
            let elapsed = begin.elapsed().as_secs_f64();
            let (writes, bytes) = (writes as f64, (writes * LARGE_BYTES) as f64);
            Ok(Sample { rate: bytes / elapsed / 1e6, server_us: server_us / writes, client_us: used / writes })
        })?;
    }
    Ok(())
}
