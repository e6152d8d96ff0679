//! Kills of either end of streams on the wire: the other end does not hang, and what it reads is a prefix of what was written.
//!
//! ```sh
//! cargo run --release -p ddss-tests --bin wire_campaign -- [COUNT] [SEED]
//! cargo run --release -p ddss-tests --bin wire_campaign -- ledger
//! ```
//!
//! `ledger` moves bytes without a copy and prints the copies of both ends.
//!
//! Each end is a process. One of them is killed at a random moment, from the first byte of the handshake on.
#![forbid(unsafe_code)]
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "it tells what it found")]

use std::env;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{Shutdown, SocketAddr};
use std::process::{Child, ChildStdout, Command, ExitCode, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use ddss_stream::wire::WireConfig;
use ddss_stream::{Listener, Stream, TransportPolicy, WriteHalf};
use ddss_testkit::Random;

/// Time limit for the end of a process. A slower process counts as hanging.
const DEADLINE: Duration = Duration::from_secs(60);
/// Time from which an end counts as slow in the result.
const SLOW: Duration = Duration::from_secs(1);
const KILLS: u64 = 10_000;
/// Longest time from the accepted connection to the kill, in microseconds. A handshake takes some hundred.
const DELAY_US: u64 = 4_000;
/// Ways to move bytes: three plans, and which ends write.
const MODES: u64 = 9;
/// Minimum size of a write without a copy.
const IN_PLACE: u64 = 256 << 10;
/// Bytes whose copies are counted.
const LEDGER_BYTES: usize = 8 << 20;
const ARGUMENTS: &str = "usage: wire_campaign [COUNT] [SEED] | ledger";

fn main() -> ExitCode {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let result = match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["end", port, mode, seed] => run_end(port, mode, seed),
        ["ledger"] => run_ledger(),
        ["ledger", port] => run_ledger_end(port).map_err(|error| error.to_string()),
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
    let word = Random::new(seed << 32 ^ number).word();
    let (mode, seed) = ((number % MODES).to_string(), (word >> 40).to_string());
    let mut acceptor = End::start(["0", &mode, &seed])?;
    let port = acceptor.line()?;
    let connector = End::start([&port, &mode, &seed])?;
    if acceptor.line()? != "accepted" {
        return Err("the acceptor did not accept".to_owned());
    }
    thread::sleep(Duration::from_micros((word >> 20) % DELAY_US));
    let (mut victim, mut survivor) = if word & 1 == 0 { (acceptor, connector) } else { (connector, acceptor) };
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
        let [port, mode, seed] = arguments;
        Self::start_with(&["end", port, mode, seed])
    }

    fn start_with(arguments: &[&str]) -> Result<Self, String> {
        let started = || -> io::Result<Self> {
            let mut command = Command::new(env::current_exe()?);
            let mut process = command.args(arguments).stdout(Stdio::piped()).spawn()?;
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
    let config = WireConfig::default();
    let config = [config.basic(), config, config.zero_copy()][(mode % 3) as usize];
    let policy = TransportPolicy::Wire(config);
    let is_acceptor = port == 0;
    let stream = if is_acceptor { accept(policy) } else { Stream::connect_with(address(port), &policy) };
    // The peer may be killed during the handshake.
    let Ok(stream) = stream else { return Ok("0".to_owned()) };
    let is_writer = [true, is_acceptor, !is_acceptor][(mode / 3 % 3) as usize];
    let (mut reading, mut writing) = stream.split();
    let writer = thread::spawn(move || {
        let mut position = 0;
        let is_zero_copy = config.plan.zero_copy;
        while is_writer && write_piece(&mut writing, seed, &mut position, is_zero_copy).is_ok() {}
        // The direction stays open until the peer has disconnected.
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

/// Moves bytes from one process to another one; returns the copies of both.
fn run_ledger() -> Result<String, String> {
    let mut acceptor = End::start_with(&["ledger", "0"])?;
    let mut connector = End::start_with(&["ledger", &acceptor.line()?])?;
    for end in [&mut connector, &mut acceptor] {
        end.wait()?;
    }
    acceptor.line()?;
    Ok(format!("{} {}", connector.line()?, acceptor.line()?))
}

fn run_ledger_end(port: &str) -> io::Result<String> {
    let port: u16 = port.parse().map_err(|_| io::ErrorKind::InvalidInput)?;
    let policy = TransportPolicy::Wire(WireConfig::default().zero_copy());
    let bytes: Vec<u8> = (0..LEDGER_BYTES as u64).map(|position| byte_at(1, position)).collect();
    let mut stream = if port == 0 { accept(policy)? } else { Stream::connect_with(address(port), &policy)? };
    let ledger = |stream: &Stream| stream.as_wire().map(ddss_stream::wire::WireStream::ledger).unwrap_or_default();
    if port != 0 {
        let in_place = stream.write_zero_copy(&bytes)?;
        stream.shutdown(Shutdown::Write)?;
        return Ok(format!("in_place={in_place} send_copied={}", ledger(&stream).send_copied));
    }
    let mut read = vec![0; LEDGER_BYTES];
    stream.read_exact(&mut read)?;
    if read != bytes || stream.read(&mut [0])? != 0 {
        return Err(io::ErrorKind::InvalidData.into());
    }
    Ok(format!("read={} receive_copied={}", read.len(), ledger(&stream).receive_copied))
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

fn write_piece(to: &mut WriteHalf, seed: u64, position: &mut u64, is_zero_copy: bool) -> io::Result<()> {
    // Pieces have from one byte to a few frames. Every second piece in place has the bytes of a few reads.
    let factor = byte_at(seed, *position ^ 77) as u64;
    let least = if is_zero_copy && factor.is_multiple_of(2) { IN_PLACE } else { 1 };
    let bytes = least + factor * [1, 40, 700][(*position % 3) as usize];
    let piece: Vec<u8> = (*position..*position + bytes).map(|position| byte_at(seed, position)).collect();
    *position += bytes;
    if least == IN_PLACE { to.stream().write_zero_copy(&piece).map(|_| ()) } else { to.write_all(&piece) }
}

fn byte_at(seed: u64, position: u64) -> u8 {
    ((position ^ seed).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8
}
