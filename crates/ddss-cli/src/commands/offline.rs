//! Offline inspection: the segments of a node without a running daemon, from their records and headers.

use crate::arguments::DaemonOptions;
use crate::error::CommandError;
use crate::output::listing::{format_mode, format_model};
use crate::output::table::{Table, format_bytes};
use crate::output::terminal_text::{print_field, print_warning};
use ddss_admin::Settings;
use ddss_admin::storage::{OfflineNode, OfflineSegment};
use ddss_core::Timestamp;
use serde_json::{Value, json};

/// Inspects the files of a daemon that does not run. Returns them with the error with which the command still ends.
pub(crate) fn inspect_offline(
    error: CommandError,
    place: &DaemonOptions,
) -> Result<(OfflineNode, CommandError), CommandError> {
    if !matches!(&error, CommandError::Client(error) if error.kind() == ddss::ErrorKind::NoDaemon) {
        return Err(error);
    }
    let (memory_folder, state_folder) = Settings::segment_folders(place.dir.clone());
    match OfflineNode::read_all(&memory_folder, &state_folder) {
        Ok(node) => {
            print_warning(&format!(
                "{} does not run; showing its stored segments, which the next daemon recovers",
                node.node
            ));
            Ok((node, error))
        }
        Err(_) => Err(error),
    }
}

/// Formats a segment with the same keys as that of a running daemon; `live` is false.
pub(crate) fn as_json(segment: &OfflineSegment) -> Value {
    let record = &segment.record;
    let header = segment.header;
    json!({
        "name": record.name.as_str(),
        "id": record.segment.to_bits(),
        "home": record.segment.home().0,
        "copies": record.spec.copies,
        "replica": null,
        "storage": record.spec.storage.as_str(),
        "bytes": record.spec.bytes,
        "row_bytes": record.spec.row_bytes,
        "model": format_model(record.spec.model),
        "history": record.spec.history_len(),
        "uid": record.permissions.owner.uid,
        "gid": record.permissions.owner.gid,
        "mode": format!("{:03o}", record.permissions.mode),
        "version": header.map(|header| header.state >> 1),
        "timestamp_us": header.map(|header| Timestamp(header.timestamp).micros()),
        "lock": null,
        "nodes_reading": null,
        "live": false,
    })
}

/// Formats the newest version in the header.
fn version(segment: &OfflineSegment) -> String {
    match segment.header {
        None => "no header".to_owned(),
        Some(header) if header.state & 1 != 0 => format!("{}, a put to undo", header.state >> 1),
        Some(header) => (header.state >> 1).to_string(),
    }
}

pub(crate) fn list(node: &OfflineNode, matches: impl Fn(&str) -> bool, json: bool) {
    let found: Vec<&OfflineSegment> =
        node.segments.iter().filter(|segment| matches(segment.record.name.as_str())).collect();
    if json {
        println!("{}", Value::Array(found.into_iter().map(as_json).collect()));
        return;
    }
    let mut table = Table::new(&["NAME", "BYTES", "HOME", "MODEL", "MODE", "UID", "VERSION"]);
    table.align_right(&[1, 2, 5]);
    for segment in found {
        let record = &segment.record;
        table.row(vec![
            record.name.to_string(),
            format_bytes(record.spec.bytes),
            record.segment.home().0.to_string(),
            format_model(record.spec.model),
            format_mode(record.permissions.mode),
            record.permissions.owner.uid.to_string(),
            version(segment),
        ]);
    }
    table.print_or("no stored segment matches");
}

pub(crate) fn stat(node: &OfflineNode, name: &str, json: bool) -> Result<(), CommandError> {
    let segment = node.segments.iter().find(|segment| segment.record.name.as_str() == name);
    let segment =
        segment.ok_or_else(|| CommandError::Refused(format!("no stored segment of {} is called {name}", node.node)))?;
    if json {
        println!("{}", as_json(segment));
        return Ok(());
    }
    let record = &segment.record;
    let owner = record.permissions.owner;
    print_field("name", record.name);
    print_field("id", record.segment);
    print_field("home", format_args!("{}, which does not run", record.segment.home()));
    print_field("bytes", record.spec.bytes);
    if let Some(rows) = record.spec.bytes.checked_div(record.spec.row_bytes.into()) {
        print_field("table", format_args!("{rows} rows of {} bytes", record.spec.row_bytes));
    }
    print_field("model", format_model(record.spec.model));
    print_field("storage", record.spec.storage.as_str());
    print_field("history", format_args!("{} versions before the newest", record.spec.history_len()));
    print_field("owner", format_args!("user {} group {}", owner.uid, owner.gid));
    print_field("mode", format_args!("{} ({:03o})", format_mode(record.permissions.mode), record.permissions.mode));
    print_field("version", version(segment));
    if let Some(header) = segment.header {
        print_field("written", Timestamp(header.timestamp));
    }
    Ok(())
}
