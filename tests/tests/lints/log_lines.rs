//! The page of log lines lists what the daemon logs: every line of the page is in the code, every warning and error is
//! on the page. Texts that the other pages of the book quote are in the code.
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
            let starts_a_word =
                source[..at].chars().next_back().is_none_or(|letter| !letter.is_alphanumeric() && letter != '_');
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

/// Programs whose command lines are quoted like texts.
const PROGRAMS: &[&str] = &["cargo", "ddss", "ddssd", "docker", "ip", "rdma", "scripts/vm", "systemctl"];

/// The texts that a page of the book quotes: code spans of three or more plain words. An ellipsis and the number of a
/// node stand for any text, so that the parts beside them are returned.
fn quoted(page: &str) -> Vec<String> {
    let is_text = |span: &&str| {
        let words: Vec<&str> = span.split(' ').collect();
        let is_plain = |word: &&str| word.chars().all(|letter| letter.is_alphabetic() || "':;,.…".contains(letter));
        words.len() >= 3 && words.iter().all(is_plain) && !PROGRAMS.contains(&words[0])
    };
    let spans = page.lines().flat_map(|line| line.split('`').skip(1).step_by(2)).filter(is_text);
    let parts = spans.flat_map(|span| span.split('…').flat_map(|part| part.split("node N")));
    parts.map(|part| part.trim().to_owned()).filter(|part| part.contains(' ')).collect()
}

// If this failed, an operator would look for a message that no program writes.
#[test]
fn texts_that_the_book_quotes_are_in_the_code() {
    let root = repo_lints::workspace_root();
    let code: String = repo_lints::sources(&root).unwrap().iter().map(|source| joined_literals(&source.text)).collect();
    let mut count = 0;
    for folder in ["docs/book/src", "docs/book/src/concepts"] {
        for entry in fs::read_dir(root.join(folder)).unwrap() {
            let path = entry.unwrap().path();
            if path.extension().is_some_and(|extension| extension == "md") {
                for text in quoted(&fs::read_to_string(&path).unwrap()) {
                    assert!(code.contains(&text), "{} quotes `{text}`: not in the code", path.display());
                    count += 1;
                }
            }
        }
    }
    assert!(count > 10, "only {count} texts were read");
}

/// A source whose string literals of several lines are joined to one.
fn joined_literals(source: &str) -> String {
    let mut pieces = source.split("\\\n");
    let first = pieces.next().unwrap_or_default().to_owned();
    pieces.fold(first, |joined, piece| joined + piece.trim_start())
}

#[test]
fn quoted_texts_are_separated_from_commands() {
    let page = "`the disk is full`, `ddss cluster remove`, `--a b c`, `two words`\n`cannot lock … bytes of it`, `node N is away`";
    assert_eq!(quoted(page), ["the disk is full", "cannot lock", "bytes of it", "is away"]);
    assert_eq!(joined_literals("\"a \\\n   b\""), "\"a b\"");
}

#[test]
fn messages_are_read_from_calls_of_any_shape() {
    let source = "info!(node = 1, reason(\"x\"), \"met ) it\"); tracing::warn!(\n \"late\"\n); debug!(\"no\"); error!(\"{sentence}\"); myinfo!(\"no\"); compile_error!(\"no\")";
    let line = |level: &str, message: &str| (level.to_owned(), message.to_owned());
    assert_eq!(logged(source), BTreeSet::from([line("info", "met ) it"), line("warn", "late")]));
    let page = "| level | line | meaning | action |\n| --- | --- | --- | --- |\n| warn | `a`, `b` | x | `c` |\n";
    assert_eq!(listed(page), BTreeSet::from([line("warn", "a"), line("warn", "b")]));
}
