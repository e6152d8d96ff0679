//! Imports inside a crate: state below behaviour, without circles.

use ddss_testkit::repo_lints::{Source, folder_circles, import_circles, method_circles, sources, workspace_root};
use std::collections::BTreeMap;

/// Files of each crate, by their path below `src`.
fn crates(all: &[Source]) -> BTreeMap<&str, Vec<(&str, &str)>> {
    let mut crates: BTreeMap<&str, Vec<_>> = BTreeMap::new();
    for source in all.iter().filter(|source| source.path.ends_with(".rs")) {
        let path = source.path.strip_prefix("crates/").unwrap_or(&source.path);
        let Some((name, file)) = path.split_once('/') else { continue };
        if let Some(file) = file.strip_prefix("src/") {
            crates.entry(name).or_default().push((file, source.text.as_str()));
        }
    }
    assert!(crates.len() >= 17, "the crates were not read");
    crates
}

// If this failed, a file could only be understood together with the files that act on it.
#[test]
fn no_crate_has_an_import_circle() {
    let all = sources(&workspace_root()).expect("the repository can be read");
    let mut complaints = Vec::new();
    for (name, files) in crates(&all) {
        let circles = import_circles(files).unwrap_or_else(|error| panic!("{name}: {error}"));
        if !circles.is_empty() {
            complaints.push(format!("{name}: {circles:#?}"));
        }
    }
    assert!(complaints.is_empty(), "{}", complaints.join("\n"));
}

// If this failed, a folder would be a heap and no layer.
#[test]
fn folders_are_layers() {
    let all = sources(&workspace_root()).expect("the repository can be read");
    let mut complaints = Vec::new();
    for (name, mut files) in crates(&all) {
        // Tests of a lower layer may use a higher one.
        files.retain(|(file, _)| !file.split('/').any(|part| part.trim_end_matches(".rs").ends_with("tests")));
        let circles = folder_circles(files).unwrap_or_else(|error| panic!("{name}: {error}"));
        if !circles.is_empty() {
            complaints.push(format!("{name}: {circles:?}"));
        }
    }
    assert!(complaints.is_empty(), "folders that need each other:\n{}", complaints.join("\n"));
}

/// Types whose methods call each other in circles across files, by crate, and the number of those files. A number only falls.
const METHODS_IN_CIRCLES: &[(&str, &str, usize)] =
    &[("ddss", "ByteMap", 4), ("ddss", "Client", 2), ("ddss", "Segment", 6), ("ddss", "SharedChannel", 2)];

// If this failed, the files of one type could only be read together, as those of `Home` once.
#[test]
fn methods_call_no_circles_of_files() {
    let all = sources(&workspace_root()).expect("the repository can be read");
    let mut found = Vec::new();
    for (name, mut files) in crates(&all) {
        files.retain(|(file, _)| !file.split('/').any(|part| part.trim_end_matches(".rs").ends_with("tests")));
        let circles = method_circles(files).unwrap_or_else(|error| panic!("{name}: {error}"));
        found.extend(circles.into_iter().map(|(of, count)| (name, of, count)));
    }
    let found: Vec<_> = found.iter().map(|(name, of, count)| (*name, of.as_str(), *count)).collect();
    assert_eq!(found, METHODS_IN_CIRCLES, "types whose methods call each other in circles across files");
}

// If this failed, state of the engine could not be read, tested or changed without the engine.
#[test]
fn engine_state_knows_nothing_of_the_engine() {
    let all = sources(&workspace_root()).expect("the repository can be read");
    let state: Vec<&Source> =
        all.iter().filter(|source| source.path.starts_with("crates/ddss-engine/src/state/")).collect();
    assert!(state.len() > 10, "the files were not read");
    for source in state {
        for folder in ["engine::", "home::", "operations::", "lifecycle::", "remote::", "replication::", "dispatch::"] {
            assert!(!source.text.contains(&format!("use crate::{folder}")), "{} imports {folder}", source.path);
        }
    }
}
