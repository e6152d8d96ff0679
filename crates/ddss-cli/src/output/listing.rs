//! Description of a segment, as text and as JSON.

use ddss::{Listing, LockHolder, Model, NodeId, ReplicationInfo};
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
pub(crate) fn as_json(listing: &Listing) -> Value {
    let info = &listing.info;
    let holder = listing
        .holder
        .map(|holder| json!({ "node": holder.node.0, "client": holder.client, "lease_left_us": holder.lease_left_us }));
    json!({
        "name": listing.name.as_str(),
        "id": info.segment.to_bits(),
        "home": listing.home.0,
        "copies": info.copies,
        "replica": (info.copies > 1).then(|| json!({
            "node": listing.replica.0,
            "state": listing.replication.as_str(),
            "reason": listing.degraded.map(|reason| reason.to_string()),
        })),
        "storage": info.storage.as_str(),
        "bytes": info.bytes,
        "row_bytes": info.row_bytes,
        "model": format_model(info.model),
        "history": info.history_len,
        "uid": info.permissions.owner.uid,
        "gid": info.permissions.owner.gid,
        "mode": format!("{:03o}", info.permissions.mode),
        "version": listing.version.0,
        "timestamp_us": listing.timestamp.micros(),
        "lock": { "holders": listing.holders, "alone": listing.locked, "waiting": listing.waiting,
            "holder": holder },
        "nodes_reading": listing.readers,
        "live": true,
    })
}

/// Formats the holders of a lock and the length of its queue.
pub(crate) fn format_lock(listing: &Listing) -> String {
    match (listing.locked, listing.holders, listing.waiting) {
        (_, 0, 0) => "-".to_owned(),
        // A lock of the whole segment has a holder to show.
        (_, rows, 0) if listing.holder.is_none() => format!("of {rows} rows"),
        (_, rows, waiting) if rows > 0 && listing.holder.is_none() => format!("of {rows} rows, {waiting} waiting"),
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
pub(crate) fn format_replica(listing: &Listing) -> String {
    match (listing.replication, listing.replica) {
        (ReplicationInfo::None, _) => "none".to_owned(),
        (ReplicationInfo::Degraded, NodeId::NONE) => "degraded: no node chosen yet".to_owned(),
        (ReplicationInfo::Degraded, node) => {
            let reason = listing.degraded.map(|reason| format!(": {node} {reason}"));
            format!("degraded{}", reason.unwrap_or_default())
        }
        (state, node) => format!("{} on {node}", state.as_str()),
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
