//! The raw results, for programs.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

use super::machine::Machine;
use super::rows::{Entry, Rows};
use super::run::BenchRun;
use crate::harness::{CONTRACT, EXTRA_COLUMNS};

/// Formats all rows of all benches as one file. The last column is the bench. Columns of one bench only are before the
/// notes.
pub fn to_csv(rows: &Rows) -> String {
    let known = &EXTRA_COLUMNS[..EXTRA_COLUMNS.len() - 1];
    let further = rows.0.iter().flat_map(|entry| entry.more.keys().map(String::as_str));
    let further: BTreeSet<&str> = further.filter(|column| !EXTRA_COLUMNS.contains(column)).collect();
    let numbers: Vec<&str> = known.iter().copied().chain(further).collect();
    let line = |entry: &Entry| {
        let Entry { name, op, size, mode, outstanding, p50_us, p99_us, ops_per_s, .. } = entry;
        let more =
            numbers.iter().map(|column| entry.more(column).map_or_else(String::new, |number| number.to_string()));
        let more: Vec<String> = more.collect();
        let notes = entry.notes.replace(',', ";");
        let first = format!("{name},{op},{size},{mode},{outstanding},{p50_us},{p99_us},{ops_per_s}");
        format!("{first},{},{notes},{}\n", more.join(","), entry.bench)
    };
    let header = format!("{CONTRACT},{},notes,bench\n", numbers.join(","));
    std::iter::once(header).chain(rows.0.iter().map(line)).collect()
}

/// Converts the machine, the runs and all rows to JSON.
pub fn to_json(machine: &Machine, ran: &[BenchRun], rows: &Rows) -> Value {
    let row = |entry: &Entry| {
        let mut row = Map::new();
        let more = entry.more.iter().map(|(name, number)| (name.clone(), json!(number)));
        row.extend(more);
        let own = json!({
            "bench": entry.bench, "name": entry.name, "op": entry.op, "size": entry.size, "mode": entry.mode,
            "outstanding": entry.outstanding, "p50_us": entry.p50_us, "p99_us": entry.p99_us,
            "ops_per_s": entry.ops_per_s, "notes": entry.notes,
        });
        if let Value::Object(own) = own {
            row.extend(own);
        }
        Value::Object(row)
    };
    let rows: Vec<Value> = rows.0.iter().map(row).collect();
    let ran: Vec<Value> = ran.iter().map(BenchRun::json).collect();
    json!({ "machine": machine.json(), "ran": ran, "rows": rows })
}
