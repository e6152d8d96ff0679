//! Malformed frames and encrypted messages of an authenticated member. Each ends its own connection and nothing else.

use super::frames::{self, frame, tagged, untagged};
use super::member::{self, Member, plain};
use super::noise::DATA;
use super::replay::recorded;
use super::target::{Target, random_bytes, reset, send};
use crate::byzantine_client::AttackResult;
use ddss_core::{Message, RemoteWindow};

/// Sends these bytes unsealed, and expects that the node ends the connection.
fn is_cut_for(target: &Target, words: impl FnOnce(&Member) -> Vec<u8>) -> AttackResult {
    let mut member = Member::authenticate(target)?;
    let words = words(&member);
    send(&mut member.stream, &words);
    member.expect_disconnect()
}

fn lookup() -> Vec<u8> {
    plain(&member::lookup(7), member::ABSENT)
}

pub(super) fn sends_unencrypted_messages(target: &Target) -> AttackResult {
    let mut member = Member::authenticate(target)?;
    member.say_as_it_is(&lookup());
    member.expect_disconnect()
}

pub(super) fn repeats_messages(target: &Target) -> AttackResult {
    let mut member = Member::authenticate(target)?;
    let sealed = member.seal(&lookup())?;
    member.say_as_it_is(&sealed);
    member.say_as_it_is(&sealed);
    member.expect_disconnect()
}

pub(super) fn sends_messages_of_another_connection(target: &Target) -> AttackResult {
    let sealed = Member::authenticate(target)?.seal(&lookup())?;
    let mut member = Member::authenticate(target)?;
    member.say_as_it_is(&sealed);
    member.expect_disconnect()
}

pub(super) fn reorders_messages(target: &Target) -> AttackResult {
    let mut member = Member::authenticate(target)?;
    let (_, second) = (member.seal(&lookup())?, member.seal(&lookup())?);
    member.say_as_it_is(&second);
    member.expect_disconnect()
}

pub(super) fn sends_empty_messages(target: &Target) -> AttackResult {
    for words in [&b""[..], &[99], &[2, 1], &[7; 480]] {
        let mut member = Member::authenticate(target)?;
        member.send_message(words)?;
        member.expect_disconnect()?;
    }
    Ok(())
}

pub(super) fn sends_random_messages(target: &Target) -> AttackResult {
    let mut member = Member::authenticate(target)?;
    // Random bytes may have a meaning by chance, but none of them does harm.
    (0..200).try_for_each(|_| member.send_message(&random_bytes(64)))?;
    member.expect_disconnect()
}

pub(super) fn welcomes_twice(target: &Target) -> AttackResult {
    let mut member = Member::authenticate(target)?;
    member.send_message(&plain(&Message::Welcome { staging: RemoteWindow::default() }, &[]))?;
    member.expect_disconnect()
}

pub(super) fn sends_before_welcome(target: &Target) -> AttackResult {
    let mut member = Member::greet(target)?;
    member.send_message(&lookup())?;
    member.expect_disconnect()
}

pub(super) fn sends_wrong_checksums(target: &Target) -> AttackResult {
    is_cut_for(target, |member| {
        let mut words = frame(&untagged(3, 0, member.sends, &[7; 64]));
        words[30] ^= 4;
        words
    })
}

pub(super) fn sends_wrong_sequence_numbers(target: &Target) -> AttackResult {
    for by in [u32::MAX, 1, 1000] {
        is_cut_for(target, |member| frame(&untagged(3, 0, member.sends.wrapping_add(by), &[7; 64])))?;
    }
    Ok(())
}

pub(super) fn uses_wrong_queues(target: &Target) -> AttackResult {
    for queue in [1, 4, u32::MAX] {
        is_cut_for(target, |_| frame(&untagged(3, queue, 1, &[7; 64])))?;
    }
    Ok(())
}

pub(super) fn sends_unknown_opcodes(target: &Target) -> AttackResult {
    for opcode in 12..16 {
        is_cut_for(target, |member| frame(&untagged(opcode, 0, member.sends, b"x")))?;
        is_cut_for(target, |_| frame(&tagged(opcode, 1, 0, b"x")))?;
    }
    Ok(())
}

pub(super) fn sends_unsolicited_read_responses(target: &Target) -> AttackResult {
    is_cut_for(target, |_| frame(&tagged(2, 0x1234_5678, 0, &[7; 4096])))
}

pub(super) fn sends_empty_frames(target: &Target) -> AttackResult {
    is_cut_for(target, |_| frame(&[]).repeat(100))
}

pub(super) fn sends_oversized_messages(target: &Target) -> AttackResult {
    is_cut_for(target, |member| frame(&untagged(3, 0, member.sends, &[7; 60_000])))
}

pub(super) fn exceeds_negotiated_reads(target: &Target) -> AttackResult {
    is_cut_for(target, |member| {
        let staging = member.staging;
        (1..=2000).flat_map(|number| frames::read(number, staging.key, staging.base, 0)).chain(frame(&[])).collect()
    })
}

pub(super) fn sends_half_a_frame_and_closes(target: &Target) -> AttackResult {
    for length in [1, 2, 10, 40] {
        let mut member = Member::authenticate(target)?;
        let words = frame(&untagged(3, 0, member.sends, &[7; 64]));
        send(&mut member.stream, &words[..length]);
        reset(member.stream)?;
    }
    Ok(())
}

pub(super) fn replays_its_own_hello(target: &Target) -> AttackResult {
    // The hello is repeated while the real member is connected, which must stay connected.
    let member = Member::authenticate(target)?;
    let mut stream = super::target::dial(target.data)?;
    send(&mut stream, &frames::request(&recorded(DATA)?));
    frames::hear_reply(&mut stream)?;
    send(&mut stream, &[frames::ready(), frame(&untagged(3, 0, 1, &random_bytes(40)))].concat());
    member.ends_served()
}
