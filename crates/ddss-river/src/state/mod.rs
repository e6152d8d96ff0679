//! Everything that the callers and the service thread of a queue share, behind one lock.
//!
//! `slots` is memory with slots for messages, `place` is what is known of a member, `message_end` how an application ends a message,
//! `failed_messages` is what is kept aside, `failure` why calls fail, `waiters` are calls that wait, `ends` joins them with the two
//! engines, `occupancy` and `counters` count for those who watch, and `shared` has the lock.

mod counters;
mod ends;
mod failed_messages;
mod failure;
mod message_end;
mod occupancy;
mod place;
mod shared;
mod slots;
mod waiters;

pub(crate) use counters::{Counters, MemberLoad};
pub(crate) use ends::{Ends, EndsError};
pub(crate) use failure::Failure;
pub(crate) use message_end::MessageEnd;
pub(crate) use place::Post;
pub(crate) use shared::Shared;
pub(crate) use slots::SlotMemory;
