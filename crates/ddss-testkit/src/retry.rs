//! Calls that succeed as soon as nodes have met, or a full disk has room again.

use std::time::{Duration, Instant};

/// Time limit. Success takes milliseconds; a loaded machine takes longer.
const PATIENCE: Duration = Duration::from_secs(30);
const TRY_EVERY: Duration = Duration::from_millis(10);

/// Tries again until it succeeds.
///
/// # Panics
///
/// With the last error, if it has not within 30 s.
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
