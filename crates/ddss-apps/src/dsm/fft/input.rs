//! Numbers of the benchmark: its random input, and the checksums that its report publishes.

use super::complex::Complex;

/// First state of the generator.
const SEED: u64 = 314_159_265;
/// Factor between two states: 5^13.
const FACTOR: u64 = 1_220_703_125;
/// Bits of a state.
const STATE_BITS: u32 = 46;

/// Fills numbers in their order in the grid, the first of which has this index.
pub(super) fn fill(numbers: &mut [Complex], first: usize) {
    let mut state = multiply(power(FACTOR, 2 * first as u64), SEED);
    let mut next = || {
        state = multiply(FACTOR, state);
        state as f64 / (1_u64 << STATE_BITS) as f64
    };
    for number in numbers {
        *number = Complex { re: next(), im: next() };
    }
}

fn multiply(a: u64, b: u64) -> u64 {
    // 2^46 divides 2^64.
    a.wrapping_mul(b) % (1 << STATE_BITS)
}

fn power(mut base: u64, mut exponent: u64) -> u64 {
    let mut product = 1;
    while exponent > 0 {
        if exponent % 2 == 1 {
            product = multiply(product, base);
        }
        base = multiply(base, base);
        exponent /= 2;
    }
    product
}

/// Steps of time.
pub(super) const STEPS: usize = 6;

/// Returns the checksums that are published for a grid of this size, one for each step. `None`: the grid is no class of the
/// benchmark.
pub(super) fn published(sides: [usize; 3]) -> Option<[Complex; STEPS]> {
    let pairs: [(f64, f64); STEPS] = match sides {
        // Class S.
        [64, 64, 64] => [
            (554.6087004964, 484.5363331978),
            (554.6385409189, 486.5304269511),
            (554.6148406171, 488.3910722336),
            (554.5423607415, 490.1273169046),
            (554.4255039624, 491.7475857993),
            (554.2683411902, 493.2597244941),
        ],
        // Class W.
        [32, 128, 128] => [
            (567.3612178944, 529.3246849175),
            (563.1436885271, 528.2149986629),
            (559.4024089970, 527.0996558037),
            (556.0698047020, 526.0027904925),
            (553.0898991250, 524.9400845633),
            (550.4159734538, 523.9212247086),
        ],
        _ => return None,
    };
    Some(pairs.map(|(re, im)| Complex { re, im }))
}
