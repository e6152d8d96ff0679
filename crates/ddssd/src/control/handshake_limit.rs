//! Rate limit of handshakes for each source address.
//!
//! Half a handshake costs as much as some log entries, on the thread that decides for the cluster. A peer that has
//! recorded one valid first message could otherwise replay it without end.

use ddss_admission::RateLimiter;
use std::net::IpAddr;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Burst of one address: all nodes of a cluster may run on one machine, and each opens a few streams.
const BURST_HANDSHAKES: u32 = 64;
/// Interval of one address after the burst: handshakes take less than a hundredth of a core.
const HANDSHAKE_INTERVAL: Duration = Duration::from_millis(10);
/// Maximum number of tracked addresses.
const ADDRESSES_MAX: usize = 256;

/// Rate limiter of handshakes by source address.
#[derive(Debug)]
pub(crate) struct HandshakeLimit {
    pace: Mutex<RateLimiter<IpAddr>>,
    began: Instant,
}

impl Default for HandshakeLimit {
    fn default() -> Self {
        Self {
            pace: Mutex::new(RateLimiter::new(BURST_HANDSHAKES, HANDSHAKE_INTERVAL, ADDRESSES_MAX)),
            began: Instant::now(),
        }
    }
}

impl HandshakeLimit {
    /// Verifies a first message when the limit of its address allows it. An invalid message costs a fiftieth of the
    /// time and uses no permit, so an unauthenticated peer delays no other peer.
    pub(super) async fn verify<T, E>(&self, from: IpAddr, verify: impl FnOnce() -> Result<T, E>) -> Result<T, E> {
        loop {
            let wait = {
                // Verify under the lock: otherwise all tasks that wait for one permit would get it.
                let mut pace = self.pace.lock().unwrap_or_else(PoisonError::into_inner);
                let now = self.began.elapsed();
                let turn = pace.turn_of(from, now);
                if turn <= now {
                    let verified = verify();
                    if verified.is_ok() {
                        pace.took_turn(from, now);
                    }
                    return verified;
                }
                turn - now
            };
            tokio::time::sleep(wait).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    #[test]
    fn flooding_address_is_rate_limited_and_other_addresses_are_not_delayed() {
        // If this broke, a peer with one recorded message could occupy the thread that decides for the cluster.
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let (limit, began) = (Arc::new(HandshakeLimit::default()), Instant::now());
            let [flooding, other] = [9, 2].map(|last: u8| IpAddr::from([10, 0, 0, last]));
            // Invalid messages use no permits.
            for _ in 0..1000 {
                assert_eq!(limit.verify(flooding, || Err::<(), _>("bad")).await, Err("bad"));
            }
            let many = 2 * BURST_HANDSHAKES;
            let tasks: Vec<_> = (0..many)
                .map(|_| {
                    let limit = Arc::clone(&limit);
                    tokio::spawn(async move { limit.verify(flooding, || Ok::<_, ()>(())).await })
                })
                .collect();
            let finished_count = || tasks.iter().filter(|task| task.is_finished()).count();
            while finished_count() < BURST_HANDSHAKES as usize {
                assert!(
                    began.elapsed() < Duration::from_secs(20),
                    "{} of {BURST_HANDSHAKES} were verified at once",
                    finished_count()
                );
                tokio::task::yield_now().await;
            }
            assert_eq!(limit.verify(other, || Ok::<_, ()>(())).await, Ok(()));
            for task in tasks {
                assert_eq!(task.await.unwrap(), Ok(()), "each message gets its permit");
            }
            let least = HANDSHAKE_INTERVAL * (many - BURST_HANDSHAKES - 1);
            assert!(began.elapsed() >= least, "{many} were answered within {:?}", began.elapsed());
        });
    }
}
