//! Two sealed iWARP connections, and an attacker who replaces a piece of what one of them sends.
//! `RUSTC_BOOTSTRAP=1 cargo fuzz run iwarp_sealed -- -max_total_time=60`
#![no_main]

use ddss_auth::{Channel, Context, Initiator, respond};
use ddss_verbs::Sealing;

fn sealing(mut channel: Channel) -> Sealing {
    let (mut sealer, mut opener) = channel.take_frame_keys().expect("they are taken once");
    Sealing::new(
        move |clear, body| sealer.seal(clear, body),
        move |clear, body, tag| opener.open(clear, body, tag).is_ok(),
    )
}

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let (key, context) = ([7; 32], Context { name: *b"DDSS  fuzz", release: 1 });
    let (initiator, first) = Initiator::begin(&key, &context, &[1; 6]).expect("there are random bytes");
    let answer = respond(&key, &context, &[2; 6], &first).expect("the keys are the same");
    let (_, channel) = initiator.finish(&answer.message).expect("the keys are the same");
    ddss_verbs::fuzzing::sealed::attacked_pipe(data, (sealing(channel), sealing(answer.channel)));
});
