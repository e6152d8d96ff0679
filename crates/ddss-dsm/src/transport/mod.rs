//! The service thread of a rank: it drives the engine over a fabric, and executes the application's calls.
//!
//! `command` has the calls, `areas` lays the rank's memory out, `rank_memory` is what the engine sees of it, `post_queue` keeps the order of what goes to a
//! peer, `handover` tells peers the windows, and `service` is the task of the thread.

mod areas;
mod command;
mod handover;
mod home_frames;
mod post_queue;
mod rank_memory;
mod service;

pub(crate) use command::{Call, Command, OWN_INDICES, OwnEnd, Reply};
pub(crate) use home_frames::HomeFrames;
pub(crate) use rank_memory::RankMemory;
pub(crate) use service::{Service, ServiceConfig};
