//! Streams on the wire beside bare TCP on loopback: latency, bandwidth, messages, copies (Figures 2 and 3 of the paper).
//!
//! ```sh
//! cargo bench -p ddss-benches --bench wire -- [--rounds N] [--quick] [--csv FILE]
//! ```
//!
//! In each round every stream takes its turn, in an order that rotates; a ratio is the median of the rounds' ratios. So
//! temporary load affects all of them. On a machine that does other work, the processor time of both ends together
//! varies less. Each end has a core.
//!
//! `name` is `tcp` (the limit), `basic`, `basic-batched` (one system call for all messages of a call), `enhanced`, or
//! `enhanced-holding` (small writes wait for an acknowledgement); WAIT is `framed` with
//! markers and checksums, `plain` without. `ping-pong` is half a round trip, `stream` a write in one direction, `counts` what is counted.
#![forbid(unsafe_code)]
#![allow(clippy::print_stdout, reason = "the rows are its result")]

mod rows;
mod stream;

use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::thread;
use std::time::{Duration, Instant};

use ddss_benches::harness::{Cores, Options, pin};
use rustix::time::{ClockId, clock_gettime};

use rows::{Counts, Rows, Times, print_head_of_counts, quantile};
use stream::{Kind, Stream};

/// Sizes of the messages whose latency is measured.
const MESSAGE_SIZES: [usize; 5] = [64, 1 << 10, 4 << 10, 16 << 10, 64 << 10];
/// Sizes of the writes whose bandwidth is measured.
const WRITE_SIZES: [usize; 6] = [64, 1 << 10, 4 << 10, 16 << 10, 64 << 10, 256 << 10];
/// Size of the writes whose copies are counted.
const COUNTED_BYTES: usize = 64 << 10;
/// Bytes of a small message.
const SMALL_BYTES: usize = 64;
/// Pause of the slow receiver between two reads.
const PAUSE: Duration = Duration::from_micros(200);
/// Bytes that the slow receiver reads at a time.
const SLOW_READ_BYTES: usize = 1 << 10;
/// Number of rounds by default, and in a quick run.
const ROUNDS: usize = 21;
const QUICK_ROUNDS: usize = 3;

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
    elapsed: Duration,
    sender: Stream,
    receiver: Stream,
}

/// Placement of the two ends, and the amount of measurement.
struct Plan {
    cores: Cores,
    rounds: usize,
    /// Divisor of all counts: `cargo test --benches` runs everything once, and the numbers mean nothing then.
    scale: usize,
}

impl Plan {
    /// Runs the other end on its core.
    fn spawn<T: Send + 'static>(
        &self,
        end: impl FnOnce() -> io::Result<T> + Send + 'static,
    ) -> thread::JoinHandle<io::Result<T>> {
        let core = self.cores.service;
        thread::spawn(move || {
            pin(core)?;
            end()
        })
    }

    /// Moves `writes` blocks of `size` bytes to a receiver that reads up to `read` bytes at a time.
    fn transfer(
        &self,
        kind: Kind,
        size: usize,
        writes: usize,
        read: usize,
        pause: Option<Duration>,
    ) -> io::Result<Transfer> {
        let (mut sender, receiver) = Stream::pair(kind)?;
        let block = vec![7; size];
        let begin = Instant::now();
        let reader = self.spawn(move || drain(receiver, read, pause));
        for _ in 0..writes {
            sender.write_all(&block)?;
        }
        sender.shutdown()?;
        let (bytes, receiver) = reader.join().map_err(|_| io::Error::other("the reader panicked"))??;
        let elapsed = begin.elapsed();
        assert_eq!(bytes, (size * writes) as u64, "bytes were lost");
        Ok(Transfer { elapsed, sender, receiver })
    }

    /// Returns the time of round trips of messages of `size` bytes.
    fn ping_pong(&self, kind: Kind, size: usize, trips: usize) -> io::Result<Duration> {
        let (mut here, mut there) = Stream::pair(kind)?;
        let echo = self.spawn(move || {
            let mut message = vec![0; size];
            for _ in 0..trips {
                there.read_exact(&mut message)?;
                there.write_all(&message)?;
            }
            // No later call sends what waits for an acknowledgement.
            there.flush()?;
            Ok(there)
        });
        let mut message = vec![1; size];
        let begin = Instant::now();
        for _ in 0..trips {
            here.write_all(&message)?;
            here.read_exact(&mut message)?;
        }
        let elapsed = begin.elapsed();
        drop(echo.join().map_err(|_| io::Error::other("the echo panicked"))??);
        Ok(elapsed)
    }

    /// Measures all kinds in rotating order, and writes a row for each. `measure` returns the time of `operations`
    /// operations.
    fn compare(
        &self,
        rows: &mut Rows,
        op: &str,
        size: usize,
        operations: usize,
        mut measure: impl FnMut(Kind) -> io::Result<Duration>,
    ) -> io::Result<()> {
        let (mut each, mut cpu) = (BTreeMap::<Kind, Vec<f64>>::new(), BTreeMap::<Kind, Vec<f64>>::new());
        let per_operation = |seconds: f64| seconds * 1e6 / operations as f64;
        for round in 0..self.rounds {
            for turn in 0..Kind::ALL.len() {
                let kind = Kind::ALL[(turn + round) % Kind::ALL.len()];
                let begin = processor_s();
                each.entry(kind).or_default().push(per_operation(measure(kind)?.as_secs_f64()));
                cpu.entry(kind).or_default().push(per_operation(processor_s() - begin));
            }
        }
        for kind in Kind::ALL {
            let ratio = |of: &BTreeMap<Kind, Vec<f64>>, to: Kind| {
                let ratios: Vec<f64> = of[&kind].iter().zip(&of[&to]).map(|(own, other)| own / other).collect();
                quantile(&ratios, 0.5)
            };
            let bases = [Kind::Tcp, kind.basic()];
            let times = Times {
                each_us: each[&kind].clone(),
                cpu_us: quantile(&cpu[&kind], 0.5),
                rate_of: bases.map(|base| 1.0 / ratio(&each, base)),
                cpu_of: bases.map(|base| ratio(&cpu, base)),
            };
            rows.times(op, size, kind, &times)?;
        }
        Ok(())
    }

    /// Counts quantities that do not depend on time: copies and modelled cache traffic for each byte, and messages for
    /// each small write.
    fn count(&self, rows: &mut Rows, writes: usize) -> io::Result<()> {
        print_head_of_counts();
        for kind in Kind::ALL {
            let large = self.transfer(kind, COUNTED_BYTES, 64, COUNTED_BYTES, None)?;
            let (Some(sender), Some(receiver)) = (large.sender.wire(), large.receiver.wire()) else { continue };
            let small = self.transfer(kind, SMALL_BYTES, writes, SLOW_READ_BYTES, Some(PAUSE))?;
            let messages = small.sender.wire().map_or(0, |wire| wire.messages());
            let (sent, received) = (sender.ledger(), receiver.ledger());
            let of = |bytes: u64, all: u64| bytes as f64 / all as f64;
            let counts = Counts {
                copies: [of(sent.send_copied, sent.written), of(received.receive_copied, received.read)],
                cache: [of(sent.send_cache_bytes(), sent.written), of(received.receive_cache_bytes(), received.read)],
                messages: f64::from(messages) / writes as f64,
            };
            rows.counts(COUNTED_BYTES, kind, &counts)?;
        }
        Ok(())
    }
}

/// Returns the seconds of processor time that this process has used.
fn processor_s() -> f64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

fn main() -> io::Result<()> {
    let options = Options::parse(std::env::args_os().skip(1));
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let wanted = arguments.windows(2).find(|pair| pair[0] == "--rounds").and_then(|pair| pair[1].parse().ok());
    let usual = if options.quick { QUICK_ROUNDS } else { ROUNDS };
    let (rounds, scale) = if options.bench { (wanted.unwrap_or(usual).max(1), 1) } else { (1, 64) };
    let plan = Plan { cores: Cores::of_this_machine(), rounds, scale };
    pin(plan.cores.client)?;
    let mut rows = Rows::start(options.csv_file("wire").as_deref(), rounds)?;
    for size in MESSAGE_SIZES {
        let most = if size < 16 << 10 { 4000 } else { 1000 };
        let trips = most / plan.scale;
        // Each trip is a message in each direction.
        plan.compare(&mut rows, "ping-pong", size, 2 * trips, |kind| plan.ping_pong(kind, size, trips))?;
    }
    for size in WRITE_SIZES {
        // Small writes cost a system call each: fewer bytes take as long.
        let bytes = match size {
            ..1024 => 4 << 20,
            1024..16_384 => 16 << 20,
            _ => 64 << 20,
        };
        let writes = bytes / size / plan.scale + 1;
        let send = |kind| Ok(plan.transfer(kind, size, writes, 256 << 10, None)?.elapsed);
        plan.compare(&mut rows, "stream", size, writes, send)?;
    }
    plan.count(&mut rows, 200_000 / plan.scale)
}
