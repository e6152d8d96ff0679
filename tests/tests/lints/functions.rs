//! Length of functions.

use ddss_testkit::repo_lints::{function_lengths, sources, workspace_root};

/// Lines of code of a function.
const LINES_MAX: usize = 70;

/// Longer functions, by file and name, each with its reason. Entries only go.
const LONGER: &[(&str, &str)] = &[
    // A list of one operation of each kind.
    ("crates/ddss-core/src/request/request/tests.rs", "operations"),
    // What each action, completion and operation means in the simulated world: one arm each, which no other code needs.
    ("crates/ddss-sim/src/cluster/executor.rs", "act"),
    ("crates/ddss-sim/src/cluster/completions.rs", "done"),
    ("crates/ddss-sim/src/cluster/workload.rs", "choose"),
    ("crates/ddss-sim/src/cluster/workload.rs", "ask_for"),
    // The commands of the client that tests drive, one arm each.
    ("tests/src/bin/client.rs", "obey"),
];

// If this failed, functions would grow past what a reader keeps in mind.
#[test]
fn functions_are_short() {
    let all = sources(&workspace_root()).expect("the repository can be read");
    let mut long = Vec::new();
    for source in all.iter().filter(|source| source.path.ends_with(".rs") && source.path.contains("/src/")) {
        let functions = function_lengths(&source.text).unwrap_or_else(|error| panic!("{}: {error}", source.path));
        let is_long = |(_, lines): &(String, usize)| *lines > LINES_MAX;
        long.extend(functions.into_iter().filter(is_long).map(|(name, lines)| (source.path.clone(), name, lines)));
    }
    let is_excepted = |path: &str, name: &str| LONGER.contains(&(path, name));
    let complaints: Vec<_> = long.iter().filter(|(path, name, _)| !is_excepted(path, name)).collect();
    assert!(complaints.is_empty(), "more than {LINES_MAX} lines of code: {complaints:#?}");
    let is_needed = |(path, name): &&(&str, &str)| {
        long.iter().any(|(other, long, _)| (path, name) == (&other.as_str(), &long.as_str()))
    };
    let needless: Vec<_> = LONGER.iter().filter(|except| !is_needed(except)).collect();
    assert!(needless.is_empty(), "short by now: {needless:#?}");
}
