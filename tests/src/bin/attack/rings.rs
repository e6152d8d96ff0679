//! Attacks on the rings and their control words.

use crate::byzantine_client::{AttackResult, ByzantineClient, CONTROL, RCQ, SLOTS, Target, expect_failure};
use ddss_core::{ArenaRange, Entry, Operation, Payload, PutConditions, Request, RequestId};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

fn null(id: u64) -> Entry {
    Request::new(RequestId(id), Operation::Null).encode()
}

/// Publishes a request under a false position, after some correct ones.
fn lies_about_its_tail(target: &Target, honest: u32, slot: usize, position: u32) -> AttackResult {
    let mut liar = ByzantineClient::attach(target)?;
    for id in 0..honest {
        liar.ask_raw(&null(id.into()))?;
    }
    liar.fill(0, slot, &null(99), position);
    liar.ring();
    liar.until_cut_off()?;
    liar.look_around()
}

pub(crate) fn jumps_tail_forward(target: &Target) -> AttackResult {
    lies_about_its_tail(target, 0, 0, 500)?;
    lies_about_its_tail(target, 0, 0, SLOTS + 1)?;
    lies_about_its_tail(target, 1, 1, u32::MAX >> 1)
}

pub(crate) fn moves_tail_back(target: &Target) -> AttackResult {
    lies_about_its_tail(target, 3, 3, 2)
}

pub(crate) fn changes_slot_after_publishing(target: &Target) -> AttackResult {
    let mut liar = ByzantineClient::attach(target)?;
    for round in 0..2000u32 {
        let position = liar.post(&null(round.into()));
        // Overwrites all words behind the sequence's word while the service copies.
        let line = 8192 + (round % SLOTS) as usize * 64;
        for word in 1..8 {
            liar.store(line + word * 8, target.secret.to_bits());
        }
        let end = Instant::now() + Duration::from_secs(20);
        while liar.completion(0, position).is_none() {
            expect_failure("a request was lost", Instant::now() > end)?;
        }
    }
    liar.look_around()
}

pub(crate) fn corrupts_control_words(target: &Target) -> AttackResult {
    let mut liar = ByzantineClient::attach(target)?;
    for word in [u64::MAX, 1 << 32, 2 << 32 | 5, 3 << 32 | 1, 1 << 63] {
        for at in (CONTROL..CONTROL + 64).step_by(8) {
            liar.store(at, word);
        }
        liar.ask_raw(&null(1))?;
    }
    Ok(())
}

/// Announces with each request that it yields on the daemon's core until the answer arrives, but does not yield.
pub(crate) fn yields_without_end(target: &Target) -> AttackResult {
    const WAITS_BESIDE: u64 = 3 << 32;
    let mut liar = ByzantineClient::attach(target)?;
    let end = Instant::now() + Duration::from_millis(300);
    for id in 0.. {
        if Instant::now() > end {
            break;
        }
        let position = liar.post(&null(id));
        liar.store(CONTROL, WAITS_BESIDE | u64::from(position));
        liar.wait(position)?;
    }
    liar.look_around()
}

pub(crate) fn overwrites_header(target: &Target) -> AttackResult {
    let mut liar = ByzantineClient::attach(target)?;
    for at in (0..CONTROL).step_by(8) {
        liar.store(at, u64::MAX);
    }
    liar.ask_raw(&null(1))?;
    liar.look_around()
}

pub(crate) fn never_reaps(target: &Target) -> AttackResult {
    let liar = ByzantineClient::attach(target)?;
    for lap in 0..4u32 {
        for slot in 0..SLOTS {
            liar.fill(0, slot as usize, &null(u64::from(slot)), lap * SLOTS + slot + 1);
        }
        liar.ring();
        std::thread::sleep(Duration::from_millis(10));
    }
    Ok(())
}

pub(crate) fn overwrites_completions(target: &Target) -> AttackResult {
    let mut liar = ByzantineClient::attach(target)?;
    let stop = AtomicBool::new(false);
    let memory = liar.memory.clone();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            // Only the words behind the sequence: the daemon cuts off a client with a wrong sequence.
            while !stop.load(Ordering::Relaxed) {
                for at in (8192..12288).step_by(8).filter(|at| at % 64 != 0) {
                    let _ = memory.store(at, u64::MAX, Ordering::Relaxed);
                }
            }
        });
        let asked = (0..500).try_for_each(|id| liar.ask_raw(&null(id)).map(drop));
        stop.store(true, Ordering::Relaxed);
        asked
    })
}

pub(crate) fn fills_all_channels(target: &Target) -> AttackResult {
    let (liar, _) = ByzantineClient::attach_as(target, RCQ, 64, 64 << 10)?;
    let end = Instant::now() + Duration::from_millis(300);
    let mut position = 1;
    while Instant::now() < end {
        for channel in 0..64 {
            for slot in 0..16u32 {
                let at = position + slot;
                liar.fill(channel, (at - 1) as usize % SLOTS as usize, &null(1), at);
            }
        }
        liar.ring();
        position += 16;
        let end = Instant::now() + Duration::from_secs(20);
        for channel in 0..64 {
            while liar.completion(channel, position - 1).is_none() {
                expect_failure("a lane is served no more", Instant::now() > end)?;
                std::thread::yield_now();
            }
        }
    }
    Ok(())
}

pub(crate) fn keeps_all_rings_full(target: &Target) -> AttackResult {
    const LANES: usize = 64;
    let (liar, _) = ByzantineClient::attach_as(target, RCQ, LANES as u32, 64 << 10)?;
    let end = Instant::now() + Duration::from_millis(500);
    std::thread::scope(|scope| {
        // A client that keeps the rings of its channels full.
        for part in 0..4 {
            let liar = &liar;
            scope.spawn(move || {
                let mut rings = [(0u32, 0u32); LANES / 4];
                while Instant::now() < end {
                    for (index, (asked, answered)) in rings.iter_mut().enumerate() {
                        let channel = part * LANES / 4 + index;
                        while *answered < *asked && liar.completion(channel, *answered + 1).is_some() {
                            *answered += 1;
                        }
                        while *asked - *answered < SLOTS {
                            *asked += 1;
                            liar.fill(channel, (*asked - 1) as usize % SLOTS as usize, &null(1), *asked);
                        }
                    }
                    liar.ring();
                }
            });
        }
    });
    Ok(())
}

/// Leaves puts in flight to a segment open to all users, at the moment when the client dies or stops.
fn leaves_puts(target: &Target) -> Result<ByzantineClient, String> {
    let mut liar = ByzantineClient::attach(target)?;
    let from = Payload::Arena(ArenaRange { slot: 0, bytes: 4096 });
    let put = Operation::Put { segment: target.held, offset: 0, from, conditions: PutConditions::default() };
    for id in 0..u64::from(SLOTS) {
        liar.post(&Request { timeout_us: 200_000, ..Request::new(RequestId(id), put) }.encode());
    }
    Ok(liar)
}

pub(crate) fn dies_during_put(target: &Target) -> AttackResult {
    leaves_puts(target).map(drop)
}

pub(crate) fn stops_during_put(target: &Target) -> AttackResult {
    let liar = leaves_puts(target)?;
    let own = rustix::process::getpid();
    rustix::process::kill_process(own, rustix::process::Signal::STOP).map_err(|error| error.to_string())?;
    // Another process has resumed this one.
    liar.look_around()
}
