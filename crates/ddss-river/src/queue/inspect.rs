//! A queue as its directory describes it.

use super::options::QueueOptions;
use crate::error::QueueError;
use crate::link::{CLOSED, FAILED};
use crate::state::MemberLoad;
use ddss::Client;
use ddss_group::inspect;
use std::net::SocketAddr;

/// State of a queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum QueueStatus {
    /// It takes messages.
    Open,
    /// It takes no more messages; those that are left can be taken.
    Closed,
    /// It was fail-stop, and has lost a member.
    Failed,
}

impl QueueStatus {
    /// Returns its name, as commands show it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Open => "open",
            Self::Closed => "closed",
            Self::Failed => "failed",
        }
    }
}

/// A queue and its living members.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct QueueInfo {
    /// State.
    pub status: QueueStatus,
    /// Options with the settings of the queue, for a process that wants to open it.
    pub options: QueueOptions,
    /// Processes at most.
    pub places: u16,
    /// Bytes of a message at most.
    pub message_bytes_max: u32,
    /// Members that live.
    pub members: Vec<QueueMember>,
}

/// A living member of a queue, and its load half a second ago.
#[derive(Clone, Copy, PartialEq, Debug)]
#[non_exhaustive]
pub struct QueueMember {
    /// Place.
    pub number: u16,
    /// Process id on its node.
    pub process: u32,
    /// Address at which the others reach it.
    pub address: SocketAddr,
    /// Messages that it has put and that are not acknowledged.
    pub held: u32,
    /// Messages that it took and has not finished.
    pub in_work: u64,
    /// Messages that it has put.
    pub put: u64,
    /// Their bytes.
    pub put_bytes: u64,
    /// Messages that it has taken.
    pub taken: u64,
    /// Messages that it puts a second.
    pub put_rate: f64,
    /// Messages that it takes a second.
    pub take_rate: f64,
    /// Its work. `None` if it has not published that yet, or is of an earlier release.
    pub work: Option<MemberWork>,
}

/// Work of a member of a queue.
#[derive(Clone, Copy, PartialEq, Debug)]
#[non_exhaustive]
pub struct MemberWork {
    /// Messages that it keeps at most.
    pub send_slots: u32,
    /// Messages in work, on average.
    pub busy: f64,
    /// Calls that wait for room, on average.
    pub blocked: f64,
    /// Calls that wait for a message, on average.
    pub idle: f64,
}

/// Reads what the directory of a queue says. `None` if there is none of this name.
pub(super) fn inspect_queue(client: &Client, table: &str) -> Result<Option<QueueInfo>, QueueError> {
    let Some(group) = inspect(client, table)? else { return Ok(None) };
    let status = match group.state {
        FAILED.. => QueueStatus::Failed,
        CLOSED => QueueStatus::Closed,
        _ => QueueStatus::Open,
    };
    let Some(options) = QueueOptions::decode(&group.settings) else { return Ok(None) };
    let options = options.members(group.places);
    let members = group.members.iter().map(|member| {
        let load = MemberLoad::decode(&member.note);
        QueueMember {
            number: member.whom.member.0,
            process: member.process,
            address: member.address,
            held: load.held,
            in_work: load.taken.saturating_sub(load.finished),
            put: load.put,
            put_bytes: load.put_bytes,
            taken: load.taken,
            put_rate: f64::from(load.put_rate_milli) / 1e3,
            take_rate: f64::from(load.take_rate_milli) / 1e3,
            work: (load.send_slots > 0).then(|| MemberWork {
                send_slots: load.send_slots,
                busy: f64::from(load.busy_milli) / 1e3,
                blocked: f64::from(load.blocked_milli) / 1e3,
                idle: f64::from(load.idle_milli) / 1e3,
            }),
        }
    });
    let message_bytes_max = options.config.message_bytes_max;
    Ok(Some(QueueInfo { status, options, places: group.places, message_bytes_max, members: members.collect() }))
}
