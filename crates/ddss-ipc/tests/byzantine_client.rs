//! Byzantine clients and unauthenticated connections: they are refused or disconnected, without effect on other
//! clients.

#![allow(clippy::unwrap_used, reason = "a test")]

mod support;

use std::sync::atomic::Ordering;
use std::time::Duration;

use ddss_ipc::{LAYOUT_VERSION, Strategy, WaitClass, WaitOutcome};
use support::raw::{ByzantineClient, CONTROL, connect, hello, receive, refusal, send};
use support::{Echo, NEVER, NOW, TIMEOUT, attach, call};

#[test]
fn version_mismatch_names_both_versions() {
    // If this failed, a client of another build would map the memory wrongly instead of being refused.
    let echo = Echo::start();
    let socket = connect(&echo.path);
    send(&socket, &hello(77, 3, 1, 4096));
    let text = refusal(&receive(&socket).0);
    assert!(text.contains("the client version 77") && text.contains(&format!("version {LAYOUT_VERSION}")), "{text}");
}

#[test]
fn malformed_hello_is_refused_and_closed() {
    // If this failed, any local process could kill the daemon or exhaust its memory.
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
        let socket = connect(&echo.path);
        send(&socket, &frame);
        let (answer, passed) = receive(&socket);
        assert!(passed.is_empty());
        assert!(!refusal(&answer).is_empty());
        assert!(receive(&socket).0.is_empty(), "the connection is closed");
    }
    call(&mut attach(&echo.path, |_| {}).take_channel().unwrap(), WaitClass::Polling, 1);
    assert_eq!(echo.seen.attached.load(Ordering::Acquire), 1);
}

#[test]
fn hello_split_into_bytes_is_refused() {
    // If this failed, a client could keep a handshake open byte by byte.
    let echo = Echo::start();
    let socket = connect(&echo.path);
    for byte in hello(LAYOUT_VERSION, 3, 1, 4096) {
        if !send(&socket, &[byte]) {
            break;
        }
    }
    // The daemon never read the data after the first byte, which the kernel reports before the reply.
    let answer = std::iter::repeat_with(|| receive(&socket).0).take(3).find(|answer| !answer.is_empty()).unwrap();
    assert!(refusal(&answer).contains("too short"));
}

#[test]
fn silent_connections_do_not_block_attach() {
    // If this failed, one process with silent connections would keep all clients out.
    let echo = Echo::with(|config| config.handshake_timeout = Duration::from_millis(300));
    let silent: Vec<_> = (0..200).map(|_| connect(&echo.path)).collect();
    call(&mut attach(&echo.path, |_| {}).take_channel().unwrap(), WaitClass::Polling, 1);
    for socket in silent {
        assert!(receive(&socket).0.is_empty(), "closed without a reply");
    }
}

#[test]
fn client_with_invalid_sequence_is_disconnected() {
    // If this failed, a client could make the daemon run requests twice, or ones that it never sent.
    let echo = Echo::start();
    let honest = attach(&echo.path, |_| {});
    let mut channel = honest.take_channel().unwrap();
    let mut honest_calls = 0;
    for (already, slot, sequence) in [(0, 0, 500), (3, 3, 2), (1, 1, u32::MAX), (0, 0, 65)] {
        let violations = echo.seen.violations.load(Ordering::Acquire);
        let attacker = ByzantineClient::attach(&echo.path);
        for honest in 0..already {
            attacker.publish(honest, honest as u32 + 1, 7);
            while attacker.completion(honest) != honest as u32 + 1 {
                std::hint::spin_loop();
            }
        }
        honest_calls += already as u64;
        echo.wait_for("the honest calls", |seen| seen.answered.load(Ordering::Acquire) == honest_calls);
        attacker.publish(slot, sequence, 8);
        attacker.wait_for_disconnect();
        echo.wait_for("the violation", |seen| seen.violations.load(Ordering::Acquire) == violations + 1);
        call(&mut channel, WaitClass::Polling, 1);
        honest_calls += 1;
        echo.wait_for("the call", |seen| seen.answered.load(Ordering::Acquire) >= honest_calls);
        assert_eq!(echo.seen.answered.load(Ordering::Acquire), honest_calls, "a false request was served");
    }
}

#[test]
fn slot_changed_after_publish_is_ignored() {
    // If this failed, a client could pass a check with one request and run another.
    let echo = Echo::start();
    let attacker = ByzantineClient::attach(&echo.path);
    for round in 0..2000_u32 {
        let slot = round as usize % 64;
        attacker.publish(slot, round + 1, 7);
        // Overwrites all words behind the sequence's word while the service copies.
        for word in 1..8 {
            let offset = support::raw::RING + slot * 64 + word * 8;
            attacker.memory.store(offset, if word == 3 { NOW } else { u64::MAX }, Ordering::Relaxed).unwrap();
        }
        while attacker.completion(slot) != round + 1 {
            attacker.ring_doorbell();
        }
        // The content of the reply is the attacker's problem: it may have overwritten that as well.
    }
    echo.wait_for("the answers", |seen| seen.answered.load(Ordering::Acquire) >= 2000);
    assert_eq!(echo.seen.answered.load(Ordering::Acquire), 2000);
}

#[test]
fn invalid_control_words_do_not_affect_other_clients() {
    // If this failed, a client could make the daemon wait, or wake other clients.
    let echo = Echo::start();
    let attacker = ByzantineClient::attach(&echo.path);
    let honest = attach(&echo.path, |_| {});
    let mut channel = honest.take_channel().unwrap();
    for (round, word) in [u64::MAX, 1 << 32, 2 << 32 | 5, 3 << 32 | 1, 1 << 63].into_iter().enumerate() {
        for offset in (CONTROL..CONTROL + 64).step_by(8) {
            attacker.memory.store(offset, word, Ordering::Relaxed).unwrap();
        }
        // The header as well: the daemon never reads it.
        attacker.memory.store(0, word, Ordering::Relaxed).unwrap();
        attacker.memory.store(24, word, Ordering::Relaxed).unwrap();
        attacker.publish(round, round as u32 + 1, 7);
        while attacker.completion(round) != round as u32 + 1 {
            attacker.ring_doorbell();
        }
        for value in 0..100 {
            call(&mut channel, WaitClass::Sleeping, value);
        }
    }
    assert!(attacker.service_page.store(0, 1, Ordering::Relaxed).is_err(), "clients cannot write the service page");
}

#[test]
fn client_that_never_reaps_is_bounded_and_starves_no_client() {
    // If this failed, one client could fill the daemon's memory with replies.
    for strategy in Strategy::ALL {
        let echo = Echo::start();
        let glutton = attach(&echo.path, |options| options.strategy = strategy);
        let mut greedy = glutton.take_channel().unwrap();
        for value in 0..64 {
            greedy.submit([0, value, 0, NOW, 0, 0, 0, 0]).unwrap();
        }
        greedy.ring_doorbell();
        // Writes a full ring of requests beyond the window, straight into the memory.
        let attacker = ByzantineClient::attach(&echo.path);
        for lap in 0..3_u32 {
            for slot in 0..64_u32 {
                attacker.memory.store(support::raw::RING + slot as usize * 64 + 24, NEVER, Ordering::Relaxed).unwrap();
                let sequence = u64::from((lap * 64 + slot + 1) << 1);
                attacker.memory.store(support::raw::RING + slot as usize * 64, sequence, Ordering::Release).unwrap();
            }
            attacker.ring_doorbell();
            std::thread::sleep(Duration::from_millis(5));
        }
        let honest = attach(&echo.path, |options| options.strategy = strategy);
        let mut channel = honest.take_channel().unwrap();
        for value in 0..500 {
            call(&mut channel, WaitClass::Polling, value);
        }
        assert_eq!(greedy.wait(WaitClass::Polling, std::time::Instant::now() + TIMEOUT), WaitOutcome::Ready);
        echo.wait_for("all that may be answered", |seen| seen.answered.load(Ordering::Acquire) >= 64 + 500);
        let answered = echo.seen.answered.load(Ordering::Acquire);
        assert!((64 + 500..=64 + 500 + 64).contains(&answered), "{answered} requests taken");
    }
}

#[test]
fn client_that_removes_its_queue_is_disconnected() {
    // If this failed, a client could make the daemon retry a removed queue forever.
    if std::process::Command::new("ipcrm").arg("--version").output().is_err() {
        println!("skipped: no ipcrm to remove a message queue with");
        return;
    }
    let echo = Echo::start();
    let honest = attach(&echo.path, |options| options.strategy = Strategy::Rmq);
    let mut channel = honest.take_channel().unwrap();
    let rmq = 2;
    let (attacker, frame) = ByzantineClient::attach_as(&echo.path, rmq);
    let id = u64::from_ne_bytes(frame[40..48].try_into().unwrap()) - 1;
    let removed = std::process::Command::new("ipcrm").args(["-q", &id.to_string()]).status().unwrap();
    assert!(removed.success());
    attacker.publish(0, 1, 7);
    attacker.wait_for_disconnect();
    echo.wait_for("the violation", |seen| seen.violations.load(Ordering::Acquire) == 1);
    call(&mut channel, WaitClass::Polling, 1);
}

#[test]
fn client_that_announces_missing_messages_is_disconnected() {
    // If this failed, a client could make the daemon ask the kernel in vain in each of its rounds.
    let echo = Echo::start();
    let mq = 1;
    let (attacker, _) = ByzantineClient::attach_as(&echo.path, mq);
    attacker.memory.store(CONTROL + 8, 1 << 40, Ordering::Release).unwrap();
    attacker.ring_doorbell();
    attacker.wait_for_disconnect();
    echo.wait_for("the violation", |seen| seen.violations.load(Ordering::Acquire) == 1);
}
