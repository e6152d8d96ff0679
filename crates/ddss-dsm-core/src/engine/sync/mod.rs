//! Acquires and releases: locks, barriers, semaphores and counters.

mod acquire;
mod barrier;
mod counter;
mod give_up;
mod lock;
mod queue;
mod release;
mod semaphore;
mod time;

pub(crate) use acquire::on_log_read;
pub(crate) use barrier::{arrive, call_barrier, depart};
pub(crate) use counter::{add, call_add, on_value};
pub(crate) use give_up::{call_give_up, missing_at};
pub(crate) use lock::{call_lock, call_unlock, forward, on_grant, on_request};
pub(crate) use queue::advance;
pub(crate) use release::call_place;
pub(crate) use semaphore::{call_post, call_wait, on_grant as on_semaphore_grant, on_post, on_wait};
