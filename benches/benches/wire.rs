//! Streams on the wire beside bare TCP on loopback: bandwidth, latency, messages, copies (Figures 2 to 4 of the paper).
//!
//! ```sh
//! cargo bench -p ddss-benches --bench wire -- [--rounds N]
//! ```
//!
//! In each round every stream takes its turn, in an order that rotates; a ratio is the median of the rounds' ratios. So load that comes and
//! goes falls on all of them. The processor time of both ends together is the steadier figure on a machine that does other work.
#![forbid(unsafe_code)]
#![allow(clippy::print_stdout, reason = "the rows are its result")]

use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use ddss_stream::wire::{WireConfig, WireStream};
use rustix::time::{ClockId, clock_gettime};

/// Sizes of the writes whose bandwidth is measured.
const SIZES: [usize; 5] = [1 << 10, 4 << 10, 16 << 10, 64 << 10, 256 << 10];
/// Bytes of a small message.
const SMALL_BYTES: usize = 64;
/// Pause of the slow receiver between two reads.
const PAUSE: Duration = Duration::from_micros(200);
/// Bytes that the slow receiver reads at a time.
const SLOW_READ_BYTES: usize = 1 << 10;
/// Rounds if nothing else is said.
const ROUNDS: usize = 21;

/// Kind of a stream.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    Tcp,
    Basic { framing: bool, batching: bool },
    Enhanced { framing: bool },
}

impl Kind {
    const ALL: [Self; 7] = [
        Self::Tcp,
        Self::Basic { framing: true, batching: false },
        Self::Basic { framing: true, batching: true },
        Self::Enhanced { framing: true },
        Self::Basic { framing: false, batching: false },
        Self::Basic { framing: false, batching: true },
        Self::Enhanced { framing: false },
    ];

    fn name(self) -> &'static str {
        match self {
            Self::Tcp => "tcp",
            Self::Basic { framing: true, batching: false } => "basic",
            Self::Basic { framing: true, batching: true } => "basic, one write a call",
            Self::Enhanced { framing: true } => "enhanced",
            Self::Basic { framing: false, batching: false } => "basic, no markers, no crc",
            Self::Basic { framing: false, batching: true } => "basic, one write a call, no markers, no crc",
            Self::Enhanced { framing: false } => "enhanced, no markers, no crc",
        }
    }

    fn config(self) -> Option<WireConfig> {
        let mut config = WireConfig::default();
        config.stream.no_delay = true;
        match self {
            Self::Tcp => return None,
            Self::Basic { framing, batching } => {
                config = WireConfig { markers: framing, checksums: framing, batching, ..config.basic() };
            }
            Self::Enhanced { framing } => (config.markers, config.checksums) = (framing, framing),
        }
        Some(config)
    }
}

enum Stream {
    Tcp(TcpStream),
    Wire(WireStream),
}

impl Stream {
    fn pair(kind: Kind) -> io::Result<(Self, Self)> {
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

    fn shutdown(&self) -> io::Result<()> {
        match self {
            Self::Tcp(tcp) => tcp.shutdown(std::net::Shutdown::Write),
            Self::Wire(wire) => wire.shutdown_write(),
        }
    }

    fn wire(&self) -> Option<&WireStream> {
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

/// Reads to the end, `room` bytes at a time. Returns the number of bytes and the stream.
fn drain(mut stream: Stream, room: usize, pause: Option<Duration>) -> io::Result<(u64, Stream)> {
    let (mut room, mut read) = (vec![0; room], 0);
    loop {
        match stream.read(&mut room)? {
            0 => return Ok((read, stream)),
            bytes => read += bytes as u64,
        }
        pause.into_iter().for_each(thread::sleep);
    }
}

/// Result of a transfer in one direction.
struct Transfer {
    bytes_per_s: f64,
    sender: Stream,
    receiver: Stream,
}

fn transfer(kind: Kind, size: usize, writes: usize, read: usize, pause: Option<Duration>) -> io::Result<Transfer> {
    let (mut sender, receiver) = Stream::pair(kind)?;
    let block = vec![7; size];
    let begin = Instant::now();
    let reader = thread::spawn(move || drain(receiver, read, pause));
    for _ in 0..writes {
        sender.write_all(&block)?;
    }
    sender.shutdown()?;
    let (bytes, receiver) = reader.join().map_err(|_| io::Error::other("the reader panicked"))??;
    let elapsed = begin.elapsed().as_secs_f64();
    assert_eq!(bytes, (size * writes) as u64, "bytes were lost");
    Ok(Transfer { bytes_per_s: bytes as f64 / elapsed, sender, receiver })
}

/// Returns the round trips a second of small messages.
fn ping_pong(kind: Kind, trips: usize) -> io::Result<f64> {
    let (mut here, mut there) = Stream::pair(kind)?;
    let echo = thread::spawn(move || -> io::Result<Stream> {
        let mut message = [0; SMALL_BYTES];
        for _ in 0..trips {
            there.read_exact(&mut message)?;
            there.write_all(&message)?;
        }
        Ok(there)
    });
    let mut message = [1; SMALL_BYTES];
    let begin = Instant::now();
    for _ in 0..trips {
        here.write_all(&message)?;
        here.read_exact(&mut message)?;
    }
    let elapsed = begin.elapsed().as_secs_f64();
    drop(echo.join().map_err(|_| io::Error::other("the echo panicked"))??);
    Ok(trips as f64 / elapsed)
}

/// Returns the seconds of processor time that this process has used.
fn processor_s() -> f64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

/// Measures all kinds in rotating order. Prints a row for each: the median rate, and the median ratios of rate and processor time to TCP
/// and to basic.
fn compare(what: &str, unit: &str, rounds: usize, mut measure: impl FnMut(Kind) -> io::Result<f64>) -> io::Result<()> {
    let (mut rates, mut times) = (BTreeMap::<Kind, Vec<f64>>::new(), BTreeMap::<Kind, Vec<f64>>::new());
    for round in 0..rounds {
        for turn in 0..Kind::ALL.len() {
            let kind = Kind::ALL[(turn + round) % Kind::ALL.len()];
            let begin = processor_s();
            rates.entry(kind).or_default().push(measure(kind)?);
            times.entry(kind).or_default().push(processor_s() - begin);
        }
    }
    for kind in Kind::ALL {
        let ratio = |of: &BTreeMap<Kind, Vec<f64>>, to: Kind| {
            median(of[&kind].iter().zip(&of[&to]).map(|(own, other)| own / other).collect())
        };
        let basic = match kind {
            Kind::Enhanced { framing: false } | Kind::Basic { framing: false, .. } => {
                Kind::Basic { framing: false, batching: false }
            }
            _ => Kind::Basic { framing: true, batching: false },
        };
        let rate = median(rates[&kind].clone());
        let name = kind.name();
        let ratios = [ratio(&rates, Kind::Tcp), ratio(&rates, basic), ratio(&times, Kind::Tcp), ratio(&times, basic)];
        let ratios = ratios.map(|ratio| format!("{ratio:>8.2}")).concat();
        println!("{what:<18} {name:<44} {rate:>10.1} {unit:<8}{ratios}");
    }
    Ok(())
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// Prints what is counted and does not depend on time: copies and the modelled cache traffic of a byte, messages of a small write.
fn print_counts(writes: usize) -> io::Result<()> {
    println!("\n{:<44} copies a byte      cache bytes a byte  messages a 64-byte write", "counted");
    println!("{:<44} send     receive   send      receive   against a slow receiver", "");
    for kind in Kind::ALL.into_iter().skip(1) {
        let large = transfer(kind, 64 << 10, 64, 64 << 10, None)?;
        let small = transfer(kind, SMALL_BYTES, writes, SLOW_READ_BYTES, Some(PAUSE))?;
        let (Some(sender), Some(receiver), Some(small)) =
            (large.sender.wire(), large.receiver.wire(), small.sender.wire())
        else {
            continue;
        };
        let (sent, received) = (sender.ledger(), receiver.ledger());
        let of = |bytes: u64, all: u64| bytes as f64 / all as f64;
        println!(
            "{:<44} {:<8.3} {:<9.3} {:<9.3} {:<9.3} {:.3}",
            kind.name(),
            of(sent.send_copied, sent.written),
            of(received.receive_copied, received.read),
            of(sent.send_cache_bytes(), sent.written),
            of(received.receive_cache_bytes(), received.read),
            f64::from(small.messages()) / writes as f64,
        );
    }
    Ok(())
}

fn main() -> io::Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let is_measured = arguments.iter().any(|argument| argument == "--bench");
    let wanted = arguments.windows(2).find(|pair| pair[0] == "--rounds").and_then(|pair| pair[1].parse().ok());
    // `cargo test --benches` runs everything once; the numbers mean nothing then.
    let rounds = if is_measured { wanted.unwrap_or(ROUNDS).max(1) } else { 1 };
    let scale = if is_measured { 1 } else { 64 };
    println!("{:<63} {:>10} {:<8}{:>8}{:>8}{:>8}{:>8}", "", "median", "", "/tcp", "/basic", "cpu/tcp", "cpu/bas");
    for size in SIZES {
        // Small writes cost a system call each: fewer bytes take as long.
        let bytes = if size < 16 << 10 { 16 << 20 } else { 64 << 20 };
        compare(&format!("{} KiB writes", size >> 10), "MB/s", rounds, |kind| {
            Ok(transfer(kind, size, bytes / size / scale + 1, 256 << 10, None)?.bytes_per_s / 1e6)
        })?;
    }
    compare("64-byte ping-pong", "trips/s", rounds, |kind| ping_pong(kind, 4000 / scale))?;
    print_counts(200_000 / scale)
}
