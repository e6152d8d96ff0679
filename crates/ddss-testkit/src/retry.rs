//! Repeats calls that succeed as soon as nodes are connected, or a full disk has space again.

use std::time::{Duration, Instant};

/// Time limit. Success takes milliseconds; a loaded machine takes longer.
const PATIENCE: Duration = Duration::from_secs(30);
const TRY_EVERY: Duration = Duration::from_millis(10);

/// Repeats `attempt` until it succeeds.
///
/// # Panics
///
/// Panics with the last error if no attempt succeeds within 30 s.
pub fn retry<T>(mut attempt: impl FnMut() -> Result<T, ddss::Error>) -> T {
    let begin = Instant::now();
    loop {
        match attempt() {
            Ok(done) => return done,
            Err(error) => assert!(begin.elapsed() < PATIENCE, "{error}"),
        }
        std::thread::sleep(TRY_EVERY);
    }
}
