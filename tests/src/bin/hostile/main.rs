//! Clients that keep to no rule, each a function with a name: `hostile attack NAME ..` is one such process;
//! `hostile list` says what there is; `hostile siege` measures what a good client of the same node notices.
//!
//! ```sh
//! cargo run --release -p ddss-tests --bin hostile -- siege [--seconds N] [--json]
//! ```
#![forbid(unsafe_code)]
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "it tells what it found")]

mod descriptors;
mod doors;
mod liar;
mod requests;
mod rings;
mod siege;

use ddss_core::SegmentId;
use liar::{Found, Target};
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// One attack.
struct Attack {
    name: &'static str,
    /// What it tries.
    tries: &'static str,
    /// What the daemon's log says of it; empty if there is nothing to be said.
    logged: &'static str,
    run: fn(&Target) -> Found,
}

macro_rules! attacks {
    ($($module:ident :: $name:ident: $tries:literal $(, $logged:literal)?;)*) => {
        /// All of them.
        const ATTACKS: &[Attack] = &[$(Attack {
            name: stringify!($name), tries: $tries, logged: concat!("" $(, $logged)?), run: $module::$name,
        }),*];
    };
}

attacks! {
    rings::tail_jumped: "a request from the future runs, or one that was never sent", "holds sequence";
    rings::tail_moved_back: "a request runs twice", "holds sequence";
    rings::slot_changed_after_publishing: "one request is checked and another one runs";
    rings::control_words_full_of_lies: "the daemon waits, or wakes somebody else";
    rings::header_overwritten: "the daemon believes what it once wrote there";
    rings::never_reaps: "the daemon's memory fills with answers";
    rings::completions_overwritten: "the daemon reads back what it answered";
    rings::all_lanes_at_once: "nobody else is looked at any more";
    rings::never_stops: "the same, with rings that are never empty";
    rings::dies_in_the_middle: "half a put stays, or its place is never free again";
    rings::stops_in_the_middle: "everybody waits for one who stands still";
    requests::unknown_opcodes: "an operation that nobody checked";
    requests::random_requests: "a mix that nobody thought of";
    requests::huge_lengths: "more is copied than there is";
    requests::offset_and_length_overflow: "a sum wraps around and lies inside again";
    requests::slots_outside_of_the_arena: "the daemon reads or writes beyond the client's own memory";
    requests::foreign_segment: "all operations on a segment that is closed to it";
    requests::guessed_segments: "an id that nobody told it names something";
    requests::foreign_lock_token: "somebody else's lock is used, or let go";
    requests::stale_generation: "the id of a released segment names the next one";
    requests::release_while_in_use: "memory is read that is somebody else's by now";
    requests::put_under_a_broken_lease: "a put under a lock that is over";
    requests::unaligned_atomics: "a word that lies in two lines";
    requests::names_of_nonsense: "a name that breaks lists and logs";
    requests::segments_of_absurd_size: "more memory than there is";
    requests::tables_of_lies: "ranges that reach where one range could not";
    requests::tables_changed_while_they_are_read: "a table that is checked and then another one is used";
    requests::lists_of_everything: "the names of closed segments";
    requests::waits_in_masses: "lines and lists without an end";
    requests::fills_the_memory: "nobody else finds room for as long as it stays";
    doors::hello_of_garbage: "a frame that nobody checked", "refused a client";
    doors::hello_split_by_the_byte: "the door is held open", "too short";
    doors::wrong_layout_version: "memory that the two sides take for different things", "speaks version";
    doors::hello_of_absurd_size: "the daemon makes memory without bound", "beyond the limits";
    doors::silent_guests: "nobody else gets to the door", "said no hello in time";
    doors::connects_without_end: "the same, faster";
    doors::attaches_without_end: "clients that were there leave something behind";
    doors::second_hello: "one socket, two clients";
    doors::packets_that_nobody_reads: "the daemon's memory fills with what it says";
    doors::half_closed_socket: "a client that is gone and stays";
    doors::looks_at_every_area: "memory that it may not read is shown, or can be written";
    doors::walks_through_the_folder: "the files are open";
    descriptors::passes_descriptors_in_masses: "the daemon runs out of descriptors";
    descriptors::memory_shrunk_and_grown: "the daemon touches memory that is not there";
    descriptors::memory_punched: "the same, by holes";
    descriptors::seals_added: "the daemon cannot write any more where it has to";
    descriptors::board_written: "all clients believe what one of them says";
    descriptors::bell_filled_and_emptied: "the daemon blocks on a bell, or never hears it again";
    descriptors::own_queue_removed: "the daemon tries a dead queue for ever", "tampered";
    descriptors::messages_announced_and_not_sent: "the daemon asks the kernel for nothing, for ever", "tampered";
    descriptors::queue_of_another_user: "answers to somebody else are thrown away";
}

/// `NAME SOCKET SECRET HELD TOKEN QUEUE [SECONDS]`: once, or again and again for so long.
fn attack(words: &[String]) -> Result<(), String> {
    let [name, socket, secret, held, token, queue, rest @ ..] = words else {
        return Err("an attack takes six words".to_owned());
    };
    let number = |word: &String| word.parse::<u64>().map_err(|error| format!("{word}: {error}"));
    let target = Target {
        socket: socket.into(),
        secret: SegmentId::from_bits(number(secret)?),
        held: SegmentId::from_bits(number(held)?),
        token: number(token)?,
        queue: queue.parse().map_err(|error| format!("{queue}: {error}"))?,
    };
    let end = Instant::now() + Duration::from_secs(rest.first().map_or(Ok(0), number)?);
    if name == siege::BURNS {
        while Instant::now() < end {}
        return Ok(());
    }
    let attack = ATTACKS.iter().find(|attack| attack.name == name).ok_or_else(|| format!("no attack {name}"))?;
    loop {
        (attack.run)(&target)?;
        if Instant::now() >= end {
            return Ok(());
        }
    }
}

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let ended = match words.first().map(String::as_str) {
        Some("attack") => attack(&words[1..]),
        Some("siege") => siege::siege(&words[1..]),
        Some("list") => {
            for Attack { name, tries, logged, .. } in ATTACKS {
                println!("{name}\t{tries}\t{logged}");
            }
            Ok(())
        }
        _ => Err("usage: hostile list | siege [--seconds N] [--json] | attack NAME SOCKET SECRET HELD TOKEN QUEUE"
            .to_owned()),
    };
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}
