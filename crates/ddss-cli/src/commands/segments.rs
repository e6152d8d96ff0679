//! The commands that show segments: `ls`, `stat`, `chmod` and `history`.

use super::data::resolve_length;
use super::offline;
use super::segment_query::{find_segments, warn_missing_nodes};
use crate::arguments::{ChmodOptions, HistoryOptions, ListOptions, SegmentOptions};
use crate::connect::open;
use crate::error::CommandError;
use crate::glob::Glob;
use crate::output::listing::{as_json, format_holder, format_lock, format_mode, format_model, format_replica};
use crate::output::table::{Table, format_bytes, format_micros};
use crate::output::terminal_text::print_field;
use ddss::{ErrorKind, GetOptions, Mode, Permissions, Version};
use serde_json::{Value, json};

/// Returns the note below an empty list.
pub(crate) fn empty_list_note(pattern: Option<&str>) -> &'static str {
    match pattern {
        Some(_) => "no segment matches",
        None => "there is no segment: allocate one with `ddss allocate NAME BYTES`",
    }
}

pub(crate) fn list(options: &ListOptions, json: bool) -> Result<(), CommandError> {
    let found = match find_segments(&options.place, options.pattern.as_deref()) {
        Ok(found) => found,
        Err(error) => {
            let glob = Glob::new(options.pattern.as_deref().unwrap_or("*"));
            let (remains, error) = offline::inspect_offline(error, &options.place)?;
            offline::list(&remains, |name| glob.matches(name), json);
            return Err(error);
        }
    };
    warn_missing_nodes(&options.place);
    if json {
        println!("{}", Value::Array(found.iter().map(as_json).collect()));
        return Ok(());
    }
    let mut table = Table::new(&["NAME", "BYTES", "HOME", "MODEL", "MODE", "UID", "VERSION", "LOCK"]);
    table.align_right(&[1, 2, 5, 6]);
    for listing in &found {
        table.row(vec![
            listing.name.to_string(),
            format_bytes(listing.len),
            listing.home.0.to_string(),
            format_model(listing.model),
            format_mode(listing.permissions.mode.0),
            listing.permissions.uid.to_string(),
            listing.stamp.version.0.to_string(),
            format_lock(listing),
        ]);
    }
    table.print_or(empty_list_note(options.pattern.as_deref()));
    Ok(())
}

pub(crate) fn stat(named: &SegmentOptions, json: bool) -> Result<(), CommandError> {
    let listing = match open(named) {
        Ok(segment) => segment.stat()?,
        Err(error) => {
            let (remains, error) = offline::inspect_offline(error, &named.place)?;
            return offline::stat(&remains, &named.name, json).and(Err(error));
        }
    };
    if json {
        println!("{}", as_json(&listing));
        return Ok(());
    }
    print_field("name", &listing.name);
    print_field("id", listing.id);
    print_field("home", listing.home);
    print_field("replica", format_replica(&listing));
    print_field("bytes", listing.len);
    if let Some(rows) = listing.len.checked_div(listing.row_len.into()) {
        print_field("table", format_args!("{rows} rows of {} bytes, each with its own version", listing.row_len));
    }
    print_field("model", format_model(listing.model));
    print_field("storage", listing.storage.as_str());
    print_field("history", format_args!("{} versions before the newest", listing.history));
    let permissions = listing.permissions;
    print_field("owner", format_args!("user {} group {}", permissions.uid, permissions.gid));
    print_field("mode", format_args!("{} ({:03o})", format_mode(permissions.mode.0), permissions.mode.0));
    print_field("version", listing.stamp.version.0);
    print_field("written", listing.stamp.timestamp);
    print_field("lock", format_lock(&listing));
    if let Some(holder) = listing.lock.holder {
        let left = format_micros(holder.lease_left_us);
        print_field("held by", format_args!("{}, for at most {left}", format_holder(holder)));
    }
    match listing.readers {
        0 => print_field("read by", "no other node"),
        1 => print_field("read by", "clients of one other node"),
        many => print_field("read by", format_args!("clients of {many} other nodes")),
    }
    Ok(())
}

pub(crate) fn chmod(options: &ChmodOptions, json: bool) -> Result<(), CommandError> {
    let segment = open(&options.named)?;
    let own = segment.stat()?.permissions;
    segment.set_permissions(Permissions { mode: Mode(options.mode), ..own })?;
    if json {
        println!("{}", json!({ "name": segment.name(), "mode": format!("{:03o}", options.mode) }));
    } else {
        println!("{}: {}", segment.name(), format_mode(options.mode));
    }
    Ok(())
}

/// Default number of bytes shown of each version.
const HISTORY_BYTES: u64 = 16;

/// Shows the versions in the history, the newest first.
pub(crate) fn history(options: &HistoryOptions, json: bool) -> Result<(), CommandError> {
    let segment = open(&options.named)?;
    let length = resolve_length(&segment, 0, options.length, HISTORY_BYTES)?;
    // Other clients may put in the meantime: the first get defines the newest version.
    let mut found = vec![segment.get(0..length)?];
    while let Some(before) = found.last().and_then(|value| value.version().0.checked_sub(1)) {
        match segment.get_with(0..length, GetOptions::new().at_version(Version(before))) {
            Ok(value) => found.push(value),
            Err(error) if error.kind() == ErrorKind::VersionGone => break,
            Err(error) => return Err(error.into()),
        }
    }
    if json {
        let row = |value: &ddss::Value| {
            let hex: String = value.iter().map(|byte| format!("{byte:02x}")).collect();
            json!({ "version": value.version().0, "timestamp_us": value.stamp.timestamp.micros(), "hex": hex })
        };
        println!("{}", Value::Array(found.iter().map(row).collect()));
        return Ok(());
    }
    let mut table = Table::new(&["VERSION", "WRITTEN", "FIRST BYTES"]);
    table.wrap_last();
    for value in &found {
        let hex: Vec<String> = value.iter().map(|byte| format!("{byte:02x}")).collect();
        table.row(vec![value.version().0.to_string(), value.stamp.timestamp.to_string(), hex.join(" ")]);
    }
    table.print();
    Ok(())
}
