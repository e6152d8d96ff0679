//! Kills of either end of streams on the wire: the other end does not hang, and what it reads is a prefix of what was written.
//!
//! ```sh
//! cargo run --release -p ddss-tests --bin wire_campaign -- [COUNT] [SEED]
//! ```
//!
//! Each end is a process. One of them is killed at a random moment, from the first byte of the handshake on.
#![forbid(unsafe_code)]
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "it tells what it found")]

use std::env;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::SocketAddr;
use std::process::{Child, ChildStdout, Command, ExitCode, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use ddss_stream::wire::WireConfig;
use ddss_stream::{Listener, Stream, TransportPolicy};

/// Longest time that a process may take to end. What is slower hangs.
const DEADLINE: Duration = Duration::from_secs(60);
/// Time from which an end counts as slow in the result.
const SLOW: Duration = Duration::from_secs(1);
const KILLS: u64 = 10_000;
/// Longest time from the accepted connection to the kill, in microseconds. A handshake takes some hundred.
const DELAY_US: u64 = 4_000;
/// Ways to move bytes: plan, and which ends write.
const MODES: u64 = 6;
const ARGUMENTS: &str = "usage: wire_campaign [COUNT] [SEED]";

fn main() -> ExitCode {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let result = match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["end", port, mode, seed] => run_end(port, mode, seed),
        [] => run(KILLS, 1),
        [count] => count.parse().map_err(|_| ARGUMENTS.to_owned()).and_then(|count| run(count, 1)),
        [count, seed] => match (count.parse(), seed.parse()) {
            (Ok(count), Ok(seed)) => run(count, seed),
            _ => Err(ARGUMENTS.to_owned()),
        },
        _ => Err(ARGUMENTS.to_owned()),
    };
    match result {
        Ok(found) => println!("{found}"),
        Err(error) => {
            eprintln!("FAILED: {error}");
            return ExitCode::FAILURE;
        }
    }
    ExitCode::SUCCESS
}

/// Results of the survivors.
#[derive(Default)]
struct Counts {
    bytes: u64,
    without_bytes: u64,
    slow: u64,
    longest: Duration,
}

fn run(count: u64, seed: u64) -> Result<String, String> {
    let mut counts = Counts::default();
    for number in 0..count {
        kill_one(number, seed, &mut counts).map_err(|error| format!("kill {number} of seed {seed}: {error}"))?;
    }
    let Counts { bytes, without_bytes, slow, longest } = counts;
    if count >= MODES && without_bytes == count {
        return Err("no survivor read a byte: every kill came too early".to_owned());
    }
    Ok(format!(
        "kills={count} bytes={bytes} before_the_first_byte={without_bytes} slower_than_1_s={slow} longest_end_ms={}",
        longest.as_millis()
    ))
}

fn kill_one(number: u64, seed: u64, counts: &mut Counts) -> Result<(), String> {
    // A step of SplitMix64: neighbouring numbers take different parts.
    let mut mixed = (seed << 32 ^ number).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed ^= mixed >> 27;
    let (mode, seed) = ((number % MODES).to_string(), (mixed >> 40).to_string());
    let mut acceptor = End::start(["0", &mode, &seed])?;
    let port = acceptor.line()?;
    let connector = End::start([&port, &mode, &seed])?;
    if acceptor.line()? != "accepted" {
        return Err("the acceptor did not accept".to_owned());
    }
    thread::sleep(Duration::from_micros((mixed >> 20) % DELAY_US));
    let (mut victim, mut survivor) = if mixed & 1 == 0 { (acceptor, connector) } else { (connector, acceptor) };
    victim.process.kill().map_err(|error| error.to_string())?;
    let start = Instant::now();
    survivor.wait()?;
    let longest = start.elapsed();
    let read: u64 = survivor.line()?.parse().map_err(|_| "the survivor read other bytes".to_owned())?;
    counts.bytes += read;
    counts.without_bytes += u64::from(read == 0);
    counts.slow += u64::from(longest > SLOW);
    counts.longest = counts.longest.max(longest);
    Ok(())
}

/// One end, which is killed with its owner.
struct End {
    process: Child,
    output: BufReader<ChildStdout>,
}

impl End {
    fn start(arguments: [&str; 3]) -> Result<Self, String> {
        let started = || -> io::Result<Self> {
            let mut command = Command::new(env::current_exe()?);
            let mut process = command.arg("end").args(arguments).stdout(Stdio::piped()).spawn()?;
            let output = process.stdout.take().ok_or(io::ErrorKind::BrokenPipe)?;
            Ok(Self { process, output: BufReader::new(output) })
        };
        started().map_err(|error| format!("cannot start an end: {error}"))
    }

    fn line(&mut self) -> Result<String, String> {
        let mut line = String::new();
        self.output.read_line(&mut line).map_err(|error| error.to_string())?;
        Ok(line.trim_end().to_owned())
    }

    fn wait(&mut self) -> Result<(), String> {
        let end = Instant::now() + DEADLINE;
        while self.process.try_wait().map_err(|error| error.to_string())?.is_none() {
            if Instant::now() > end {
                return Err(format!("the survivor hangs for {DEADLINE:?}"));
            }
            thread::sleep(Duration::from_micros(200));
        }
        Ok(())
    }
}

impl Drop for End {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Runs one end until the stream ends. Returns the number of bytes that it read.
fn run_end(port: &str, mode: &str, seed: &str) -> Result<String, String> {
    let port: u16 = port.parse().map_err(|_| ARGUMENTS)?;
    let (mode, seed): (u64, u64) = (mode.parse().map_err(|_| ARGUMENTS)?, seed.parse().map_err(|_| ARGUMENTS)?);
    let mut config = WireConfig::default();
    if mode.is_multiple_of(2) {
        config = config.basic();
    }
    let policy = TransportPolicy::Wire(config);
    let is_acceptor = port == 0;
    let stream = if is_acceptor { accept(policy) } else { Stream::connect_with(address(port), &policy) };
    // The peer may be killed during the handshake.
    let Ok(stream) = stream else { return Ok("0".to_owned()) };
    let is_writer = [true, is_acceptor, !is_acceptor][(mode / 2 % 3) as usize];
    let (mut reading, mut writing) = stream.split();
    let writer = thread::spawn(move || {
        let mut position = 0;
        while is_writer && write_piece(&mut writing, seed, &mut position).is_ok() {}
        // The direction stays open until the peer is gone.
        writing
    });
    let (mut read, mut room) = (0, vec![0; 50_000]);
    while let Ok(bytes @ 1..) = reading.read(&mut room) {
        if (read..).zip(&room[..bytes]).any(|(position, byte)| *byte != byte_at(seed, position)) {
            return Ok("different".to_owned());
        }
        read += bytes as u64;
    }
    drop(writer.join().map_err(|_| "the writer panicked")?);
    Ok(read.to_string())
}

fn accept(policy: TransportPolicy) -> io::Result<Stream> {
    let listener = Listener::bind_with(address(0), policy)?;
    println!("{}", listener.local_addr()?.port());
    let (stream, _) = listener.accept()?;
    println!("accepted");
    stream.as_wire().map_or(Ok(()), |wire| wire.complete_start())?;
    Ok(stream)
}

fn address(port: u16) -> SocketAddr {
    ([127, 0, 0, 1], port).into()
}

fn write_piece(to: &mut impl Write, seed: u64, position: &mut u64) -> io::Result<()> {
    // Pieces from one byte to some frames.
    let bytes = 1 + byte_at(seed, *position ^ 77) as u64 * [1, 40, 700][(*position % 3) as usize];
    let piece: Vec<u8> = (*position..*position + bytes).map(|position| byte_at(seed, position)).collect();
    *position += bytes;
    to.write_all(&piece)
}

fn byte_at(seed: u64, position: u64) -> u8 {
    ((position ^ seed).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8
}
