//! Attacks with descriptors: those from the daemon, those to the daemon, and message queues.

use crate::byzantine_client::{
    AttackResult, ByzantineClient, CONTROL, MQ, RMQ, Target, context, expect_failure, open_socket, receive_packet,
    send_with_descriptors, valid_hello,
};
use ddss_core::{ArenaRange, Operation, ReadOptions, Request, RequestId};
use ddss_ipc::{Access, SharedMemory};
use rustix::fs::{FallocateFlags, SealFlags};
use std::os::fd::AsFd;
use std::process::Command;

pub(crate) fn floods_descriptors(target: &Target) -> AttackResult {
    let own = std::io::stdin();
    let many = vec![own.as_fd(); 64];
    for _ in 0..50 {
        let socket = open_socket(target)?;
        send_with_descriptors(&socket, &valid_hello(), &many);
        expect_failure("a client that passes descriptors gets no reply", receive_packet(&socket).0.is_empty())?;
    }
    let mut liar = ByzantineClient::attach(target)?;
    // The kernel bounds descriptors in flight. The daemon must not keep those that it receives.
    for _ in 0..100 {
        send_with_descriptors(&liar.socket, &[7], &many);
    }
    liar.ask(Operation::Null).map(drop)
}

pub(crate) fn resizes_shared_memory(target: &Target) -> AttackResult {
    let mut liar = ByzantineClient::attach(target)?;
    for bytes in [0, 4096, 1 << 30] {
        let changed = rustix::fs::ftruncate(liar.memory.descriptor(), bytes);
        expect_failure(&format!("its memory was set to {bytes} bytes"), changed.is_ok())?;
    }
    liar.ask(Operation::Null).map(drop)
}

pub(crate) fn punches_holes_in_memory(target: &Target) -> AttackResult {
    let mut liar = ByzantineClient::attach(target)?;
    let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    for turn in 0..500u64 {
        let into = ArenaRange { slot: 0, bytes: 4096 };
        let get =
            Operation::Get { segment: target.held, offset: 0, into, inline: false, options: ReadOptions::default() };
        liar.post(&Request { timeout_us: 10_000, ..Request::new(RequestId(turn), get) }.encode());
        let _ = rustix::fs::fallocate(liar.memory.descriptor(), flags, 12288, 64 << 10);
        if turn % 32 == 31 {
            liar.wait(turn as u32 + 1)?;
        }
    }
    // This includes the rings: they become empty, and the attacker loses its own pending requests.
    let _ = rustix::fs::fallocate(liar.memory.descriptor(), flags, 0, 12288);
    liar.look_around()
}

pub(crate) fn adds_memfd_seals(target: &Target) -> AttackResult {
    let mut liar = ByzantineClient::attach(target)?;
    for seal in [SealFlags::WRITE, SealFlags::FUTURE_WRITE, SealFlags::SHRINK, SealFlags::SEAL] {
        let memory = rustix::fs::fcntl_add_seals(liar.memory.descriptor(), seal);
        let board = rustix::fs::fcntl_add_seals(liar.board.descriptor(), seal);
        expect_failure(&format!("{seal:?} was added"), memory.is_ok() || board.is_ok())?;
    }
    liar.ask(Operation::Null).map(drop)
}

pub(crate) fn writes_service_page(target: &Target) -> AttackResult {
    let liar = ByzantineClient::attach(target)?;
    let copy = || liar.board.descriptor().try_clone_to_owned().map_err(context("a copy"));
    let mapped = SharedMemory::from_descriptor(copy()?, 4096, Access::ReadWrite);
    expect_failure("the board can be mapped to be written", mapped.is_ok())?;
    expect_failure("the board can be written", rustix::io::pwrite(copy()?, &[7], 0).is_ok())?;
    let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    expect_failure("the board can be punched", rustix::fs::fallocate(copy()?, flags, 0, 4096).is_ok())?;
    expect_failure("the board can be shrunk", rustix::fs::ftruncate(copy()?, 0).is_ok())
}

pub(crate) fn fills_and_drains_eventfd(target: &Target) -> AttackResult {
    let mut liar = ByzantineClient::attach(target)?;
    for turn in 0..200 {
        let word = if turn % 2 == 0 { u64::MAX - 1 } else { 1 };
        let _ = rustix::io::write(&liar.wake, &word.to_ne_bytes());
        if turn % 3 == 0 {
            let _ = rustix::io::read(&liar.wake, &mut [0; 8]);
        }
        liar.ask(Operation::Null)?;
    }
    Ok(())
}

fn queue_of(frame: &[u8], at: usize) -> Result<i32, String> {
    let word = frame.get(at..at + 8).and_then(|word| word.try_into().ok()).map(u64::from_ne_bytes);
    word.and_then(|word| i32::try_from(word.checked_sub(1)?).ok()).ok_or_else(|| "no queue was named".to_owned())
}

fn remove(queue: i32) -> Result<bool, String> {
    let output = Command::new("ipcrm").args(["-q", &queue.to_string()]).output().map_err(context("ipcrm"))?;
    Ok(output.status.success())
}

pub(crate) fn removes_its_own_queue(target: &Target) -> AttackResult {
    let (mut liar, frame) = ByzantineClient::attach_as(target, RMQ, 1, 4096)?;
    expect_failure("its own queue is not its own", !remove(queue_of(&frame, 40)?)?)?;
    liar.post(&Request::new(RequestId(1), Operation::Null).encode());
    liar.until_cut_off()
}

pub(crate) fn announces_messages_without_sending(target: &Target) -> AttackResult {
    let (liar, _) = ByzantineClient::attach_as(target, MQ, 1, 4096)?;
    liar.store(CONTROL + 8, 1 << 40);
    liar.ring();
    liar.until_cut_off()
}

pub(crate) fn uses_queue_of_another_user(target: &Target) -> AttackResult {
    if rustix::process::geteuid().is_root() {
        // Root may remove any queue.
        return Ok(());
    }
    expect_failure("the queue of another was removed", remove(target.queue)?)
}
