//! Hostile peers: any bytes in any order end in an error of the space at worst. `fuzz/fuzz_targets/dsm_message.rs` plays the
//! same for longer.

mod play;

use proptest::prelude::*;

/// Kinds of messages with their lengths for three ranks, without lists.
const LENGTHS: [(u8, u8); 20] = [
    (1, 17),
    (2, 18),
    (3, 19),
    (4, 17),
    (5, 17),
    (6, 17),
    (7, 5),
    (8, 17),
    (9, 25),
    (10, 25),
    (11, 15),
    (12, 22),
    (13, 9),
    (14, 19),
    (15, 20),
    (16, 7),
    (17, 7),
    (18, 19),
    (19, 7),
    (20, 2),
];

/// A step of `play`: a call, a completion, a tick, or a message of valid length with small fields.
fn step() -> impl Strategy<Value = Vec<u8>> {
    let other = (0u8..32, any::<u8>())
        .prop_filter_map("no message", |(kind, argument)| (kind % 4 != 3).then_some(vec![kind, argument]));
    let message =
        (0usize..20, any::<bool>(), proptest::collection::vec(0u8..6, 25)).prop_map(|(at, second, fields)| {
            let (kind, length) = LENGTHS[at];
            let mut step = vec![if second { 131 } else { 3 }, length, kind];
            // Small numbers in little-endian words: most bytes are zero.
            let sparse = |(at, value): (usize, u8)| if at % 4 == 0 { value } else { 0 };
            step.extend(fields.into_iter().enumerate().map(sparse).take(usize::from(length) - 1));
            step
        });
    prop_oneof![other, message]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    // If this failed, one rank could end the process of another.
    #[test]
    fn valid_and_invalid_messages_in_any_order_cause_no_panic(
        flags in any::<u8>(),
        steps in proptest::collection::vec(step(), 0..60),
    ) {
        let mut input = vec![flags];
        steps.into_iter().for_each(|step| input.extend(step));
        play::play(&input);
    }
}
