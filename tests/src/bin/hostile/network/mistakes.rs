//! Frames and sealed words of a member that are wrong: each ends its connection and nothing else.

use super::frames::{self, frame, tagged, untagged};
use super::member::{Member, WHO, plain};
use super::recorded::recorded;
use super::road::{Target, reset, rubbish, send};
use super::shake::DATA;
use crate::liar::{Found, wrong};
use ddss_core::{Message, Name, RemoteWindow};

/// Sends that as it is, and is cut off for it.
fn is_cut_for(target: &Target, words: impl FnOnce(&Member) -> Vec<u8>) -> Found {
    let mut member = Member::meet(target)?;
    let words = words(&member);
    send(&mut member.stream, &words);
    member.ends_cut()
}

fn lookup() -> Result<Vec<u8>, String> {
    let name = Name::new("nothing").map_err(wrong("a name"))?;
    Ok(plain(&Message::Lookup { step: 7, who: WHO, name }, &[]))
}

pub(super) fn words_in_the_open(target: &Target) -> Found {
    let mut member = Member::meet(target)?;
    member.say_as_it_is(&lookup()?);
    member.ends_cut()
}

pub(super) fn words_said_twice(target: &Target) -> Found {
    let mut member = Member::meet(target)?;
    let sealed = member.seal(&lookup()?)?;
    member.say_as_it_is(&sealed);
    member.say_as_it_is(&sealed);
    member.ends_cut()
}

pub(super) fn words_of_another_connection(target: &Target) -> Found {
    let sealed = Member::meet(target)?.seal(&lookup()?)?;
    let mut member = Member::meet(target)?;
    member.say_as_it_is(&sealed);
    member.ends_cut()
}

pub(super) fn words_in_another_order(target: &Target) -> Found {
    let mut member = Member::meet(target)?;
    let (_, second) = (member.seal(&lookup()?)?, member.seal(&lookup()?)?);
    member.say_as_it_is(&second);
    member.ends_cut()
}

pub(super) fn words_of_nothing(target: &Target) -> Found {
    for words in [&b""[..], &[99], &[2, 1], &[7; 480]] {
        let mut member = Member::meet(target)?;
        member.say(words)?;
        member.ends_cut()?;
    }
    Ok(())
}

pub(super) fn words_of_rubbish(target: &Target) -> Found {
    let mut member = Member::meet(target)?;
    // The first ones may mean something by chance, and none of them does harm.
    (0..200).try_for_each(|_| member.say(&rubbish(64)))?;
    member.ends_cut()
}

pub(super) fn welcomes_twice(target: &Target) -> Found {
    let mut member = Member::meet(target)?;
    member.say(&plain(&Message::Welcome { staging: RemoteWindow::default() }, &[]))?;
    member.ends_cut()
}

pub(super) fn says_something_before_its_welcome(target: &Target) -> Found {
    let mut member = Member::greet(target)?;
    member.say(&lookup()?)?;
    member.ends_cut()
}

pub(super) fn wrong_checksums(target: &Target) -> Found {
    is_cut_for(target, |member| {
        let mut words = frame(&untagged(3, 0, member.sends, &[7; 64]));
        words[30] ^= 4;
        words
    })
}

pub(super) fn wrong_numbers_of_messages(target: &Target) -> Found {
    for by in [u32::MAX, 1, 1000] {
        is_cut_for(target, |member| frame(&untagged(3, 0, member.sends.wrapping_add(by), &[7; 64])))?;
    }
    Ok(())
}

pub(super) fn wrong_queues(target: &Target) -> Found {
    for queue in [1, 4, u32::MAX] {
        is_cut_for(target, |_| frame(&untagged(3, queue, 1, &[7; 64])))?;
    }
    Ok(())
}

pub(super) fn unknown_opcodes(target: &Target) -> Found {
    for opcode in 12..16 {
        is_cut_for(target, |member| frame(&untagged(opcode, 0, member.sends, b"x")))?;
        is_cut_for(target, |_| frame(&tagged(opcode, 1, 0, b"x")))?;
    }
    Ok(())
}

pub(super) fn answers_to_reads_that_nobody_made(target: &Target) -> Found {
    is_cut_for(target, |_| frame(&tagged(2, 0x1234_5678, 0, &[7; 4096])))
}

pub(super) fn frames_of_nothing(target: &Target) -> Found {
    is_cut_for(target, |_| frame(&[]).repeat(100))
}

pub(super) fn messages_longer_than_any(target: &Target) -> Found {
    is_cut_for(target, |member| frame(&untagged(3, 0, member.sends, &[7; 60_000])))
}

pub(super) fn more_reads_than_were_agreed_on(target: &Target) -> Found {
    is_cut_for(target, |member| {
        let staging = member.staging;
        (1..=2000).flat_map(|number| frames::read(number, staging.key, staging.base, 0)).chain(frame(&[])).collect()
    })
}

pub(super) fn half_a_frame_and_an_end(target: &Target) -> Found {
    for length in [1, 2, 10, 40] {
        let mut member = Member::meet(target)?;
        let words = frame(&untagged(3, 0, member.sends, &[7; 64]));
        send(&mut member.stream, &words[..length]);
        reset(member.stream)?;
    }
    Ok(())
}

pub(super) fn its_own_old_first_message(target: &Target) -> Found {
    // Said again while the real one is connected: it keeps its place.
    let member = Member::meet(target)?;
    let mut stream = super::road::dial(target.data)?;
    send(&mut stream, &frames::request(&recorded(DATA)?));
    frames::hear_reply(&mut stream)?;
    send(&mut stream, &[frames::ready(), frame(&untagged(3, 0, 1, &rubbish(40)))].concat());
    member.ends_served()
}
