//! Parity of the blocking and the asynchronous API, checked by reading the sources.
#![allow(clippy::unwrap_used, reason = "a test may")]

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// Pairs of types, as their `impl` lines are written.
const TWINS: [(&str, &str); 6] = [
    ("Client", "AsyncClient"),
    ("Segment", "AsyncSegment"),
    ("LockGuard", "AsyncLockGuard"),
    ("Batch", "AsyncBatch"),
    ("Shared<T>", "Shared<T, AsyncSegment>"),
    ("SharedSlice<T>", "SharedSlice<T, AsyncSegment>"),
];

/// Methods that only one type of a pair has, with the reason.
const ALONE: [(&str, &str, &str); 8] = [
    ("Client", "connect", "a task's client begins as one that blocks"),
    ("Client", "builder", "as `connect`"),
    ("Client", "to_async", "leads to the twin"),
    ("AsyncClient", "blocking", "leads back"),
    ("Segment", "get_many_into_while", "a task joins two futures"),
    ("Client", "strategy", "of both: `blocking().strategy()`"),
    ("Client", "socket", "of both: `blocking().socket()`"),
    ("Client", "shard_count", "of both: `blocking().shard_count()`"),
];

/// Methods with another name, since one type has both functions.
const RENAMED: [(&str, &str); 3] = [("new", "new_async"), ("allocate", "allocate_async"), ("open", "open_async")];

type Functions = BTreeMap<String, BTreeSet<String>>;

/// Returns the type of a line like `impl<T: Bound> Shared<T, S> {`; `None` for a trait's implementation.
fn type_of(line: &str) -> Option<&str> {
    let rest = line.strip_prefix("impl")?.strip_suffix(" {")?;
    let mut depth = 0;
    let generics = rest.char_indices().find(|&(_, letter)| {
        depth += i32::from(letter == '<') - i32::from(letter == '>');
        letter == ' ' && depth == 0
    });
    let name = &rest[generics?.0 + 1..];
    (!name.contains(" for ")).then_some(name)
}

fn read(folder: &Path, into: &mut Functions) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            read(&path, into);
            continue;
        }
        let text = std::fs::read_to_string(&path).unwrap();
        let mut inside = None;
        for line in text.lines() {
            if line.starts_with("impl") {
                inside = type_of(line);
            } else if line == "}" {
                inside = None;
            }
            let function = ["    pub fn ", "    pub async fn "].iter().find_map(|begin| line.strip_prefix(begin));
            if let (Some(name), Some(function)) = (inside, function) {
                let function = function.split(['(', '<']).next().unwrap();
                into.entry(name.to_owned()).or_default().insert(function.to_owned());
            }
        }
    }
}

#[test]
fn blocking_and_async_api_have_the_same_methods() {
    // If this failed, a service would have to block where it wants to await many calls, or the reverse.
    let mut functions = Functions::new();
    read(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"), &mut functions);
    let of = |name: &str| functions.get(name).unwrap_or_else(|| panic!("{name} is not in {functions:?}")).clone();
    assert!(of("Segment").contains("get_into") && of("AsyncSegment").contains("put_many"), "the sources were not read");
    let mut lacking = Vec::new();
    for (blocking, task) in TWINS {
        let (mut here, mut there) = (of(blocking), of(task));
        for (name, function, why) in ALONE {
            if name == blocking {
                assert!(here.remove(function), "{name} has no {function} any more ({why})");
            } else if name == task {
                assert!(there.remove(function), "{name} has no {function} any more ({why})");
            }
        }
        if task.contains('<') {
            let renamed = |name: &String| RENAMED.iter().find(|(old, _)| old == name).map(|(_, new)| (*new).to_owned());
            here = here.iter().map(|name| renamed(name).unwrap_or_else(|| name.clone())).collect();
        }
        lacking.extend(here.difference(&there).map(|function| format!("{task}::{function}")));
        lacking.extend(there.difference(&here).map(|function| format!("{blocking}::{function}")));
        // The documentation says so too.
        let page = include_str!("../src/async_client/mod.rs");
        assert!(page.contains(&format!("| [`{blocking}`]")) || page.contains(&format!("| `{blocking}`")), "{blocking}");
    }
    assert!(lacking.is_empty(), "missing: {lacking:?}");
}

#[test]
fn parity_check_reads_the_sources() {
    // If this failed, the test could pass whatever the sources say.
    assert_eq!(type_of("impl Segment {"), Some("Segment"));
    assert_eq!(type_of("impl<T: FromBytes + IntoBytes> Shared<T, AsyncSegment> {"), Some("Shared<T, AsyncSegment>"));
    assert_eq!(type_of("impl<T, S: Clone> Clone for Shared<T, S> {"), None);
    assert_eq!(type_of("impl Drop for Locked {"), None);
}
