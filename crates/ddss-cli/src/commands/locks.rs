//! Who holds the locks of segments, who waits, and how an operator ends one.

use super::segments::{as_json, lock_in_words, matching, note_missing};
use crate::arguments::LocksOptions;
use crate::confirm::confirm;
use crate::connect::connect;
use crate::error::CommandError;
use crate::output::table::{Table, seconds_in_words};
use ddss::{Listing, LockHolder};
use serde_json::{Value, json};

pub(crate) fn locks(wanted: &LocksOptions, json: bool) -> Result<(), CommandError> {
    let mut found = matching(&wanted.place, wanted.pattern.as_deref())?;
    found.retain(|listing| listing.holders > 0 || listing.waiting > 0);
    if wanted.break_them {
        return break_them(wanted, &found, json);
    }
    note_missing(&wanted.place);
    if json {
        println!("{}", Value::Array(found.iter().map(as_json).collect()));
        return Ok(());
    }
    table(&found).print_or("nobody holds a lock, or waits for one");
    Ok(())
}

fn table(found: &[Listing]) -> Table {
    let mut table = Table::new(&["NAME", "HOME", "LOCK", "HOLDER", "LEASE LEFT"]);
    for listing in found {
        let holder = listing.holder;
        table.row(vec![
            listing.name.to_string(),
            listing.home.0.to_string(),
            lock_in_words(listing),
            holder.map_or_else(|| "-".to_owned(), holder_in_words),
            holder.map_or_else(|| "-".to_owned(), |holder| seconds_in_words(holder.lease_left_us)),
        ]);
    }
    table
}

/// A client has a number on the segment's own home; of one elsewhere only its node is known.
pub(crate) fn holder_in_words(holder: LockHolder) -> String {
    match holder.client {
        Some(client) => format!("{}, client {client}", holder.node),
        None => holder.node.to_string(),
    }
}

fn break_them(wanted: &LocksOptions, found: &[Listing], json: bool) -> Result<(), CommandError> {
    let held: Vec<&Listing> = found.iter().filter(|listing| listing.holders > 0).collect();
    if !held.is_empty() && !wanted.yes {
        table(found).print_as_note();
        let count = held.len();
        let what = if count == 1 { "this lock".to_owned() } else { format!("these {count} locks") };
        confirm(&format!("Take {what} away? What its holder still puts under it is refused."), wanted.yes)?;
    }
    let client = connect(&wanted.place)?;
    let mut rows = Vec::new();
    for listing in held {
        let broken = client.open(listing.name.as_str())?.break_lock()?;
        rows.push(json!({ "name": listing.name.as_str(), "broken": broken }));
        if !json {
            println!("{}: {broken} taken away", listing.name);
        }
    }
    if json {
        println!("{}", Value::Array(rows));
    } else if rows.is_empty() {
        println!("nobody holds a lock of {}", wanted.pattern.as_deref().unwrap_or("any segment"));
    }
    Ok(())
}
