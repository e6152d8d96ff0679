//! Two sealed connections, and an attacker between them.

use super::{FuzzInput, MEMORY_BYTES, Side, exchange};
use crate::events::CloseReason;
use crate::iwarp::config::IwarpConfig;
use crate::iwarp::connection::Stage;
use crate::iwarp::mpa::sealed_frame_bytes;
use crate::sealing::Sealing;
use crate::terminate_code::TerminateCode;

const FRAME_BYTES_MAX: usize = sealed_frame_bytes(u16::MAX as usize);

/// Drives two sealed connections, with the stream cut into pieces of any size. The input may replace a piece of it by bytes
/// of its own, once. From then on nothing of that direction is believed.
pub fn attacked_pipe(data: &[u8], (connecting, accepting): (Sealing, Sealing)) {
    let mut input = FuzzInput(data);
    let config = IwarpConfig { crc: input.byte() & 1 != 0, ..IwarpConfig::default() };
    let mut sides = [Side::open(&config, true, true), Side::new(&config, false)];
    exchange(&mut sides, &mut FuzzInput(&[]), usize::MAX);
    assert!(sides[1].connection.seal(accepting, &sides[1].memory), "a request can be sealed");
    assert_eq!(sides[1].connection.accept(b"yes"), Ok(true), "a request is a request");
    exchange(&mut sides, &mut FuzzInput(&[]), usize::MAX);
    assert!(sides[0].connection.seal(connecting, &sides[0].memory), "the reply can be sealed");
    exchange(&mut sides, &mut FuzzInput(&[]), usize::MAX);
    assert!(sides.iter().all(|side| side.connection.stage() == Stage::Open), "both ends have the keys");
    let keys = [sides[0].key, sides[1].key];
    let mut is_attacked = false;
    while !input.is_empty() {
        let which = usize::from(input.byte() & 1);
        match input.byte() % 8 {
            0 if !is_attacked => {
                attack(&mut sides, which, &mut input);
                is_attacked = true;
            }
            0..=2 => exchange(&mut sides, &mut input, 3),
            _ => sides[which].post(&mut input, keys[1 - which]),
        }
    }
    exchange(&mut sides, &mut FuzzInput(&[]), usize::MAX);
    let is_open = |side: &Side| side.closed.is_none() && side.failed == 0;
    assert!(is_attacked || sides.iter().all(is_open), "valid connections stay open");
    sides.into_iter().for_each(|side| side.finish(false));
}

/// Replaces a piece of what one side sends by bytes of the input. The receiving side believes nothing of it.
fn attack(sides: &mut [Side; 2], from: usize, input: &mut FuzzInput<'_>) {
    let mut bytes = sides[from].drain(usize::MAX);
    let at = usize::from(input.byte()) % (bytes.len() + 1);
    let count = usize::from(input.byte());
    let forged = input.take(count).to_vec();
    let end = bytes.len().min(at + forged.len());
    if forged.is_empty() || bytes[at..end] == forged {
        // Not an attack: something else follows.
        bytes.insert(at, 0x5a);
    } else {
        bytes.splice(at..end, forged);
    }
    // What precedes the forged bytes may be valid frames, whose requests are answered.
    let (valid, rest) = bytes.split_at(at);
    sides[1 - from].feed(valid);
    loop {
        let answers = sides[1 - from].drain(usize::MAX);
        if answers.is_empty() {
            break;
        }
        sides[from].feed(&answers);
    }
    let victim = &mut sides[1 - from];
    victim.check_events();
    let (placed, believed) = (snapshot(victim), victim.messages);
    victim.feed(rest);
    // A forged length waits for at most so many bytes.
    victim.feed(&[0; FRAME_BYTES_MAX]);
    victim.check_events();
    let violation = CloseReason::ProtocolViolation(TerminateCode::MPA_CRC);
    assert_eq!(victim.closed, Some(violation), "an attack ends the connection");
    assert!(
        snapshot(victim) == placed && victim.messages == believed,
        "nothing of it is placed, and no message believed"
    );
}

fn snapshot(side: &Side) -> Vec<u8> {
    let mut all = vec![0; MEMORY_BYTES as usize];
    side.memory.mapping(side.region).copy_out(0, &mut all);
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use ddss_auth::{Channel, Context, Initiator, respond};
    use proptest::prelude::*;

    fn sealing(mut channel: Channel) -> Sealing {
        let (mut sealer, mut opener) = channel.take_frame_keys().unwrap();
        Sealing::new(
            move |clear, body| sealer.seal(clear, body),
            move |clear, body, tag| opener.open(clear, body, tag).is_ok(),
        )
    }

    fn session() -> (Sealing, Sealing) {
        let (key, context) = ([7; 32], Context { name: *b"DDSS  test", release: 1 });
        let (initiator, first) = Initiator::begin(&key, &context, &[1; 6]).unwrap();
        let answer = respond(&key, &context, &[2; 6], &first).unwrap();
        let (_, channel) = initiator.finish(&answer.message).unwrap();
        (sealing(channel), sealing(answer.channel))
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 500, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn forged_bytes_of_a_sealed_connection_are_never_believed(data in proptest::collection::vec(any::<u8>(), 0..400)) {
            // If this failed, an attacker on the path could write into segments, or crash a daemon.
            attacked_pipe(&data, session());
        }
    }
}
