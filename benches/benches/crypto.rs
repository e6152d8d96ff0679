//! Cost of encrypting and decrypting a message between nodes, and of a handshake.
//!
//! It compares the chosen cipher (in the daemon's version and in `snow`'s) with the alternative: the figures of
//! `docs/decisions/0009-node-authentication.md`.
#![forbid(unsafe_code)]
#![allow(missing_docs, reason = "what Criterion's macros make is no interface of ours")]

use std::time::Duration;

use criterion::{Criterion, criterion_group, criterion_main};
use snow::resolvers::{BoxedCryptoResolver, DefaultResolver};
use snow::{Builder, HandshakeState, TransportState};

/// Cipher of the daemon.
#[allow(unused_imports, reason = "its tests are no tests here")]
#[path = "../../crates/ddss-auth/src/cipher.rs"]
mod cipher;

/// Implementation of the cipher, and handshake pattern: the daemon's, and the same with the other cipher.
const PATTERNS: [(&str, &str); 3] = [
    ("expanded once", "Noise_NNpsk0_25519_AESGCM_BLAKE2s"),
    ("snow", "Noise_NNpsk0_25519_AESGCM_BLAKE2s"),
    ("snow", "Noise_NNpsk0_25519_ChaChaPoly_BLAKE2s"),
];
type Pattern = (&'static str, &'static str);
/// A small message, a put without bytes, and one with as many as a message takes.
const SIZES: [usize; 3] = [16, 67, 480];
/// Buffer size, larger than any sealed message here.
const BUFFER_BYTES: usize = 1024;

fn side((whose, pattern): Pattern, begins: bool) -> HandshakeState {
    let primitives: BoxedCryptoResolver =
        if whose == "snow" { Box::new(DefaultResolver) } else { Box::new(cipher::Primitives) };
    let builder = Builder::with_resolver(pattern.parse().expect("it is a pattern"), primitives);
    let builder = builder.psk(0, &[7; 32]).expect("a key has 32 bytes");
    let made = if begins { builder.build_initiator() } else { builder.build_responder() };
    made.expect("nothing else is needed")
}

/// Both sides of an established connection.
fn handshake(pattern: Pattern) -> [TransportState; 2] {
    let (mut caller, mut called) = (side(pattern, true), side(pattern, false));
    let (mut sealed, mut plain) = ([0; BUFFER_BYTES], [0; BUFFER_BYTES]);
    let length = caller.write_message(&[1; 32], &mut sealed).expect("it fits");
    called.read_message(&sealed[..length], &mut plain).expect("the keys are the same");
    let length = called.write_message(&[2; 32], &mut sealed).expect("it fits");
    caller.read_message(&sealed[..length], &mut plain).expect("the keys are the same");
    [caller, called].map(|side| side.into_transport_mode().expect("both messages went"))
}

fn seals(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("crypto");
    for pattern in PATTERNS {
        let cipher = format!("{}, {}", pattern.1.split('_').nth(3).unwrap_or_default(), pattern.0);
        group.bench_function(format!("{cipher}/handshake"), |bencher| bencher.iter(|| handshake(pattern)));
        for bytes in SIZES {
            let ([mut caller, mut called], plain) = (handshake(pattern), vec![3; bytes]);
            let (mut sealed, mut opened) = ([0; BUFFER_BYTES], [0; BUFFER_BYTES]);
            // A message is opened once only, in its turn: so both sides are measured together.
            group.bench_function(format!("{cipher}/{bytes} bytes, sealed and opened"), |bencher| {
                bencher.iter(|| {
                    let length = caller.write_message(&plain, &mut sealed).expect("it fits");
                    called.read_message(&sealed[..length], &mut opened).expect("it comes in its turn")
                });
            });
        }
    }
    group.finish();
}

criterion_group! {
    name = all;
    config = Criterion::default().warm_up_time(Duration::from_millis(300)).measurement_time(Duration::from_secs(1));
    targets = seals
}
criterion_main!(all);
