//! Description of a segment, as text and as JSON.

use ddss::{LockHolder, Model, NodeId, ReplicationInfo, SegmentInfo};
use serde_json::{Value, json};

/// Formats a coherence model as on the command line.
pub(crate) fn format_model(model: Model) -> String {
    match model {
        Model::Null => "null".to_owned(),
        Model::Read => "read".to_owned(),
        Model::Write => "write".to_owned(),
        Model::Strict => "strict".to_owned(),
        Model::Version => "version".to_owned(),
        Model::Delta(versions) => format!("delta={versions}"),
        Model::Temporal(micros) => format!("temporal={micros}"),
        _ => "unknown".to_owned(),
    }
}

/// Formats permission bits as `ls -l` does (`rw-r-----`); the execute bit has no meaning.
pub(crate) fn format_mode(mode: u16) -> String {
    let bit = |shift: u16, letter| if mode >> shift & 1 != 0 { letter } else { '-' };
    [8, 5, 2].iter().flat_map(|&high| [bit(high, 'r'), bit(high - 1, 'w'), bit(high - 2, 'x')]).collect()
}

/// Describes a segment as JSON.
pub(crate) fn as_json(listing: &SegmentInfo) -> Value {
    let holder = listing
        .lock
        .holder
        .map(|holder| json!({ "node": holder.node.0, "client": holder.client, "lease_left_us": holder.lease_left_us }));
    json!({
        "name": listing.name.as_str(),
        "id": listing.id.to_bits(),
        "home": listing.home.0,
        "copies": listing.copies,
        "replica": (listing.copies > 1).then(|| json!({
            "node": listing.replica.unwrap_or(NodeId::NONE).0,
            "state": listing.replication.as_str(),
            "reason": listing.degraded.map(|reason| reason.to_string()),
        })),
        "storage": listing.storage.as_str(),
        "bytes": listing.len,
        "row_bytes": listing.row_len,
        "model": format_model(listing.model),
        "history": listing.history,
        "uid": listing.permissions.uid,
        "gid": listing.permissions.gid,
        "mode": format!("{:03o}", listing.permissions.mode.0),
        "version": listing.stamp.version.0,
        "timestamp_us": listing.stamp.timestamp.micros(),
        "lock": { "holders": listing.lock.holders, "alone": listing.lock.is_exclusive, "waiting": listing.lock.waiting,
            "holder": holder },
        "nodes_reading": listing.readers,
        "live": true,
    })
}

/// Formats the holders of a lock and the length of its queue.
pub(crate) fn format_lock(listing: &SegmentInfo) -> String {
    match (listing.lock.is_exclusive, listing.lock.holders, listing.lock.waiting) {
        (_, 0, 0) => "-".to_owned(),
        // A lock of the whole segment has a holder to show.
        (_, rows, 0) if listing.lock.holder.is_none() => format!("of {rows} rows"),
        (_, rows, waiting) if rows > 0 && listing.lock.holder.is_none() => format!("of {rows} rows, {waiting} waiting"),
        (_, 0, waiting) => format!("free, {waiting} waiting"),
        (true, _, 0) => "held".to_owned(),
        (true, _, waiting) => format!("held, {waiting} waiting"),
        (false, holders, 0) => format!("shared by {holders}"),
        (false, holders, waiting) => format!("shared by {holders}, {waiting} waiting"),
    }
}

/// Formats the holder of a lock. The home knows the client number only of its own clients.
pub(crate) fn format_holder(holder: LockHolder) -> String {
    match holder.client {
        Some(client) => format!("{}, client {client}", holder.node),
        None => holder.node.to_string(),
    }
}

/// Formats the node and the state of the replica.
pub(crate) fn format_replica(listing: &SegmentInfo) -> String {
    match (listing.replication, listing.replica) {
        (ReplicationInfo::None, _) => "none".to_owned(),
        (ReplicationInfo::Degraded, None) => "degraded: no node chosen yet".to_owned(),
        (ReplicationInfo::Degraded, Some(node)) => {
            let reason = listing.degraded.map(|reason| format!(": {node} {reason}"));
            format!("degraded{}", reason.unwrap_or_default())
        }
        (state, Some(node)) => format!("{} on {node}", state.as_str()),
        (state, None) => state.as_str().to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mode_is_formatted_as_by_ls() {
        assert_eq!(format_mode(0o640), "rw-r-----");
        assert_eq!(format_mode(0o777), "rwxrwxrwx");
        assert_eq!(format_mode(0), "---------");
    }
}
