//! The commands that show segments: `ls`, `stat`, `chmod` and `history`.

use super::data::resolve_length;
use super::offline;
use super::segment_query::{find_segments, warn_missing_nodes};
use crate::arguments::{ChmodOptions, HistoryOptions, ListOptions, SegmentOptions};
use crate::connect::open;
use crate::error::CommandError;
use crate::glob::Glob;
use crate::output::listing::{as_json, format_holder, format_lock, format_mode, format_model, format_replica};
use crate::output::table::{Table, format_bytes, format_micros, format_timestamp};
use crate::output::terminal_text::print_field;
use ddss::{ErrorKind, Version};
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
        let info = &listing.info;
        table.row(vec![
            listing.name.to_string(),
            format_bytes(info.bytes),
            listing.home.0.to_string(),
            format_model(info.model),
            format_mode(info.permissions.mode),
            info.permissions.owner.uid.to_string(),
            listing.version.0.to_string(),
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
    let info = &listing.info;
    let owner = info.permissions.owner;
    print_field("name", listing.name);
    print_field("id", info.segment);
    print_field("home", listing.home);
    print_field("replica", format_replica(&listing));
    print_field("bytes", info.bytes);
    if let Some(rows) = info.bytes.checked_div(info.row_bytes.into()) {
        print_field("table", format_args!("{rows} rows of {} bytes, each with its own version", info.row_bytes));
    }
    print_field("model", format_model(info.model));
    print_field("storage", info.storage.as_str());
    print_field("history", format_args!("{} versions before the newest", info.history_len));
    print_field("owner", format_args!("user {} group {}", owner.uid, owner.gid));
    print_field("mode", format_args!("{} ({:03o})", format_mode(info.permissions.mode), info.permissions.mode));
    print_field("version", listing.version.0);
    print_field("written", format_timestamp(listing.timestamp.micros()));
    print_field("lock", format_lock(&listing));
    if let Some(holder) = listing.holder {
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
    segment.set_mode(options.mode)?;
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
        match segment.get_at(Version(before), 0..length) {
            Ok(value) => found.push(value),
            Err(error) if error.kind() == ErrorKind::VersionGone => break,
            Err(error) => return Err(error.into()),
        }
    }
    if json {
        let row = |value: &ddss::Value| {
            let hex: String = value.iter().map(|byte| format!("{byte:02x}")).collect();
            json!({ "version": value.version().0, "timestamp_us": value.timestamp().micros(), "hex": hex })
        };
        println!("{}", Value::Array(found.iter().map(row).collect()));
        return Ok(());
    }
    let mut table = Table::new(&["VERSION", "WRITTEN", "FIRST BYTES"]);
    table.wrap_last();
    for value in &found {
        let hex: Vec<String> = value.iter().map(|byte| format!("{byte:02x}")).collect();
        table.row(vec![value.version().0.to_string(), format_timestamp(value.timestamp().micros()), hex.join(" ")]);
    }
    table.print();
    Ok(())
}
