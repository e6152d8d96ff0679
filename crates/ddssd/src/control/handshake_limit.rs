//! How often the first messages of one address are answered. Half a handshake takes as long as some entries of the log, on the
//! thread that decides for the cluster, and whoever has recorded a good first message can ask for it as often as he likes.

use ddss_core::RateLimiter;
use std::net::IpAddr;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// One address is answered so many times at once: all nodes of a cluster may be on one machine, and each has a few streams.
const BURST: u32 = 64;
/// Then once in so long: less than a hundredth of a core goes into it.
const EVERY: Duration = Duration::from_millis(10);
/// Addresses whose pace is known.
const ADDRESSES_MAX: usize = 256;

/// The pace of each address.
#[derive(Debug)]
pub(crate) struct HandshakeLimit {
    pace: Mutex<RateLimiter<IpAddr>>,
    began: Instant,
}

impl Default for HandshakeLimit {
    fn default() -> Self {
        Self { pace: Mutex::new(RateLimiter::new(BURST, EVERY, ADDRESSES_MAX)), began: Instant::now() }
    }
}

impl HandshakeLimit {
    /// Judges a first message when it is its address's turn. One that is not good takes a fiftieth of the time and no turn: who
    /// has none keeps nobody waiting.
    pub(super) async fn judge<T, E>(&self, from: IpAddr, judge: impl FnOnce() -> Result<T, E>) -> Result<T, E> {
        loop {
            let wait = {
                // One at a time, or those who wait for the same turn would all have it.
                let mut pace = self.pace.lock().unwrap_or_else(PoisonError::into_inner);
                let now = self.began.elapsed();
                let turn = pace.turn_of(from, now);
                if turn <= now {
                    let judged = judge();
                    if judged.is_ok() {
                        pace.took_turn(from, now);
                    }
                    return judged;
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
    fn an_address_that_asks_without_end_is_answered_at_a_pace_and_nobody_waits_for_it() {
        // If this broke, somebody with one recorded message would have all the time of the thread that decides for the cluster.
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let (paced, began) = (Arc::new(HandshakeLimit::default()), Instant::now());
            let [crowd, other] = [9, 2].map(|last: u8| IpAddr::from([10, 0, 0, last]));
            // Bad ones take no turns.
            for _ in 0..1000 {
                assert_eq!(paced.judge(crowd, || Err::<(), _>("bad")).await, Err("bad"));
            }
            let many = 2 * BURST;
            let judged: Vec<_> = (0..many)
                .map(|_| {
                    let paced = Arc::clone(&paced);
                    tokio::spawn(async move { paced.judge(crowd, || Ok::<_, ()>(())).await })
                })
                .collect();
            let at_once = || judged.iter().filter(|task| task.is_finished()).count();
            while at_once() < BURST as usize {
                assert!(began.elapsed() < Duration::from_secs(20), "{} of {BURST} were let in at once", at_once());
                tokio::task::yield_now().await;
            }
            assert_eq!(paced.judge(other, || Ok::<_, ()>(())).await, Ok(()));
            for task in judged {
                assert_eq!(task.await.unwrap(), Ok(()), "each has its turn");
            }
            let least = EVERY * (many - BURST - 1);
            assert!(began.elapsed() >= least, "{many} were answered within {:?}", began.elapsed());
        });
    }
}
