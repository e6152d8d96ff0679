//! Attacks with descriptors: those that it was given, those that it passes, and message queues.

use crate::liar::{CONTROL, Found, Liar, MQ, RMQ, Target, good_hello, hear, knock, must_not, say_with, wrong};
use ddss_core::{ArenaRange, Operation, ReadOptions, Request, RequestId};
use ddss_ipc::{Access, SharedMemory};
use rustix::fs::{FallocateFlags, SealFlags};
use std::os::fd::AsFd;
use std::process::Command;

pub(crate) fn passes_descriptors_in_masses(target: &Target) -> Found {
    let own = std::io::stdin();
    let many = vec![own.as_fd(); 64];
    for _ in 0..50 {
        let socket = knock(target)?;
        say_with(&socket, &good_hello(), &many);
        must_not("who passes descriptors is left hanging", hear(&socket).0.is_empty())?;
    }
    let mut liar = Liar::attach(target)?;
    // The kernel bounds what is on its way; whatever it takes the daemon must not.
    for _ in 0..100 {
        say_with(&liar.socket, &[7], &many);
    }
    liar.ask(Operation::Null).map(drop)
}

pub(crate) fn memory_shrunk_and_grown(target: &Target) -> Found {
    let mut liar = Liar::attach(target)?;
    for bytes in [0, 4096, 1 << 30] {
        let changed = rustix::fs::ftruncate(liar.memory.descriptor(), bytes);
        must_not(&format!("its memory was set to {bytes} bytes"), changed.is_ok())?;
    }
    liar.ask(Operation::Null).map(drop)
}

pub(crate) fn memory_punched(target: &Target) -> Found {
    let mut liar = Liar::attach(target)?;
    let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    for turn in 0..500u64 {
        let into = ArenaRange { slot: 0, bytes: 4096 };
        let get = Operation::Get { segment: target.held, offset: 0, into, inline: false, look: ReadOptions::default() };
        liar.post(&Request { timeout_us: 10_000, ..Request::new(RequestId(turn), get) }.encode());
        let _ = rustix::fs::fallocate(liar.memory.descriptor(), flags, 12288, 64 << 10);
        if turn % 32 == 31 {
            liar.wait(turn as u32 + 1)?;
        }
    }
    // The rings as well: they are empty then, and what was under way is its own loss.
    let _ = rustix::fs::fallocate(liar.memory.descriptor(), flags, 0, 12288);
    liar.look_around()
}

pub(crate) fn seals_added(target: &Target) -> Found {
    let mut liar = Liar::attach(target)?;
    for seal in [SealFlags::WRITE, SealFlags::FUTURE_WRITE, SealFlags::SHRINK, SealFlags::SEAL] {
        let memory = rustix::fs::fcntl_add_seals(liar.memory.descriptor(), seal);
        let board = rustix::fs::fcntl_add_seals(liar.board.descriptor(), seal);
        must_not(&format!("{seal:?} was added"), memory.is_ok() || board.is_ok())?;
    }
    liar.ask(Operation::Null).map(drop)
}

pub(crate) fn board_written(target: &Target) -> Found {
    let liar = Liar::attach(target)?;
    let copy = || liar.board.descriptor().try_clone_to_owned().map_err(wrong("a copy"));
    let mapped = SharedMemory::from_descriptor(copy()?, 4096, Access::ReadWrite);
    must_not("the board can be mapped to be written", mapped.is_ok())?;
    must_not("the board can be written", rustix::io::pwrite(copy()?, &[7], 0).is_ok())?;
    let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    must_not("the board can be punched", rustix::fs::fallocate(copy()?, flags, 0, 4096).is_ok())?;
    must_not("the board can be shrunk", rustix::fs::ftruncate(copy()?, 0).is_ok())
}

pub(crate) fn bell_filled_and_emptied(target: &Target) -> Found {
    let mut liar = Liar::attach(target)?;
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
    let output = Command::new("ipcrm").args(["-q", &queue.to_string()]).output().map_err(wrong("ipcrm"))?;
    Ok(output.status.success())
}

pub(crate) fn own_queue_removed(target: &Target) -> Found {
    let (mut liar, frame) = Liar::attach_as(target, RMQ, 1, 4096)?;
    must_not("its own queue is not its own", !remove(queue_of(&frame, 40)?)?)?;
    liar.post(&Request::new(RequestId(1), Operation::Null).encode());
    liar.until_cut_off()
}

pub(crate) fn messages_announced_and_not_sent(target: &Target) -> Found {
    let (liar, _) = Liar::attach_as(target, MQ, 1, 4096)?;
    liar.store(CONTROL + 8, 1 << 40);
    liar.ring();
    liar.until_cut_off()
}

pub(crate) fn queue_of_another_user(target: &Target) -> Found {
    if rustix::process::geteuid().is_root() {
        // Root may remove any queue.
        return Ok(());
    }
    must_not("the queue of another was removed", remove(target.queue)?)
}
