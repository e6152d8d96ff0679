//! Seeds that ever failed. Each campaign begins with them; what each of them found stands in `docs/TESTING.md`.

/// All of them.
pub const KNOWN_SEEDS: &[u64] = &[6, 26, 27, 32, 49, 374];
