//! Clients that lie, and strangers at the door: they are told so or cut off, and nobody else notices.

#![allow(clippy::unwrap_used, reason = "a test")]

mod support;

use std::sync::atomic::Ordering;
use std::time::Duration;

use ddss_ipc::{LAYOUT_VERSION, Strategy, WaitClass, WaitOutcome};
use support::raw::{CONTROL, Liar, hear, hello, knock, refusal, say};
use support::{Echo, NEVER, NOW, PATIENCE, attach, call};

#[test]
fn another_version_is_told_both_versions() {
    // If this broke, a client of another build would map the memory wrongly instead of being turned away.
    let echo = Echo::start();
    let socket = knock(&echo.path);
    say(&socket, &hello(77, 3, 1, 4096));
    let text = refusal(&hear(&socket).0);
    assert!(text.contains("version 77") && text.contains(&format!("version {LAYOUT_VERSION}")), "{text}");
}

#[test]
fn a_hello_that_makes_no_sense_is_refused_and_closed() {
    // If this broke, any local process could take the daemon down or take its memory.
    let echo = Echo::start();
    let mut garbage = vec![
        vec![0xff; 64],
        vec![1],
        vec![0; 65_536],
        hello(LAYOUT_VERSION, 3, 1, 4096)[..63].to_vec(),
        hello(LAYOUT_VERSION, 9, 1, 4096).to_vec(),
        hello(LAYOUT_VERSION, 3, 0, 4096).to_vec(),
        hello(LAYOUT_VERSION, 3, 65, 4096).to_vec(),
        hello(LAYOUT_VERSION, 3, u32::MAX, u64::MAX).to_vec(),
        hello(LAYOUT_VERSION, 3, 1, 0).to_vec(),
        hello(LAYOUT_VERSION, 3, 1, 1 << 62).to_vec(),
    ];
    let mut oversized = hello(LAYOUT_VERSION, 3, 1, 4096).to_vec();
    oversized.resize(20_000, 0);
    garbage.push(oversized);
    for frame in garbage {
        let socket = knock(&echo.path);
        say(&socket, &frame);
        let (answer, passed) = hear(&socket);
        assert!(passed.is_empty());
        assert!(!refusal(&answer).is_empty());
        assert!(hear(&socket).0.is_empty(), "and then the end");
    }
    call(&mut attach(&echo.path, |_| {}).take_lane().unwrap(), WaitClass::Polling, 1);
    assert_eq!(echo.seen.attached.load(Ordering::Acquire), 1);
}

#[test]
fn a_hello_split_by_the_byte_is_refused_at_its_first() {
    // If this broke, a client could hold the door open byte by byte.
    let echo = Echo::start();
    let socket = knock(&echo.path);
    for byte in hello(LAYOUT_VERSION, 3, 1, 4096) {
        if !say(&socket, &[byte]) {
            break;
        }
    }
    // What it said after the first byte was never read, which the kernel tells it before it hears the answer.
    let answer = std::iter::repeat_with(|| hear(&socket).0).take(3).find(|answer| !answer.is_empty()).unwrap();
    assert!(refusal(&answer).contains("too short"));
}

#[test]
fn silent_guests_stand_in_nobodys_way() {
    // If this broke, one process that connects and says nothing would keep everybody out.
    let echo = Echo::with(|config| config.handshake_timeout = Duration::from_millis(300));
    let silent: Vec<_> = (0..200).map(|_| knock(&echo.path)).collect();
    call(&mut attach(&echo.path, |_| {}).take_lane().unwrap(), WaitClass::Polling, 1);
    for socket in silent {
        assert!(hear(&socket).0.is_empty(), "dropped without a word");
    }
}

#[test]
fn a_sequence_from_nowhere_is_cut_off() {
    // If this broke, a client could make the daemon run requests twice, or ones that it never sent.
    let echo = Echo::start();
    let friend = attach(&echo.path, |_| {});
    let mut lane = friend.take_lane().unwrap();
    let mut honest_calls = 0;
    for (already, slot, sequence) in [(0, 0, 500), (3, 3, 2), (1, 1, u32::MAX), (0, 0, 65)] {
        let offences = echo.seen.offences.load(Ordering::Acquire);
        let liar = Liar::attach(&echo.path);
        for honest in 0..already {
            liar.publish(honest, honest as u32 + 1, 7);
            while liar.completion(honest) != honest as u32 + 1 {
                std::hint::spin_loop();
            }
        }
        honest_calls += already as u64;
        echo.until("the honest calls", |seen| seen.answered.load(Ordering::Acquire) == honest_calls);
        liar.publish(slot, sequence, 8);
        liar.until_cut_off();
        echo.until("the offence", |seen| seen.offences.load(Ordering::Acquire) == offences + 1);
        call(&mut lane, WaitClass::Polling, 1);
        honest_calls += 1;
        echo.until("the call", |seen| seen.answered.load(Ordering::Acquire) >= honest_calls);
        assert_eq!(echo.seen.answered.load(Ordering::Acquire), honest_calls, "the lie was served");
    }
}

#[test]
fn a_slot_changed_after_publishing_changes_nothing() {
    // If this broke, a client could pass a check with one request and run another.
    let echo = Echo::start();
    let liar = Liar::attach(&echo.path);
    for round in 0..2000_u32 {
        let slot = round as usize % 64;
        liar.publish(slot, round + 1, 7);
        // All of it is overwritten at once, sequence included, while the service copies.
        for word in 1..8 {
            let offset = support::raw::RING + slot * 64 + word * 8;
            liar.memory.store(offset, if word == 3 { NOW } else { u64::MAX }, Ordering::Relaxed).unwrap();
        }
        while liar.completion(slot) != round + 1 {
            liar.ring();
        }
        // What the answer says is the liar's own doing: it may have written over that as well.
    }
    echo.until("the answers", |seen| seen.answered.load(Ordering::Acquire) >= 2000);
    assert_eq!(echo.seen.answered.load(Ordering::Acquire), 2000);
}

#[test]
fn control_words_full_of_lies_wake_nobody_else() {
    // If this broke, a client could make the daemon wait, or wake what is not its own.
    let echo = Echo::start();
    let liar = Liar::attach(&echo.path);
    let friend = attach(&echo.path, |_| {});
    let mut lane = friend.take_lane().unwrap();
    for (round, word) in [u64::MAX, 1 << 32, 2 << 32 | 5, 3 << 32 | 1, 1 << 63].into_iter().enumerate() {
        for offset in (CONTROL..CONTROL + 64).step_by(8) {
            liar.memory.store(offset, word, Ordering::Relaxed).unwrap();
        }
        // The header as well: the daemon never reads it.
        liar.memory.store(0, word, Ordering::Relaxed).unwrap();
        liar.memory.store(24, word, Ordering::Relaxed).unwrap();
        liar.publish(round, round as u32 + 1, 7);
        while liar.completion(round) != round as u32 + 1 {
            liar.ring();
        }
        for value in 0..100 {
            call(&mut lane, WaitClass::Sleeping, value);
        }
    }
    assert!(liar.board.store(0, 1, Ordering::Relaxed).is_err(), "the board is not a client's to write");
}

#[test]
fn who_never_reaps_is_served_no_more_and_starves_nobody() {
    // If this broke, one client could fill the daemon's memory with answers.
    for strategy in Strategy::ALL {
        let echo = Echo::start();
        let glutton = attach(&echo.path, |options| options.strategy = strategy);
        let mut greedy = glutton.take_lane().unwrap();
        for value in 0..64 {
            greedy.submit([0, value, 0, NOW, 0, 0, 0, 0]).unwrap();
        }
        greedy.ring();
        // Beyond its window, straight into the memory: a full ring of requests that the window does not allow.
        let liar = Liar::attach(&echo.path);
        for lap in 0..3_u32 {
            for slot in 0..64_u32 {
                liar.memory.store(support::raw::RING + slot as usize * 64 + 24, NEVER, Ordering::Relaxed).unwrap();
                let sequence = u64::from((lap * 64 + slot + 1) << 1);
                liar.memory.store(support::raw::RING + slot as usize * 64, sequence, Ordering::Release).unwrap();
            }
            liar.ring();
            std::thread::sleep(Duration::from_millis(5));
        }
        let friend = attach(&echo.path, |options| options.strategy = strategy);
        let mut lane = friend.take_lane().unwrap();
        for value in 0..500 {
            call(&mut lane, WaitClass::Polling, value);
        }
        assert_eq!(greedy.wait(WaitClass::Polling, std::time::Instant::now() + PATIENCE), WaitOutcome::Ready);
        echo.until("all that may be answered", |seen| seen.answered.load(Ordering::Acquire) >= 64 + 500);
        let answered = echo.seen.answered.load(Ordering::Acquire);
        assert!((64 + 500..=64 + 500 + 64).contains(&answered), "{answered} requests taken");
    }
}

#[test]
fn a_queue_removed_by_its_client_is_cut_off() {
    // If this broke, a client could make the daemon try a dead queue for ever.
    if std::process::Command::new("ipcrm").arg("--version").output().is_err() {
        println!("skipped: no ipcrm to remove a message queue with");
        return;
    }
    let echo = Echo::start();
    let friend = attach(&echo.path, |options| options.strategy = Strategy::Rmq);
    let mut lane = friend.take_lane().unwrap();
    let rmq = 2;
    let (liar, frame) = Liar::attach_as(&echo.path, rmq);
    let id = u64::from_ne_bytes(frame[40..48].try_into().unwrap()) - 1;
    let removed = std::process::Command::new("ipcrm").args(["-q", &id.to_string()]).status().unwrap();
    assert!(removed.success());
    liar.publish(0, 1, 7);
    liar.until_cut_off();
    echo.until("the offence", |seen| seen.offences.load(Ordering::Acquire) == 1);
    call(&mut lane, WaitClass::Polling, 1);
}

#[test]
fn messages_that_are_announced_and_not_sent_are_cut_off() {
    // If this broke, a client could make the daemon ask the kernel for nothing in each of its rounds.
    let echo = Echo::start();
    let mq = 1;
    let (liar, _) = Liar::attach_as(&echo.path, mq);
    liar.memory.store(CONTROL + 8, 1 << 40, Ordering::Release).unwrap();
    liar.ring();
    liar.until_cut_off();
    echo.until("the offence", |seen| seen.offences.load(Ordering::Acquire) == 1);
}
