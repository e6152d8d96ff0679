//! The page of log lines lists what the daemon logs: every line of the page is in the code, every warning and error is on the page.
#![allow(clippy::unwrap_used, reason = "a test ends where something is not as it should be")]

use std::collections::BTreeSet;
use std::fs;

use ddss_testkit::repo_lints;

/// Level and message of a log line.
type Line = (String, String);

const PAGE: &str = "docs/book/src/reference/log-lines.md";
const CRATES: &[&str] =
    &["crates/ddssd/src/", "crates/ddss-ipc/src/", "crates/ddss-verbs/src/", "crates/ddss-runtime/src/"];

/// The messages of `info!`, `warn!` and `error!` in a source: the last string of each call. A message with a
/// placeholder is left out, and so are the tests at the end of the source.
fn logged(source: &str) -> BTreeSet<Line> {
    let mut found = BTreeSet::new();
    let (source, _tests) = source.split_once("\n#[cfg(test)]\nmod tests {").unwrap_or((source, ""));
    for level in ["info", "warn", "error"] {
        let call = format!("{level}!(");
        for (at, _) in source.match_indices(&call) {
            let starts_a_word = source[..at].chars().next_back().is_none_or(|letter| !letter.is_alphanumeric());
            let message = last_string(&source[at + call.len()..]);
            if let (true, Some(message)) = (starts_a_word, message.filter(|message| !message.contains('{'))) {
                found.insert((level.to_owned(), message));
            }
        }
    }
    found
}

/// The last string literal before the bracket that closes a call.
fn last_string(arguments: &str) -> Option<String> {
    let (mut depth, mut last, mut open) = (1, None, None::<String>);
    let mut letters = arguments.chars();
    while let Some(letter) = letters.next() {
        match (letter, &mut open) {
            ('"', None) => open = Some(String::new()),
            ('"', Some(_)) => last = open.take(),
            ('\\', Some(text)) => text.extend(letters.next()),
            (letter, Some(text)) => text.push(letter),
            ('(', None) => depth += 1,
            (')', None) => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return last;
        }
    }
    None
}

/// The lines that the tables of the page list.
fn listed(page: &str) -> BTreeSet<Line> {
    let mut found = BTreeSet::new();
    for row in page.lines().filter(|line| line.starts_with("| ")) {
        let cells: Vec<&str> = row.split(" | ").collect();
        let level = cells[0].trim_start_matches("| ");
        if ["info", "warn", "error"].contains(&level) {
            found.extend(cells[1].split('`').skip(1).step_by(2).map(|line| (level.to_owned(), line.to_owned())));
        }
    }
    found
}

// If this failed, an operator would meet a line that no page explains, or search for one that is never written.
#[test]
fn log_page_and_code_have_the_same_lines() {
    let root = repo_lints::workspace_root();
    let page = listed(&fs::read_to_string(root.join(PAGE)).unwrap());
    let sources = repo_lints::sources(&root).unwrap();
    let product = sources.iter().filter(|source| {
        CRATES.iter().any(|folder| source.path.starts_with(folder))
            && source.path.ends_with(".rs")
            && !source.path.contains("/tests/")
    });
    let code: BTreeSet<Line> = product.flat_map(|source| logged(&source.text)).collect();
    assert!(code.len() > 50, "only {} log lines were read", code.len());
    let mut complaints: Vec<String> =
        page.difference(&code).map(|(level, line)| format!("{PAGE} lists {level} `{line}`: not in the code")).collect();
    let missing = code.difference(&page).filter(|(level, _)| level != "info");
    complaints.extend(missing.map(|(level, line)| format!("{PAGE} does not list {level} `{line}`")));
    assert!(complaints.is_empty(), "\n  {}\n", complaints.join("\n  "));
}

#[test]
fn messages_are_read_from_calls_of_any_shape() {
    let source = "info!(node = 1, reason(\"x\"), \"met ) it\"); tracing::warn!(\n \"late\"\n); debug!(\"no\"); error!(\"{sentence}\"); myinfo!(\"no\")";
    let line = |level: &str, message: &str| (level.to_owned(), message.to_owned());
    assert_eq!(logged(source), BTreeSet::from([line("info", "met ) it"), line("warn", "late")]));
    let page = "| level | line | meaning | action |\n| --- | --- | --- | --- |\n| warn | `a`, `b` | x | `c` |\n";
    assert_eq!(listed(page), BTreeSet::from([line("warn", "a"), line("warn", "b")]));
}
