//! Attacks on the rings and on the words beside them.

use crate::liar::{CONTROL, Found, Liar, RCQ, SLOTS, Target, must_not};
use ddss_core::{ArenaRange, Entry, Operation, Payload, PutConditions, Request, RequestId};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

fn null(id: u64) -> Entry {
    Request::new(RequestId(id), Operation::Null).encode()
}

/// Publishes a request under a position from nowhere, after some honest ones.
fn lies_about_its_tail(target: &Target, honest: u32, slot: usize, position: u32) -> Found {
    let mut liar = Liar::attach(target)?;
    for id in 0..honest {
        liar.ask_raw(&null(id.into()))?;
    }
    liar.fill(0, slot, &null(99), position);
    liar.ring();
    liar.until_cut_off()?;
    liar.look_around()
}

pub(crate) fn tail_jumped(target: &Target) -> Found {
    lies_about_its_tail(target, 0, 0, 500)?;
    lies_about_its_tail(target, 0, 0, SLOTS + 1)?;
    lies_about_its_tail(target, 1, 1, u32::MAX >> 1)
}

pub(crate) fn tail_moved_back(target: &Target) -> Found {
    lies_about_its_tail(target, 3, 3, 2)
}

pub(crate) fn slot_changed_after_publishing(target: &Target) -> Found {
    let mut liar = Liar::attach(target)?;
    for round in 0..2000u32 {
        let position = liar.post(&null(round.into()));
        // All of it but the sequence is overwritten at once, while the service copies.
        let line = 8192 + (round % SLOTS) as usize * 64;
        for word in 1..8 {
            liar.store(line + word * 8, target.secret.to_bits());
        }
        let end = Instant::now() + Duration::from_secs(20);
        while liar.completion(0, position).is_none() {
            must_not("a request was lost", Instant::now() > end)?;
        }
    }
    liar.look_around()
}

pub(crate) fn control_words_full_of_lies(target: &Target) -> Found {
    let mut liar = Liar::attach(target)?;
    for word in [u64::MAX, 1 << 32, 2 << 32 | 5, 3 << 32 | 1, 1 << 63] {
        for at in (CONTROL..CONTROL + 64).step_by(8) {
            liar.store(at, word);
        }
        liar.ask_raw(&null(1))?;
    }
    Ok(())
}

/// Says with each request that it yields on the daemon's core until the answer is there, and does not.
pub(crate) fn waits_beside_without_end(target: &Target) -> Found {
    const WAITS_BESIDE: u64 = 3 << 32;
    let mut liar = Liar::attach(target)?;
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

pub(crate) fn header_overwritten(target: &Target) -> Found {
    let mut liar = Liar::attach(target)?;
    for at in (0..CONTROL).step_by(8) {
        liar.store(at, u64::MAX);
    }
    liar.ask_raw(&null(1))?;
    liar.look_around()
}

pub(crate) fn never_reaps(target: &Target) -> Found {
    let liar = Liar::attach(target)?;
    for lap in 0..4u32 {
        for slot in 0..SLOTS {
            liar.fill(0, slot as usize, &null(u64::from(slot)), lap * SLOTS + slot + 1);
        }
        liar.ring();
        std::thread::sleep(Duration::from_millis(10));
    }
    Ok(())
}

pub(crate) fn completions_overwritten(target: &Target) -> Found {
    let mut liar = Liar::attach(target)?;
    let stop = AtomicBool::new(false);
    let memory = liar.memory.clone();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            // Only the words behind the sequence: whoever lies about that is cut off.
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

pub(crate) fn all_lanes_at_once(target: &Target) -> Found {
    let (liar, _) = Liar::attach_as(target, RCQ, 64, 64 << 10)?;
    let end = Instant::now() + Duration::from_millis(300);
    let mut position = 1;
    while Instant::now() < end {
        for lane in 0..64 {
            for slot in 0..16u32 {
                let at = position + slot;
                liar.fill(lane, (at - 1) as usize % SLOTS as usize, &null(1), at);
            }
        }
        liar.ring();
        position += 16;
        let end = Instant::now() + Duration::from_secs(20);
        for lane in 0..64 {
            while liar.completion(lane, position - 1).is_none() {
                must_not("a lane is served no more", Instant::now() > end)?;
                std::thread::yield_now();
            }
        }
    }
    Ok(())
}

pub(crate) fn never_stops(target: &Target) -> Found {
    const LANES: usize = 64;
    let (liar, _) = Liar::attach_as(target, RCQ, LANES as u32, 64 << 10)?;
    let end = Instant::now() + Duration::from_millis(500);
    std::thread::scope(|scope| {
        // Each keeps the rings of its lanes full.
        for part in 0..4 {
            let liar = &liar;
            scope.spawn(move || {
                let mut rings = [(0u32, 0u32); LANES / 4];
                while Instant::now() < end {
                    for (index, (asked, answered)) in rings.iter_mut().enumerate() {
                        let lane = part * LANES / 4 + index;
                        while *answered < *asked && liar.completion(lane, *answered + 1).is_some() {
                            *answered += 1;
                        }
                        while *asked - *answered < SLOTS {
                            *asked += 1;
                            liar.fill(lane, (*asked - 1) as usize % SLOTS as usize, &null(1), *asked);
                        }
                    }
                    liar.ring();
                }
            });
        }
    });
    Ok(())
}

/// Puts under way into a segment that everybody may write, when it ends or stands still.
fn leaves_puts(target: &Target) -> Result<Liar, String> {
    let mut liar = Liar::attach(target)?;
    let from = Payload::Arena(ArenaRange { slot: 0, bytes: 4096 });
    let put = Operation::Put { segment: target.held, offset: 0, from, terms: PutConditions::default() };
    for id in 0..u64::from(SLOTS) {
        liar.post(&Request { timeout_us: 200_000, ..Request::new(RequestId(id), put) }.encode());
    }
    Ok(liar)
}

pub(crate) fn dies_in_the_middle(target: &Target) -> Found {
    leaves_puts(target).map(drop)
}

pub(crate) fn stops_in_the_middle(target: &Target) -> Found {
    let liar = leaves_puts(target)?;
    let own = rustix::process::getpid();
    rustix::process::kill_process(own, rustix::process::Signal::STOP).map_err(|error| error.to_string())?;
    // Somebody let it go on.
    liar.look_around()
}
