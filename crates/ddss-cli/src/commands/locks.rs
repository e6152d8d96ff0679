//! The command `locks`: holders and waiters of segment locks, and breaking a lock.

use super::segment_query::{find_segments, warn_missing_nodes};
use crate::arguments::LocksOptions;
use crate::confirm::confirm;
use crate::connect::connect;
use crate::error::CommandError;
use crate::output::listing::{as_json, format_holder, format_lock};
use crate::output::table::{Table, format_micros};
use ddss::SegmentInfo;
use serde_json::{Value, json};

pub(crate) fn locks(options: &LocksOptions, json: bool) -> Result<(), CommandError> {
    let mut found = find_segments(&options.list.place, options.list.pattern.as_deref())?;
    found.retain(|listing| listing.lock.holders > 0 || listing.lock.waiting > 0);
    if options.break_locks {
        return break_locks(options, &found, json);
    }
    warn_missing_nodes(&options.list.place);
    if json {
        println!("{}", Value::Array(found.iter().map(as_json).collect()));
        return Ok(());
    }
    table(&found).print_or("no lock is held or waited for");
    Ok(())
}

fn table(found: &[SegmentInfo]) -> Table {
    let mut table = Table::new(&["NAME", "HOME", "LOCK", "HOLDER", "LEASE LEFT"]);
    for listing in found {
        let holder = listing.lock.holder;
        table.row(vec![
            listing.name.to_string(),
            listing.home.0.to_string(),
            format_lock(listing),
            holder.map_or_else(|| "-".to_owned(), format_holder),
            holder.map_or_else(|| "-".to_owned(), |holder| format_micros(holder.lease_left_us)),
        ]);
    }
    table
}

fn break_locks(options: &LocksOptions, found: &[SegmentInfo], json: bool) -> Result<(), CommandError> {
    let held: Vec<&SegmentInfo> = found.iter().filter(|listing| listing.lock.holders > 0).collect();
    if !held.is_empty() && !options.yes {
        table(found).print_to_stderr();
        let count = held.len();
        let what = if count == 1 { "this lock".to_owned() } else { format!("these {count} locks") };
        confirm(&format!("Break {what}? Later puts of the holder under it are refused."), options.yes)?;
    }
    let client = connect(&options.list.place)?;
    let mut rows = Vec::new();
    for listing in held {
        let broken = client.segment(listing.name.as_str()).open()?.break_lock()?;
        rows.push(json!({ "name": listing.name.as_str(), "broken": broken }));
        if !json {
            println!("{}: {broken} broken", listing.name);
        }
    }
    if json {
        println!("{}", Value::Array(rows));
    } else if rows.is_empty() {
        println!("no lock is held on {}", options.list.pattern.as_deref().unwrap_or("any segment"));
    }
    Ok(())
}
