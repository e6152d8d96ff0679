//! Examples of public types: each type has an example, and each example runs.
#![allow(clippy::unwrap_used, reason = "a test may")]

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// Files with re-exports, each with the folders of the types.
const EXPORTS: [(&str, &[&str]); 4] = [
    ("src/lib.rs", &["src", "../ddss-core/src", "../ddss-ipc/src"]),
    ("src/blocking/mod.rs", &["src/blocking"]),
    ("src/api/mod.rs", &["src/api"]),
    ("src/aio/mod.rs", &["src/aio", "src/async_client"]),
];

fn rust_files(folder: &Path, into: &mut Vec<(PathBuf, String)>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            rust_files(&path, into);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let text = std::fs::read_to_string(&path).unwrap();
            into.push((path, text));
        }
    }
}

/// Returns the names in the `pub use` lines of a `lib.rs`.
fn shown(text: &str) -> Vec<String> {
    let uses = text.split("\npub use ").skip(1).map(|rest| rest.split(';').next().unwrap());
    let words = uses.flat_map(|line| line.split(|letter: char| !letter.is_alphanumeric() && letter != '_'));
    let is_type = |word: &&str| {
        let mut letters = word.chars();
        letters.next().is_some_and(char::is_uppercase) && letters.any(char::is_lowercase)
    };
    words.filter(is_type).map(str::to_owned).collect()
}

/// Returns the doc comment of a type.
fn documentation<'text>(text: &'text str, name: &str) -> Option<Vec<&'text str>> {
    // A macro indents what it defines.
    let lines: Vec<&str> = text.lines().map(str::trim_start).collect();
    let begins = |line: &str| {
        let kinds = ["pub struct ", "pub enum ", "pub type ", "pub trait "];
        let rest = kinds.iter().find_map(|kind| line.strip_prefix(kind));
        rest.and_then(|rest| rest.strip_prefix(name)).is_some_and(|rest| !rest.starts_with(char::is_alphanumeric))
    };
    let at = lines.iter().position(|line| begins(line))?;
    let above = lines[..at].iter().rev().take_while(|line| line.starts_with("///") || line.starts_with("#["));
    Some(above.copied().collect())
}

#[test]
fn every_public_type_has_a_runnable_example() {
    // If this failed, a newcomer would have to guess how a type is used.
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let (mut known, mut without) = (BTreeSet::new(), Vec::new());
    for (exports, folders) in EXPORTS {
        let mut files = Vec::new();
        folders.iter().for_each(|folder| rust_files(&root.join(folder), &mut files));
        for name in shown(&std::fs::read_to_string(root.join(exports)).unwrap()) {
            let Some(lines) = files.iter().find_map(|(_, text)| documentation(text, &name)) else {
                without.push(format!("{name} of {exports} (not found)"));
                continue;
            };
            // An opening fence without attributes: its code is compiled and run.
            let fences = lines.iter().rev().filter(|line| line.starts_with("/// ```"));
            if !fences.step_by(2).any(|line| *line == "/// ```") {
                without.push(format!("{name} of {exports}"));
            }
            known.insert(name);
        }
    }
    assert!(without.is_empty(), "no example that runs: {without:?}");
    // The last two are types of fields: a program that stores such a field has to name its type.
    for name in ["Client", "Segment", "Cell", "Version", "Strategy", "Error", "ErrorKind", "LockInfo", "LimitReached"] {
        assert!(known.contains(name), "{name} is not among {known:?}");
    }
    let mut files = Vec::new();
    rust_files(&root.join("src"), &mut files);
    for (path, text) in &files {
        for kind in ["no_run", "ignore", "should_panic"] {
            assert!(!text.contains(&format!("```{kind}")), "an example that does not run in {}", path.display());
        }
    }
}
