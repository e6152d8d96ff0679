//! The keeper: a thread of a client that renews the leases of its guards with [`LockOptions::keep_alive`], and releases locks that are
//! granted to callers who have given up.
//!
//! One thread serves all guards of a client. Renewals that are due together are in flight together, and each round ends
//! within a quarter of the shortest lease, so that a home that does not answer delays no other lease beyond its end. The
//! thread ends with its last work.
//!
//! [`LockOptions::keep_alive`]: crate::LockOptions::keep_alive

use super::lease_state::{Lease, Renewal};
use crate::call::channels::NoCompletion;
use crate::call::pipeline::{FinishedCall, Pipeline, run_together};
use crate::deadline::Deadline;
use crate::error::Error;
use crate::error::reason::Reason;
use crate::location::SegmentLocation;
use crate::plan::CallPlan;
use crate::plan::priority::Priority;
use crate::session::of_process::OfProcess;
use crate::session::{Inner, Session};
use arc_swap::Guard;
use ddss_core::{LockToken, Outcome};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

/// Maximum time of one round of renewals.
const ROUND_MAX: Duration = Duration::from_secs(1);
/// Minimum of that time, whatever leases there are: a home that is only slow answers in it.
const ROUND_MIN: Duration = Duration::from_millis(100);
/// Pause between two looks for locks that are granted late.
const COLLECT_INTERVAL: Duration = Duration::from_millis(20);

/// Leases that the thread of a client renews in this process.
pub(crate) type LeaseKeeper = OfProcess<KeptLeases>;

/// The state of the thread, and its wake-up.
#[derive(Debug, Default)]
pub(crate) struct KeptLeases {
    state: Mutex<KeeperState>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct KeeperState {
    leases: Vec<Arc<Renewable>>,
    /// Sessions in which a lock may be granted to a caller that has given up.
    late: Vec<Weak<Session>>,
    is_running: bool,
}

impl KeeperState {
    fn add_late(&mut self, session: Weak<Session>) {
        if !self.late.iter().any(|late| late.ptr_eq(&session)) {
            self.late.push(session);
        }
    }
}

/// A lock with its lease.
#[derive(Debug)]
struct Renewable {
    /// Attachment to the shard of the segment, which the guard owns.
    attached: Weak<Inner>,
    location: SegmentLocation,
    token: LockToken,
    lease: Lease,
}

impl Renewable {
    fn plan(&self) -> CallPlan<'_> {
        self.location.plan_renewal(self.token, self.lease.duration())
    }
}

/// A guard's share of the keeper: dropping it ends the renewals.
#[derive(Debug)]
pub(crate) struct KeptLease {
    keeper: Arc<LeaseKeeper>,
    renewable: Arc<Renewable>,
}

impl KeptLease {
    /// Adds a lease to those of its client's keeper.
    pub(crate) fn begin(
        keeper: &Arc<LeaseKeeper>,
        attached: &Arc<Inner>,
        location: &SegmentLocation,
        (token, lease): (LockToken, Lease),
    ) -> Result<Self, Error> {
        let (attached, location) = (Arc::downgrade(attached), location.clone());
        let renewable = Arc::new(Renewable { attached, location, token, lease });
        let mut state = keeper.state();
        keeper.start(&mut state).map_err(Reason::Thread)?;
        state.leases.push(Arc::clone(&renewable));
        drop(state);
        keeper.changed.notify_one();
        Ok(Self { keeper: Arc::clone(keeper), renewable })
    }

    pub(crate) fn lease(&self) -> &Lease {
        &self.renewable.lease
    }
}

impl Drop for KeptLease {
    fn drop(&mut self) {
        if self.keeper.is_inherited() {
            return;
        }
        self.keeper.state().leases.retain(|kept| !Arc::ptr_eq(kept, &self.renewable));
        self.keeper.changed.notify_one();
    }
}

impl LeaseKeeper {
    /// Returns true while the thread runs.
    #[cfg(test)]
    pub(crate) fn is_running(&self) -> bool {
        self.state().is_running
    }

    /// Starts the thread unless it runs.
    fn start(self: &Arc<Self>, state: &mut KeeperState) -> std::io::Result<()> {
        if !state.is_running {
            let keeper = Arc::clone(self);
            let thread = std::thread::Builder::new().name("ddss-leases".to_owned());
            thread.spawn(move || keeper.run())?;
            state.is_running = true;
        }
        Ok(())
    }

    /// Releases the locks that this session grants to callers who have given up, now or later.
    pub(crate) fn release_late_locks(self: &Arc<Self>, session: &Arc<Session>) {
        if session.attachment.is_unusable() || !session.channels.collect_late_locks() {
            return;
        }
        let mut state = self.state();
        // Without the thread their leases end the locks.
        if self.start(&mut state).is_ok() {
            state.add_late(Arc::downgrade(session));
            self.changed.notify_one();
        }
    }

    /// Releases locks that were granted late. A daemon that is gone, or that sees the client gone, ends them.
    fn collect_late_locks(&self) {
        let late = std::mem::take(&mut self.state().late);
        let is_owed = |late: &Weak<Session>| {
            late.upgrade().is_some_and(|late| !late.attachment.is_unusable() && late.channels.collect_late_locks())
        };
        // The last handle of a session may be among them: it is dropped without the lock.
        let owed: Vec<_> = late.into_iter().filter(is_owed).collect();
        let mut state = self.state();
        owed.into_iter().for_each(|session| state.add_late(session));
    }

    fn state(&self) -> MutexGuard<'_, KeeperState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn run(&self) {
        loop {
            self.collect_late_locks();
            let mut state = self.state();
            state.leases.retain(|kept| !kept.lease.is_lost());
            let now = Instant::now();
            let collect = (!state.late.is_empty()).then_some(now + COLLECT_INTERVAL);
            let Some(next) = state.leases.iter().map(|kept| kept.lease.due()).chain(collect).min() else {
                state.is_running = false;
                return;
            };
            if next > now {
                drop(self.changed.wait_timeout(state, next - now));
                continue;
            }
            let time = Deadline::of(round_max(state.leases.iter().map(|kept| kept.lease.duration())));
            let mut due: Vec<_> = state.leases.iter().filter(|kept| kept.lease.due() <= now).cloned().collect();
            drop(state);
            due.sort_by_key(|kept| kept.lease.duration());
            renew_all(&due, time);
        }
    }
}

/// Returns the maximum time of a round. A lease that becomes due just after its begin is renewed after it, in time.
fn round_max(leases: impl Iterator<Item = Duration>) -> Duration {
    leases.min().map_or(ROUND_MAX, |shortest| (shortest / 4).clamp(ROUND_MIN, ROUND_MAX))
}

/// The renewals of one shard.
struct ShardRenewals<'a> {
    session: Guard<Arc<Session>>,
    leases: Vec<&'a Renewable>,
    plans: Vec<CallPlan<'a>>,
}

/// Renews leases of all shards at the same time, within the time of one call. The shard of the first lease comes first.
fn renew_all<'a>(due: &'a [Arc<Renewable>], time: Deadline) {
    let (mut time, sent) = (time.started(), Instant::now());
    // A guard that has ended meanwhile needs no renewal.
    let of_guard = |kept: &'a Arc<Renewable>| Some((kept.attached.upgrade()?, &**kept));
    let mut rest: Vec<(Arc<Inner>, &Renewable)> = due.iter().filter_map(of_guard).collect();
    let mut shards = Vec::new();
    while let Some((attached, _)) = rest.first() {
        let attached = Arc::clone(attached);
        let (leases, others): (Vec<_>, Vec<_>) = rest.into_iter().partition(|(its, _)| Arc::ptr_eq(its, &attached));
        let leases: Vec<&Renewable> = leases.into_iter().map(|(_, kept)| kept).collect();
        match attached.session(&mut time, || true) {
            Ok(session) => {
                let plans = leases.iter().map(|kept| kept.plan()).collect();
                shards.push(ShardRenewals { session, leases, plans });
            }
            Err(_) => leases.iter().for_each(|kept| kept.lease.record(sent, Renewal::Unknown)),
        }
        rest = others;
    }
    for (shard, results) in shards.iter().zip(run(&shards, time)) {
        if results.iter().any(|ended| matches!(ended, Err(NoCompletion::ShuttingDown))) {
            shard.session.attachment.set_draining();
        }
        shard.leases.iter().zip(&results).for_each(|(kept, ended)| kept.lease.record(sent, renewal_of(ended)));
    }
}

/// Runs all renewals, those of each shard in one pipeline.
fn run(shards: &[ShardRenewals<'_>], time: Deadline) -> Vec<Vec<FinishedCall>> {
    let mut times = vec![time; shards.len()];
    let pipeline = |(shard, time)| {
        let ShardRenewals { session, plans, .. }: &ShardRenewals<'_> = shard;
        let call = session.channels.call(Priority::Holder, time)?;
        Ok(Pipeline::new(call, plans.iter().collect()))
    };
    let mut running: Vec<Result<Pipeline<'_>, NoCompletion>> = shards.iter().zip(&mut times).map(pipeline).collect();
    run_together(&mut running.iter_mut().flatten().collect::<Vec<_>>());
    let results = |(running, shard): (Result<Pipeline<'_>, _>, &ShardRenewals<'_>)| match running {
        Ok(pipeline) => pipeline.results(),
        Err(none) => shard.plans.iter().map(|_| Err(none)).collect(),
    };
    running.into_iter().zip(shards).map(results).collect()
}

fn renewal_of(ended: &FinishedCall) -> Renewal {
    match ended {
        Ok(Ok(_)) => Renewal::Done,
        Ok(Err(completion)) => match completion.outcome {
            Outcome::Failed(failure) => Renewal::of_failure(failure),
            _ => Renewal::Unknown,
        },
        Err(_) => Renewal::Unknown,
    }
}

#[cfg(test)]
mod tests {
    use crate::testing::{TestNode, block_on};
    use crate::{ErrorKind, LockGuard, LockOptions, Segment, Spec};
    use std::time::{Duration, Instant};

    /// Lease that a machine under load renews in time.
    const LEASE: Duration = Duration::from_secs(6);
    const PATIENCE: Duration = Duration::from_secs(60);

    #[test]
    fn round_is_short_enough_for_each_lease_that_is_not_due() {
        // If this broke, a home that hangs would take the short leases of other homes.
        let round = |millis: &[u64]| super::round_max(millis.iter().copied().map(Duration::from_millis));
        assert_eq!(round(&[600_000, 1000]), Duration::from_millis(250));
        assert_eq!((round(&[600_000]), round(&[])), (super::ROUND_MAX, super::ROUND_MAX));
        assert_eq!(round(&[600_000, 1]), super::ROUND_MIN);
    }

    fn kept() -> LockOptions {
        LockOptions::new().lease(LEASE).keep_alive()
    }

    fn wait_until(is_so: impl Fn() -> bool) {
        let end = Instant::now() + PATIENCE;
        while !is_so() {
            assert!(Instant::now() < end, "it never was so");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    #[test]
    fn kept_locks_outlive_their_leases_until_their_guards_end() {
        // If this broke, a leader that lives would be replaced, or a leader that is gone would lead for ever.
        let node = TestNode::start_with(|config| config.progress_threads = 2);
        let (mine, theirs) = (node.client(), node.client());
        let names: Vec<String> = (0..8).map(|number| format!("lock/{number}")).collect();
        let segments: Vec<_> = names.iter().map(|name| mine.segment(name).allocate(Spec::new(64)).unwrap()).collect();
        let guards: Vec<LockGuard<Segment>> =
            segments.iter().map(|segment| segment.lock_with(kept()).unwrap()).collect();
        // Each renewal comes a third of the lease after the one before: the fourth is beyond the first lease.
        wait_until(|| guards.iter().all(|guard| guard.lock.lease.current().renewals() >= 4));
        for (guard, name) in guards.iter().zip(&names) {
            assert!(!guard.lease_left().is_zero());
            let other = theirs.segment(name).open().unwrap().lock_with(LockOptions::new().timeout(Duration::ZERO));
            assert_eq!(other.unwrap_err().kind(), ErrorKind::Locked);
            guard.put(0, b"still").unwrap();
        }
        drop(guards);
        for name in &names {
            theirs.segment(name).open().unwrap().lock_with(LockOptions::new().timeout(Duration::ZERO)).unwrap();
        }
        wait_until(|| !mine.keeper().unwrap().is_running());
        // The next guard starts the thread again.
        let again = segments[0].lock_with(kept()).unwrap();
        wait_until(|| again.lock.lease.current().renewals() >= 1);
    }

    #[test]
    fn lost_lock_is_not_renewed_and_its_guard_says_so() {
        // If this broke, a process would count on a lock that another one has.
        let node = TestNode::start();
        let (mine, theirs) = (node.client(), node.client());
        let segment = mine.segment("locked").allocate(Spec::new(64)).unwrap();
        let lost = segment.lock_with(kept()).unwrap();
        assert_eq!(segment.break_lock().unwrap(), 1);
        let next = theirs.segment("locked").open().unwrap().lock().unwrap();
        wait_until(|| lost.lease_left().is_zero());
        assert_eq!(lost.renew().unwrap_err().kind(), ErrorKind::LockLost);
        assert_eq!(lost.put(0, b"late").unwrap_err().kind(), ErrorKind::LockLost);
        wait_until(|| !mine.keeper().unwrap().is_running());
        next.renew().unwrap();
        drop(lost);
        next.put(0, b"next").unwrap();
        // The home has the lock still, and the holder was told that it is lost.
        let told = theirs.segment("other").allocate(Spec::new(64)).unwrap().lock().unwrap();
        told.lock.lease.current().record(Instant::now(), super::Renewal::LockLost);
        assert_eq!(told.renew().unwrap_err().kind(), ErrorKind::LockLost);
        assert!(told.lease_left().is_zero());
        // A lease that ended by itself is not revived.
        let short = theirs.segment("locked").open().unwrap();
        next.unlock().unwrap();
        let ended = short.lock_with(LockOptions::new().lease(Duration::from_secs(1))).unwrap();
        let after = segment.lock().unwrap();
        assert_eq!(ended.renew().unwrap_err().kind(), ErrorKind::LockLost);
        assert!(ended.lease_left().is_zero() && !after.lease_left().is_zero());
    }

    #[test]
    fn task_holds_a_kept_lock() {
        // If this broke, an asynchronous service could not lead.
        let node = TestNode::start();
        let client = node.client().aio().unwrap();
        block_on(async {
            let segment = client.segment("task").allocate(Spec::new(64)).await.unwrap();
            let guard = segment.lock_with(kept()).await.unwrap();
            wait_until(|| guard.lock.lease.current().renewals() >= 4);
            guard.renew().await.unwrap();
            assert!(guard.lease_left() > Duration::ZERO && guard.lease_left() <= LEASE);
            guard.put(0, b"led").await.unwrap();
            guard.unlock().await.unwrap();
            segment.lock_with(LockOptions::new().timeout(Duration::ZERO)).await.unwrap();
        });
    }
}
