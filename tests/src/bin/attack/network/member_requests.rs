//! Forbidden requests and false statements of an authenticated member.

use super::member::{ABSENT, Member, PRINCIPAL, Received, lookup, plain};
use super::target::{Target, random_bytes};
use crate::byzantine_client::{AttackResult, context, expect_failure};
use crate::entry_changes::{self, WrongChange};
use ddss_core::limits::{STAGING_BYTES, TRANSFER_BYTES_MAX, WAITERS_PER_SEGMENT_MAX};
use ddss_core::{
    ArenaRange, AtomicOp, Failure, Limit, LockRequest, LockToken, Message, Model, NodeId, Operation, Outcome, Payload,
    Permissions, Principal, PutConditions, ReadOptions, RemoteWindow, SegmentId, SegmentInfo, Spec, Storage, Timestamp,
    Version,
};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

const BYTES: u64 = 4096;
const TIMEOUT_US: u32 = 100_000;
/// Timeout of queued lock requests: longer than filling the queue takes.
const LINE_US: u32 = 10_000_000;
const STRANGER: Principal = Principal { uid: 9, gid: 9 };

fn call(operation: Operation) -> impl FnOnce(u64) -> Message {
    call_of(PRINCIPAL, operation)
}

fn call_of(principal: Principal, operation: Operation) -> impl FnOnce(u64) -> Message {
    move |step| Message::call(step, principal, TIMEOUT_US, operation)
}

/// Misuses the window of a segment of its own, and expects that the node ends the connection.
fn misuses(target: &Target, misuse: impl FnOnce(&mut Member, RemoteWindow)) -> AttackResult {
    let mut member = Member::authenticate(target)?;
    let (segment, window) = member.make(Spec::new(BYTES))?;
    misuse(&mut member, window);
    member.expect_disconnect()?;
    Member::authenticate(target)?.release(segment)
}

pub(super) fn reads_with_a_guessed_key(target: &Target) -> AttackResult {
    for key in [0, 1, 0x1234_5678, u32::MAX] {
        let mut member = Member::authenticate(target)?;
        member.read(key, 0, 4096);
        member.expect_disconnect()?;
    }
    Ok(())
}

pub(super) fn reads_beyond_its_window(target: &Target) -> AttackResult {
    misuses(target, |member, window| member.read(window.key, window.base + window.bytes - 8, 4096))
}

pub(super) fn reads_far_from_its_window(target: &Target) -> AttackResult {
    misuses(target, |member, window| member.read(window.key, window.base + (1 << 40), 4096))
}

pub(super) fn reads_at_wrapping_addresses(target: &Target) -> AttackResult {
    misuses(target, |member, window| member.read(window.key, u64::MAX - 63, 4096))
}

pub(super) fn reads_four_gigabytes(target: &Target) -> AttackResult {
    misuses(target, |member, window| member.read(window.key, window.base, u32::MAX))
}

pub(super) fn writes_what_it_may_only_read(target: &Target) -> AttackResult {
    misuses(target, |member, window| member.write(window.key, window.base, &[7; 64]))
}

pub(super) fn sends_atomics_to_a_window(target: &Target) -> AttackResult {
    misuses(target, |member, window| {
        let frame = super::frames::fetch_add(member.requests, window.key, window.base);
        super::target::send(&mut member.stream, &frame);
    })
}

pub(super) fn reads_what_it_may_only_write(target: &Target) -> AttackResult {
    let mut member = Member::authenticate(target)?;
    member.read(member.staging.key, member.staging.base, 4096);
    member.expect_disconnect()
}

pub(super) fn writes_beyond_its_staging_memory(target: &Target) -> AttackResult {
    let mut member = Member::authenticate(target)?;
    let staging = member.staging;
    member.write(staging.key, staging.base + staging.bytes - 8, &[7; 4096]);
    member.expect_disconnect()
}

pub(super) fn reads_a_segment_that_it_released(target: &Target) -> AttackResult {
    let mut member = Member::authenticate(target)?;
    let (segment, window) = member.make(Spec::new(BYTES))?;
    member.send_message(&plain(&call(Operation::Release { segment })(1), &[]))?;
    // The member closes its reading side and continues.
    member.send_message(&plain(&Message::Forgotten { segment }, &[]))?;
    member.ask(lookup, ABSENT)?;
    member.read(window.key, window.base, 64);
    member.expect_disconnect()
}

pub(super) fn reuses_key_of_earlier_connection(target: &Target) -> AttackResult {
    let mut member = Member::authenticate(target)?;
    let (segment, window) = member.make(Spec::new(BYTES))?;
    let mut next = Member::authenticate(target)?;
    next.read(window.key, window.base, 64);
    next.expect_disconnect()?;
    Member::authenticate(target)?.release(segment)
}

pub(super) fn puts_from_beyond_its_staging_memory(target: &Target) -> AttackResult {
    let mut member = Member::authenticate(target)?;
    member.send_message(&plain(&put(target.held, 0, 8, Some(STAGING_BYTES as u64 - 4))(1), &[]))?;
    member.expect_disconnect()
}

pub(super) fn puts_bytes_never_sent(target: &Target) -> AttackResult {
    let mut member = Member::authenticate(target)?;
    member.send_message(&plain(&put(target.held, 0, 400, None)(1), &[7; 16]))?;
    member.expect_disconnect()
}

pub(super) fn sends_more_bytes_than_a_buffer_holds(target: &Target) -> AttackResult {
    let length = Message::PUT_BYTES_MAX as u32 + 1;
    let (segment, staged, number) = (target.held, Message::NOT_STAGED, 0);
    let piece = Message::Piece { segment, epoch: 1, offset: 0, length, staged, number };
    let mut member = Member::authenticate(target)?;
    member.send_message(&plain(&piece, &vec![7; length as usize]))?;
    member.expect_disconnect()
}

pub(super) fn requests_what_no_client_may(target: &Target) -> AttackResult {
    let (segment, change, into) = (target.held, AtomicOp::Swap(7), ArenaRange { slot: 0, bytes: u32::MAX });
    for operation in [
        Operation::Atomic { segment, offset: 4, change, token: None },
        Operation::Get { segment, offset: 0, into, inline: false, options: ReadOptions::default() },
        Operation::Renew { segment, token: LockToken(1), lease_us: 0 },
    ] {
        let mut member = Member::authenticate(target)?;
        member.send_message(&plain(&call(operation)(1), &[]))?;
        member.expect_disconnect()?;
    }
    Ok(())
}

pub(super) fn announces_invalid_staging_window(target: &Target) -> AttackResult {
    for (base, bytes) in [(u64::MAX - 5, STAGING_BYTES as u64), (0, 0), (0, STAGING_BYTES as u64 - 1)] {
        let mut member = Member::greet(target)?;
        member.send_message(&plain(&Message::Welcome { staging: RemoteWindow { key: 1, base, bytes } }, &[]))?;
        member.expect_disconnect()?;
    }
    Ok(())
}

pub(super) fn sends_invalid_segment_info(target: &Target) -> AttackResult {
    let permissions = Permissions { owner: PRINCIPAL, mode: 0o666 };
    for (node, bytes, history_len) in [(3, 1 << 40, u32::MAX), (1, BYTES, 0), (2, BYTES, 0), (3, u64::MAX, 0)] {
        let info = SegmentInfo {
            segment: SegmentId::new(NodeId(node), 0, 1),
            bytes,
            model: Model::Strict,
            permissions,
            history_len,
            copies: 1,
            storage: Storage::Memory,
            row_bytes: 0,
        };
        let window = RemoteWindow { key: 1, base: u64::MAX - 5, bytes: 1 << 50 };
        let mut member = Member::authenticate(target)?;
        member.send_message(&plain(&Message::Found { step: 1, info, window }, &[]))?;
        member.expect_disconnect()?;
    }
    Ok(())
}

/// Puts bytes that are in the message, or staged at that offset.
fn put(segment: SegmentId, offset: u64, length: u32, staged: Option<u64>) -> impl FnOnce(u64) -> Message {
    conditional_put(segment, offset, ArenaRange::staged(staged, length), PutConditions::default())
}

fn conditional_put(
    segment: SegmentId,
    offset: u64,
    from: ArenaRange,
    conditions: PutConditions,
) -> impl FnOnce(u64) -> Message {
    call(Operation::Put { segment, offset, from: Payload::Arena(from), conditions })
}

fn get(segment: SegmentId, principal: Principal, offset: u64, length: u32) -> impl FnOnce(u64) -> Message {
    let (into, options) = (ArenaRange { slot: 0, bytes: length }, ReadOptions::default());
    call_of(principal, Operation::Get { segment, offset, into, inline: false, options })
}

pub(super) fn requests_ranges_beyond_a_segment(target: &Target) -> AttackResult {
    let mut member = Member::authenticate(target)?;
    let (segment, _) = member.make(Spec::new(BYTES))?;
    for (offset, length) in [(4090, 16), (u64::MAX, 1), (u64::MAX - 7, 16), (4096, 1), (4000, 1 << 20), (1 << 63, 1)] {
        member.is_denied(get(segment, PRINCIPAL, offset, length), &[])?;
        let short = length.min(400);
        member.is_denied(put(segment, offset, short, None), &vec![7; short as usize])?;
        member.is_denied(put(segment, offset, TRANSFER_BYTES_MAX as u32, Some(0)), &[])?;
        let (change, token, offset) = (AtomicOp::Swap(7), None, offset.max(4096) & !7);
        member.is_denied(call(Operation::Atomic { segment, offset, change, token }), &[])?;
    }
    member.release(segment)?;
    member.ends_served()
}

fn entry_put(segment: SegmentId, wrong: &WrongChange) -> impl FnOnce(u64) -> Message {
    let conditions = PutConditions { entry: Some(wrong.change), ..PutConditions::default() };
    let from = ArenaRange::staged(None, wrong.payload.len() as u32);
    conditional_put(segment, wrong.offset, from, conditions)
}

pub(super) fn changes_entries_outside_of_buckets(target: &Target) -> AttackResult {
    let mut member = Member::authenticate(target)?;
    let (map, _) = member.make(entry_changes::map())?;
    for wrong in entry_changes::wrong_changes() {
        member.is_denied(entry_put(map, &wrong), &wrong.payload)?;
    }
    let good = entry_changes::good_change();
    member.is_denied(entry_put(target.held, &good), &good.payload)?;
    match member.ask(entry_put(map, &good), &good.payload)? {
        Message::Ended { outcome: Outcome::Done, version: Version(1), .. } => {}
        other => return Err(format!("a good change is refused: {other:?}")),
    }
    member.release(map)?;
    member.ends_served()
}

pub(super) fn locks_what_is_no_row(target: &Target) -> AttackResult {
    const ROWS: u64 = 64;
    const ROW_BYTES: u64 = 16;
    let mut member = Member::authenticate(target)?;
    let (table, _) = member.make(Spec::table(ROWS, ROW_BYTES as u32))?;
    let (plain, _) = member.make(Spec::new(BYTES))?;
    let lock = |segment, offset| {
        let lock_request = LockRequest { shared: false, no_wait: true, lease_us: LINE_US, row_offset: Some(offset) };
        call(Operation::Lock { segment, lock_request })
    };
    for offset in [1, 8, ROW_BYTES - 1, ROWS * ROW_BYTES, ROWS * ROW_BYTES + 8, 1 << 63, u64::MAX - 7, u64::MAX] {
        member.is_denied(lock(table, offset), &[])?;
    }
    for (segment, offset) in [(plain, 0), (plain, ROW_BYTES), (target.held, 0), (target.secret, u64::MAX)] {
        member.is_denied(lock(segment, offset), &[])?;
    }
    let Message::Ended { outcome: Outcome::Done, word, .. } = member.ask(lock(table, ROW_BYTES), &[])? else {
        return Err("no lock of its own row".to_owned());
    };
    // The token of one row is not valid for another row.
    let conditions = PutConditions { token: Some(LockToken(word)), ..PutConditions::default() };
    for offset in [0, 2 * ROW_BYTES, (ROWS - 1) * ROW_BYTES] {
        member.is_denied(conditional_put(table, offset, ArenaRange::staged(None, 8), conditions), &[7; 8])?;
    }
    member.release(plain)?;
    member.release(table)?;
    member.ends_served()
}

pub(super) fn uses_foreign_lock(target: &Target) -> AttackResult {
    let mut member = Member::authenticate(target)?;
    let (segment, token) = (target.held, LockToken(target.token));
    member.is_denied(call(Operation::Unlock { segment, token }), &[])?;
    member.is_denied(call(Operation::Renew { segment, token, lease_us: 1 }), &[])?;
    let conditions = PutConditions { token: Some(token), ..PutConditions::default() };
    member.is_denied(conditional_put(segment, 0, ArenaRange::staged(None, 8), conditions), &[7; 8])?;
    member.ends_served()
}

pub(super) fn requests_for_unprivileged_user(target: &Target) -> AttackResult {
    let (mut member, segment, principal) = (Member::authenticate(target)?, target.secret, STRANGER);
    member.is_denied(|step| Message::Describe { step, principal, segment }, &[])?;
    member.is_denied(call_of(principal, Operation::Release { segment }), &[])?;
    member.is_denied(call_of(principal, Operation::Stat { segment, page: ArenaRange::NOWHERE }), &[])?;
    member.is_denied(call_of(principal, Operation::Break { segment }), &[])?;
    member.is_denied(get(segment, principal, 0, 64), &[])?;
    member.ends_served()
}

pub(super) fn names_absent_segments(target: &Target) -> AttackResult {
    let mut member = Member::authenticate(target)?;
    let (index, generation) = (target.secret.index(), target.secret.generation());
    for segment in [
        SegmentId::new(NodeId(3), index, generation),
        SegmentId::new(NodeId(1), index, generation.wrapping_sub(1)),
        SegmentId::new(NodeId(1), u32::MAX, 1),
        SegmentId::from_bits(0),
        SegmentId::from_bits(u64::MAX),
    ] {
        member.is_denied(get(segment, PRINCIPAL, 0, 8), &[])?;
        member.is_denied(put(segment, 0, 8, None), &[7; 8])?;
        member.is_denied(|step| Message::Describe { step, principal: PRINCIPAL, segment }, &[])?;
        member.is_denied(call(Operation::Release { segment }), &[])?;
    }
    member.ends_served()
}

pub(super) fn sends_unsolicited_answers(target: &Target) -> AttackResult {
    let mut member = Member::authenticate(target)?;
    let (version, timestamp) = (Version(9), Timestamp(9));
    for step in [0, 1, 1 << 20, u64::MAX] {
        let number = step;
        for message in [
            Message::Ended { step, outcome: Outcome::Done, version, timestamp, word: 7 },
            Message::Got { step, version, timestamp, length: 8, staged: 0, number },
            Message::Taken { number },
            Message::Listed { step, more: true },
            Message::Forget { segment: target.secret },
            Message::Forgotten { segment: target.secret },
        ] {
            member.send_message(&plain(&message, &[]))?;
        }
    }
    member.ends_served()
}

pub(super) fn sends_far_future_timestamps(target: &Target) -> AttackResult {
    let mut member = Member::authenticate(target)?;
    let (version, timestamp) = (Version(1), Timestamp(u64::MAX));
    let ended = Message::Ended { step: 1, outcome: Outcome::Done, version, timestamp, word: 0 };
    member.send_message(&plain(&ended, &[]))?;
    let (segment, _) = member.make(Spec::new(8))?;
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_micros() as u64);
    match member.ask(put(segment, 0, 8, None), &[7; 8])? {
        Message::Ended { outcome: Outcome::Done, timestamp, .. } => {
            expect_failure("the clock runs ahead", timestamp.micros() > now + 60_000_000)?;
        }
        other => return Err(format!("it does not put: {other:?}")),
    }
    member.release(segment)?;
    member.ends_served()
}

pub(super) fn floods_lock_queues(target: &Target) -> AttackResult {
    let mut member = Member::authenticate(target)?;
    let (segment, _) = member.make(Spec::new(8))?;
    let lock_request = LockRequest { shared: false, no_wait: false, lease_us: LINE_US, row_offset: None };
    let (many, mut heard, mut busy) = (WAITERS_PER_SEGMENT_MAX as u64 + 200, 0, 0);
    for step in 0..many {
        let lock = Message::call(1 << 40 | step, PRINCIPAL, LINE_US, Operation::Lock { segment, lock_request });
        member.send_message(&plain(&lock, &[]))?;
    }
    // Each request ends; those without room in the queue end immediately.
    while heard < many {
        match member.receive()? {
            Received::Message(Message::Ended { outcome, .. }) => {
                heard += 1;
                busy += u64::from(outcome == Outcome::Failed(Failure::Busy(Limit::Waiters)));
            }
            Received::Cut => return Err("those in line were cut off".to_owned()),
            _ => {}
        }
    }
    expect_failure("the line has no end", busy == 0)?;
    member.release(segment)?;
    member.ends_served()
}

pub(super) fn fills_segment_memory(target: &Target) -> AttackResult {
    let (mut member, mut made, mut refused) = (Member::authenticate(target)?, Vec::new(), false);
    for turn in 0..200 {
        let name =
            format!("fill/{turn}/{}", random_bytes(4).iter().map(|byte| format!("{byte:02x}")).collect::<String>());
        match member.allocate(&name, Spec::new(1 << 20))? {
            Message::Found { info, .. } => made.push(info.segment),
            Message::Ended { outcome, .. } => {
                expect_failure(&format!("refused by {outcome:?}"), outcome != Outcome::Failed(Failure::NoSpace))?;
                refused = true;
                break;
            }
            other => return Err(format!("{other:?}")),
        }
    }
    made.into_iter().try_for_each(|segment| member.release(segment))?;
    expect_failure("the memory of a node has no end", !refused)?;
    member.ends_served()
}

pub(super) fn requests_without_end(target: &Target) -> AttackResult {
    let mut member = Member::authenticate(target)?;
    let end = Instant::now() + Duration::from_millis(300);
    while Instant::now() < end {
        for step in 1..=64 {
            member.send_message(&plain(&lookup(step), ABSENT))?;
        }
        for _ in 0..64 {
            expect_failure("it was cut off for questions", matches!(member.receive()?, Received::Cut))?;
        }
    }
    member.ends_served()
}

pub(super) fn requests_and_never_reads(target: &Target) -> AttackResult {
    // The answers fill the node's socket and then its outbox. The node then reads no more requests, or ends the
    // connection.
    let mut member = Member::authenticate(target)?;
    member.stream.set_write_timeout(Some(Duration::from_millis(200))).map_err(context("a socket"))?;
    let end = Instant::now() + Duration::from_secs(1);
    while Instant::now() < end {
        let sealed = member.seal(&plain(&lookup(7), ABSENT))?;
        if !member.say_as_it_is(&sealed) {
            break;
        }
    }
    Member::authenticate(target)?.ends_served()
}

pub(super) fn reads_without_end(target: &Target) -> AttackResult {
    let mut member = Member::authenticate(target)?;
    let (segment, window) = member.make(Spec::new(64 << 10))?;
    let end = Instant::now() + Duration::from_millis(300);
    while Instant::now() < end {
        (0..16).for_each(|_| member.read(window.key, window.base, 32 << 10));
        let mut rest = 16 * (32 << 10);
        while rest > 0 {
            match member.receive()? {
                Received::Read(bytes) => rest -= bytes.len().min(rest),
                Received::Cut => return Err("it was cut off for what it may do".to_owned()),
                Received::Message(_) => {}
            }
        }
    }
    member.release(segment)?;
    member.ends_served()
}

pub(super) fn reconnects_without_end(target: &Target) -> AttackResult {
    (0..50).try_for_each(|_| Member::authenticate(target).map(drop))
}
