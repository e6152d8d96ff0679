//! The thread that renews the claims of this process.

use super::search::Search;
use super::table::UnitTable;
use ddss_river_core::{Claim, PutResult};
use std::collections::BTreeMap;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Renewals in a lease: twice as many as there have to be.
const RENEWALS: u32 = 8;

/// A claimed unit in work.
#[derive(Debug)]
pub(super) struct Work {
    pub(super) search: Search,
    pub(super) claim: Claim,
}

/// A claim that this process holds.
#[derive(Debug)]
pub(super) struct Held {
    /// `None` once the unit is ended.
    work: Mutex<Option<Work>>,
    is_fenced: AtomicBool,
}

impl Held {
    pub(super) fn new(work: Work) -> Self {
        Self { work: Mutex::new(Some(work)), is_fenced: AtomicBool::new(false) }
    }

    /// Takes the work, which is renewed no more.
    pub(super) fn take(&self) -> Option<Work> {
        lock(&self.work).take()
    }

    pub(super) fn is_fenced(&self) -> bool {
        self.is_fenced.load(Ordering::Relaxed)
    }

    fn renew(&self, table: &UnitTable) {
        let mut work = lock(&self.work);
        let Some(Work { search, claim }) = &mut *work else { return };
        let (number, deadline) = (claim.unit.number, Instant::now());
        let version = match table.put_state(number, &claim.row, &[], claim.version, deadline) {
            Ok(PutResult::Done(version)) => Some(version),
            // An earlier renewal of unknown outcome may have come to its end.
            Ok(PutResult::Conflict | PutResult::Unknown) => match table.unit(number, deadline) {
                Ok((stored, version)) if stored.row == claim.row => Some(version),
                Ok(_) => {
                    self.is_fenced.store(true, Ordering::Relaxed);
                    None
                }
                Err(_) => None,
            },
            // The table is away: the next attempt follows.
            Err(_) => None,
        };
        if let Some(version) = version {
            claim.version = version;
            search.renewed(version);
        }
    }
}

#[derive(Default, Debug)]
struct Claims {
    held: BTreeMap<u64, Arc<Held>>,
    next: u64,
    is_stopping: bool,
}

#[derive(Default, Debug)]
struct Shared {
    claims: Mutex<Claims>,
    wake: Condvar,
}

/// The claims of this process, and the thread that renews them. It starts with the first claim.
#[derive(Default, Debug)]
pub(super) struct Renewals {
    shared: Arc<Shared>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Renewals {
    /// Renews a claim from now on. Returns its key.
    pub(super) fn add(&self, table: &UnitTable, held: Arc<Held>) -> io::Result<u64> {
        let mut thread = lock(&self.thread);
        if thread.is_none() {
            let (shared, table) = (self.shared.clone(), table.clone());
            *thread =
                Some(std::thread::Builder::new().name("ddss-units".to_owned()).spawn(move || run(&shared, &table))?);
        }
        drop(thread);
        let mut claims = lock(&self.shared.claims);
        let key = claims.next;
        claims.next += 1;
        claims.held.insert(key, held);
        Ok(key)
    }

    pub(super) fn remove(&self, key: u64) {
        lock(&self.shared.claims).held.remove(&key);
    }
}

impl Drop for Renewals {
    fn drop(&mut self) {
        lock(&self.shared.claims).is_stopping = true;
        self.shared.wake.notify_all();
        if let Some(thread) = lock(&self.thread).take() {
            // It panics only with a defect, which its message shows.
            let _ = thread.join();
        }
    }
}

fn run(shared: &Shared, table: &UnitTable) {
    let pause = Duration::from_millis(table.settings.lease_ms.into()) / RENEWALS;
    loop {
        let next = Instant::now() + pause;
        let mut claims = lock(&shared.claims);
        let held: Vec<_> = loop {
            if claims.is_stopping {
                return;
            }
            let left = next.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break claims.held.values().cloned().collect();
            }
            claims = shared.wake.wait_timeout(claims, left).unwrap_or_else(PoisonError::into_inner).0;
        };
        drop(claims);
        held.iter().for_each(|held| held.renew(table));
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
