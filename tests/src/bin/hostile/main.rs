//! Clients, strangers on the network and members of the cluster that keep to no rule, each a function with a name:
//! `hostile attack NAME ..` is one such process; `hostile list` says what there is; `hostile siege` measures what a good
//! client of the same node notices. With `--network` behind the first word it is all about attackers from the network.
//!
//! ```sh
//! cargo run --release -p ddss-tests --bin hostile -- siege [--network] [--seconds N] [--rounds N] [--only NAME] [--json]
//! ```
#![forbid(unsafe_code)]
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "it tells what it found")]

mod bare;
mod descriptors;
mod doors;
mod liar;
mod network;
mod requests;
mod rings;
mod siege;

use ddss_core::SegmentId;
use liar::{Found, Target};
use network::{MEMBERS, STRANGERS, Sortie};
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
    rings::waits_beside_without_end: "the daemon gives its core away after each answer";
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
    doors::hello_of_absurd_size: "the daemon makes memory without bound", "exceed the limits";
    doors::silent_guests: "nobody else gets to the door", "without a timely hello";
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

fn number(word: &String) -> Result<u64, String> {
    word.parse::<u64>().map_err(|error| format!("{word}: {error}"))
}

/// Once, or again and again for so many seconds.
fn repeat(seconds: Option<&String>, mut once: impl FnMut() -> Found) -> Found {
    let end = Instant::now() + Duration::from_secs(seconds.map_or(Ok(0), number)?);
    loop {
        once()?;
        if Instant::now() >= end {
            return Ok(());
        }
    }
}

/// `NAME SOCKET SECRET HELD TOKEN QUEUE [SECONDS]`: once, or again and again for so long.
fn attack(words: &[String]) -> Found {
    let [name, socket, secret, held, token, queue, rest @ ..] = words else {
        return Err("an attack takes six words".to_owned());
    };
    let target = Target {
        socket: socket.into(),
        secret: SegmentId::from_bits(number(secret)?),
        held: SegmentId::from_bits(number(held)?),
        token: number(token)?,
        queue: queue.parse().map_err(|error| format!("{queue}: {error}"))?,
    };
    if name == siege::BURNS {
        return repeat(rest.first(), || Ok(()));
    }
    let attack = ATTACKS.iter().find(|attack| attack.name == name).ok_or_else(|| format!("no attack {name}"))?;
    repeat(rest.first(), || (attack.run)(&target))
}

/// `NAME DATA CONTROL METRICS PLACE SECRET HELD TOKEN [SECONDS]`: the same from the network.
fn attack_from_afar(words: &[String]) -> Found {
    let [name, words @ ..] = words else { return Err("an attack has a name".to_owned()) };
    let (words, rest) = words.split_at(words.len().min(7));
    let target = network::Target::parse(words)?;
    if name == siege::BURNS {
        return repeat(rest.first(), || Ok(()));
    }
    let mut all = STRANGERS.iter().chain(MEMBERS);
    let sortie = all.find(|sortie| sortie.name == name).ok_or_else(|| format!("no attack {name}"))?;
    repeat(rest.first(), || (sortie.run)(&target))
}

/// A line each: the name, what it tries, what the log says of it (of those on this node) or who does it.
fn list(afar: bool) {
    if !afar {
        for Attack { name, tries, logged, .. } in ATTACKS {
            println!("{name}\t{tries}\t{logged}");
        }
        return;
    }
    for (who, sorties) in [("stranger", STRANGERS), ("member", MEMBERS)] {
        for Sortie { name, tries, .. } in sorties {
            println!("{name}\t{tries}\t{who}");
        }
    }
}

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let afar = words.get(1).is_some_and(|word| word == "--network");
    let rest = words.get(1 + usize::from(afar)..).unwrap_or_default();
    let ended = match words.first().map(String::as_str) {
        Some("attack") if afar => attack_from_afar(rest),
        Some("attack") => attack(rest),
        Some("siege") => siege::siege(rest, afar),
        Some("list") => {
            list(afar);
            Ok(())
        }
        _ => Err(
            "usage: hostile list [--network] | siege [--network] [--seconds N] [--rounds N] [--only NAME] [--json] | \
                  attack [--network] NAME WORDS [SECONDS]"
                .to_owned(),
        ),
    };
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}
