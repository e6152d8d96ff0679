//! Attacks by byzantine clients, unauthenticated peers and byzantine cluster members.
//!
//! Each attack is a function with a name. `attack attack NAME ..` runs one; `attack list` lists them; `attack
//! interference` measures their effect on a legitimate client of the same node. `--network` behind the first word
//! selects the attacks from the network.
//!
//! ```sh
//! cargo run --release -p ddss-tests --bin attack -- interference [--network] [--seconds N] [--rounds N] [--only NAME]
//! [--json]
//! ```
#![forbid(unsafe_code)]
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "it tells what it found")]

mod bare_baseline;
mod byzantine_client;
mod descriptors;
mod entry_changes;
mod handshake;
mod interference;
mod network;
mod requests;
mod rings;
mod row_locks;

use byzantine_client::{AttackResult, Target};
use ddss_core::SegmentId;
use network::{MEMBERS, NetworkAttack, UNAUTHENTICATED};
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// One attack.
struct Attack {
    name: &'static str,
    /// Effect that the attack tries to have.
    tries: &'static str,
    /// Text that the daemon must log; empty if the attack need not be logged.
    logged: &'static str,
    run: fn(&Target) -> AttackResult,
}

macro_rules! attacks {
    ($($module:ident :: $name:ident: $tries:literal $(, $logged:literal)?;)*) => {
        /// All attacks.
        const ATTACKS: &[Attack] = &[$(Attack {
            name: stringify!($name), tries: $tries, logged: concat!("" $(, $logged)?), run: $module::$name,
        }),*];
    };
}

attacks! {
    rings::jumps_tail_forward: "a request from the future runs, or one that was never sent", "holds sequence";
    rings::moves_tail_back: "a request runs twice", "holds sequence";
    rings::changes_slot_after_publishing: "one request is checked and another one runs";
    rings::corrupts_control_words: "the daemon blocks, or wakes another client";
    rings::yields_without_end: "the daemon yields its core after each answer";
    rings::overwrites_header: "the daemon trusts its own header";
    rings::never_reaps: "the daemon's memory fills with answers";
    rings::overwrites_completions: "the daemon reads back what it answered";
    rings::fills_all_channels: "no other client is polled any more";
    rings::keeps_all_rings_full: "the same, with rings that are never empty";
    rings::dies_during_put: "half a put remains, or its slot is never freed";
    rings::stops_during_put: "other clients wait for a stopped one";
    requests::sends_unknown_opcodes: "an operation that is not checked";
    requests::sends_random_requests: "an untested combination";
    requests::sends_huge_lengths: "more is copied than there is";
    requests::overflows_offset_plus_length: "an address sum wraps into bounds";
    requests::names_memory_outside_the_arena: "the daemon reads or writes beyond the client's own memory";
    requests::uses_forbidden_segment: "all operations on a segment that is closed to it";
    requests::guesses_segment_ids: "a guessed id names a segment";
    requests::uses_foreign_lock_token: "a foreign lock is used or released";
    requests::uses_stale_generation: "the id of a released segment names the next one";
    requests::releases_segment_in_use: "memory of the next owner is read";
    requests::puts_under_expired_lease: "a put under an expired lock";
    requests::sends_unaligned_atomics: "an atomic across two cache lines";
    requests::sends_malformed_names: "a name that breaks lists and logs";
    requests::allocates_absurd_sizes: "more memory than there is";
    requests::sends_invalid_range_tables: "a range table reaches out of bounds";
    requests::changes_entries_outside_of_buckets: "a map's entry is written over another row, or beside one";
    requests::changes_payload_during_entry_change: "a key that changes after the search";
    requests::changes_range_tables_during_read: "a table that is checked and then another one is used";
    requests::lists_all_segments: "the names of closed segments";
    requests::floods_lock_queues: "queues without bound";
    row_locks::locks_what_is_no_row: "a lock beyond the table, or a token that opens other rows";
    row_locks::floods_locks_of_rows: "locks of rows that stop the daemon, or outlive their client";
    requests::fills_segment_memory: "no other client finds memory";
    handshake::sends_garbage_hello: "a frame that is not checked", "refused a client";
    handshake::sends_hello_byte_by_byte: "a connection slot is held by waiting", "too short";
    handshake::sends_wrong_layout_version: "the two sides disagree about the layout", "speaks layout version";
    handshake::requests_absurd_areas: "the daemon makes memory without bound", "exceed the limits";
    handshake::connects_silently: "no other client can connect", "without a timely hello";
    handshake::connects_without_end: "the same, faster";
    handshake::attaches_without_end: "clients that were there leave something behind";
    handshake::sends_second_hello: "one socket, two clients";
    handshake::never_reads_replies: "the daemon's memory fills with unread replies";
    handshake::half_closes_socket: "a closed connection keeps its client";
    handshake::maps_every_area: "memory that it may not read is shown, or can be written";
    handshake::opens_files_in_directory: "the files are open";
    descriptors::floods_descriptors: "the daemon runs out of descriptors";
    descriptors::resizes_shared_memory: "the daemon touches memory that is not there";
    descriptors::punches_holes_in_memory: "the same, by holes";
    descriptors::adds_memfd_seals: "the daemon cannot write any more where it has to";
    descriptors::writes_service_page: "one client forges the page that all clients read";
    descriptors::fills_and_drains_eventfd: "the daemon blocks on an eventfd, or is never woken again";
    descriptors::removes_its_own_queue: "the daemon tries a dead queue for ever", "is corrupt or removed";
    descriptors::announces_messages_without_sending: "the daemon asks the kernel for nothing, for ever", "is corrupt or removed";
    descriptors::uses_queue_of_another_user: "answers to another client are lost";
}

fn number(word: &String) -> Result<u64, String> {
    word.parse::<u64>().map_err(|error| format!("{word}: {error}"))
}

/// Runs an attack once, or repeatedly for a number of seconds.
fn repeat(seconds: Option<&String>, mut once: impl FnMut() -> AttackResult) -> AttackResult {
    let end = Instant::now() + Duration::from_secs(seconds.map_or(Ok(0), number)?);
    loop {
        once()?;
        if Instant::now() >= end {
            return Ok(());
        }
    }
}

/// Runs `NAME SOCKET SECRET HELD TOKEN QUEUE [SECONDS]`: once, or repeatedly for this many seconds.
fn attack(words: &[String]) -> AttackResult {
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
    if name == interference::BURNS {
        return repeat(rest.first(), || Ok(()));
    }
    let attack = ATTACKS.iter().find(|attack| attack.name == name).ok_or_else(|| format!("no attack {name}"))?;
    repeat(rest.first(), || (attack.run)(&target))
}

/// Runs `NAME DATA CONTROL METRICS PLACE SECRET HELD TOKEN [SECONDS]` from the network, as `attack` does locally.
fn attack_network(words: &[String]) -> AttackResult {
    let [name, words @ ..] = words else { return Err("an attack has a name".to_owned()) };
    let (words, rest) = words.split_at(words.len().min(7));
    let target = network::Target::parse(words)?;
    if name == interference::BURNS {
        return repeat(rest.first(), || Ok(()));
    }
    let mut all = UNAUTHENTICATED.iter().chain(MEMBERS);
    let sortie = all.find(|sortie| sortie.name == name).ok_or_else(|| format!("no attack {name}"))?;
    repeat(rest.first(), || (sortie.run)(&target))
}

/// Prints a line for each attack: the name, the intended effect, and the log text (local attacks) or the kind of
/// attacker.
fn list(is_network: bool) {
    if !is_network {
        for Attack { name, tries, logged, .. } in ATTACKS {
            println!("{name}\t{tries}\t{logged}");
        }
        return;
    }
    for (who, sorties) in [("unauthenticated", UNAUTHENTICATED), ("member", MEMBERS)] {
        for NetworkAttack { name, tries, .. } in sorties {
            println!("{name}\t{tries}\t{who}");
        }
    }
}

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let is_network = words.get(1).is_some_and(|word| word == "--network");
    let rest = words.get(1 + usize::from(is_network)..).unwrap_or_default();
    let ended = match words.first().map(String::as_str) {
        Some("attack") if is_network => attack_network(rest),
        Some("attack") => attack(rest),
        Some("interference") => interference::measure(rest, is_network),
        Some("list") => {
            list(is_network);
            Ok(())
        }
        _ => Err(
            "usage: attack list [--network] | interference [--network] [--seconds N] [--rounds N] [--only NAME] [--json] | \
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
