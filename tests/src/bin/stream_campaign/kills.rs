//! Kills of either end, which forks or takes signals meanwhile: the other end never hangs, and it reads a prefix of what was written, with all that `write` took.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use ddss_testkit::Random;
use rustix::process::Signal;

use crate::end::{End, FAULTS, MESSAGES, MODES, SIGNALS};
use crate::{DEADLINE, Programs};

/// Pairs of processes at a time.
const PAIRS: u64 = 2;
/// One in this many kills comes before both ends have left TCP.
const EARLY: u64 = 8;
/// Longest time from the start of the transfer to the kill, in microseconds.
const DELAY_US: u64 = 3_000;
/// The same where directions change between TCP and their rings.
const DELAY_OF_MESSAGES_US: u64 = 30_000;

/// Bytes of TCP as which the kernel counts the end of a connection.
const END_BYTES: u64 = 1;

/// Signals that end a victim, if signals are among its faults.
const ENDS: [Signal; 3] = [Signal::KILL, Signal::TERM, Signal::SEGV];

/// Sums over the survivors.
#[derive(Default)]
struct Counts {
    kills: u64,
    shared: u64,
    /// Streams among them that went on by TCP.
    by_tcp: u64,
    bytes: u64,
    longest: Duration,
}

/// Kills `count` processes. Returns a line with what was found.
pub(crate) fn run(programs: &Programs, count: u64, seed: u64) -> Result<String, String> {
    let (next, counts) = (AtomicU64::new(0), Mutex::new(Counts::default()));
    std::thread::scope(|scope| {
        let work = || -> Result<(), String> {
            loop {
                let number = next.fetch_add(1, Ordering::Relaxed);
                if number >= count {
                    return Ok(());
                }
                let found = kill_one(programs, number, seed);
                let found = found.map_err(|error| format!("kill {number} of seed {seed}: {error}"))?;
                let mut sum = counts.lock().map_err(|_| "a thread failed")?;
                sum.kills += 1;
                sum.shared += found.shared;
                sum.by_tcp += found.by_tcp;
                sum.bytes += found.bytes;
                sum.longest = sum.longest.max(found.longest);
            }
        };
        let workers: Vec<_> = (0..PAIRS).map(|_| scope.spawn(work)).collect();
        workers.into_iter().try_for_each(|worker| worker.join().map_err(|_| "a thread failed".to_owned())?)
    })?;
    let Counts { kills, shared, by_tcp, bytes, longest } = counts.into_inner().map_err(|_| "a thread failed")?;
    if shared < kills / 2 {
        return Err(format!("only {shared} of {kills} streams left TCP"));
    }
    // Messages larger than a ring are one way to move bytes of eight: most of the others say what arrives by the ring alone.
    if by_tcp == 0 || by_tcp > shared / 2 {
        return Err(format!("{by_tcp} of {shared} streams went on by TCP"));
    }
    let longest = longest.as_millis();
    Ok(format!("kills={kills} shared={shared} by_tcp={by_tcp} bytes={bytes} longest_end_ms={longest}"))
}

fn kill_one(programs: &Programs, number: u64, seed: u64) -> Result<Counts, String> {
    let word = Random::new(seed << 32 ^ number).word();
    let (kind @ [mode, faults], is_early) = ([number % MODES, number / MODES % FAULTS], word.is_multiple_of(EARLY));
    let is_acceptor_killed = word >> 8 & 1 == 0;
    let mut acceptor = End::start(programs, "accept", "0", kind, word >> 16, 0)?;
    let port = acceptor.line("PORT")?;
    let mut connector = End::start(programs, "connect", &port, kind, word >> 16, 0)?;
    for end in [&mut acceptor, &mut connector] {
        end.line("CONNECTED")?;
        if !is_early {
            end.line("READY")?;
        }
    }
    let delay_us = if mode == MESSAGES { DELAY_OF_MESSAGES_US } else { DELAY_US };
    std::thread::sleep(Duration::from_micros((word >> 20) % delay_us));
    let (victim, survivor) =
        if is_acceptor_killed { (&mut acceptor, &mut connector) } else { (&mut connector, &mut acceptor) };
    let has_signals = faults & SIGNALS != 0;
    if has_signals {
        survivor.process.signal(Signal::STOP)?;
    }
    victim.process.signal(if has_signals { ENDS[(word >> 10) as usize % ENDS.len()] } else { Signal::KILL })?;
    let start = Instant::now();
    victim.process.wait(DEADLINE)?;
    if has_signals {
        survivor.process.signal(Signal::CONT)?;
    }
    let report = survivor.finish().map_err(|error| format!("mode {mode}, faults {faults}: {error}"))?;
    let (longest, received) = (start.elapsed(), report.received);
    let (is_shared, is_by_tcp) = (report.is_shared && !is_early, report.by_tcp > END_BYTES);
    // On TCP the kernel itself drops bytes of a killed process: that had not read everything, or whose peer goes on writing.
    if is_shared && !is_by_tcp && received < victim.written() {
        return Err(format!(
            "mode {mode}, faults {faults}: {received} bytes arrived of {} that were written",
            victim.written()
        ));
    }
    let by_tcp = u64::from(is_shared && is_by_tcp);
    Ok(Counts { kills: 1, shared: is_shared.into(), by_tcp, bytes: received, longest })
}
