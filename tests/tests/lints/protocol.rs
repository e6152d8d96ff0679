//! Checks of the protocol page against the code: every number, table and drawing on it.
#![allow(clippy::unwrap_used, reason = "a test ends where something is not as it should be")]

use std::collections::BTreeMap;
use std::fs;

use ddss_core::Failure;
use ddss_testkit::repo_lints;

fn read(path: &str) -> String {
    fs::read_to_string(repo_lints::workspace_root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

fn page() -> String {
    read("docs/protocol.md")
}

/// Returns the rows of the table with this head, cell by cell.
fn table(page: &str, head: &str) -> Vec<Vec<String>> {
    let start = page.find(head).unwrap_or_else(|| panic!("there is no table {head}"));
    let rows = page[start..].lines().skip(2).take_while(|line| line.starts_with('|'));
    rows.map(|row| row.trim_matches('|').split(" | ").map(|cell| cell.trim().to_owned()).collect()).collect()
}

fn plain(cell: &str) -> &str {
    cell.trim_matches('`')
}

/// Returns the drawings of a file, without its comment marks.
fn drawings(source: &str) -> Vec<String> {
    let (mut found, mut open): (Vec<String>, Option<Vec<&str>>) = (Vec::new(), None);
    for line in source.lines() {
        let comment = line.trim_start().strip_prefix("//!").or_else(|| line.trim_start().strip_prefix("///"));
        let comment = comment.map(|comment| comment.strip_prefix(' ').unwrap_or(comment).trim_end());
        match (comment, &mut open) {
            (Some("```text"), None) => open = Some(Vec::new()),
            (Some("```"), Some(lines)) => {
                found.push(lines.join("\n"));
                open = None;
            }
            (Some(comment), Some(lines)) => lines.push(comment),
            (None, Some(_)) => open = None,
            _ => {}
        }
    }
    found
}

// If this failed, the page would show a field at a wrong offset.
#[test]
fn documented_layouts_match_the_code() {
    let page = page();
    let mut count = 0;
    for (start, mark) in page.match_indices("<!-- drawing ") {
        let words = page[start + mark.len()..].split_once(" -->").unwrap().0;
        let (number, path) = words.split_once(" of ").unwrap();
        let shown = page[start..].split_once("```text\n").unwrap().1.split_once("\n```").unwrap().0;
        let drawn = drawings(&read(path));
        let drawn =
            drawn.get(number.parse::<usize>().unwrap()).unwrap_or_else(|| panic!("{path} has no drawing {number}"));
        assert_eq!(shown, drawn, "copy drawing {number} of {path} onto the page");
        count += 1;
    }
    assert!(count > 10, "only {count} drawings were found");
}

/// Returns the value of a simple constant: a number, or a shifted one.
fn worth(words: &str) -> u64 {
    let number =
        |words: &str| words.trim().replace('_', "").parse::<u64>().unwrap_or_else(|_| panic!("{words} is no number"));
    words.split_once("<<").map_or_else(|| number(words), |(value, by)| number(value) << number(by))
}

// If this failed, another implementation would be written for a wrong release.
#[test]
fn documented_numbers_match_the_code() {
    let rows = table(&page(), "| constant | value |");
    assert!(rows.len() > 15);
    for row in rows {
        let (name, value, path) = (plain(&row[0]), &row[1], plain(&row[3]));
        let source = read(path);
        let line =
            source.lines().find(|line| line.contains(&format!("const {name}: "))).unwrap_or_else(|| panic!("{name}"));
        let found = line.split_once(" = ").unwrap().1.trim_end_matches(';');
        assert_eq!(worth(found), value.parse::<u64>().unwrap(), "{name} in {path}");
    }
}

// If this failed, the page would miss a request, or list one that does not exist.
#[test]
fn every_request_is_documented() {
    let mut listed: Vec<u8> = table(&page(), "| `op` | what |")
        .iter()
        .flat_map(|row| row[0].split(", ").map(|op| op.parse().unwrap()).collect::<Vec<u8>>())
        .collect();
    let source = read("crates/ddss-core/src/request/request.rs");
    let mut known: Vec<u8> = source
        .lines()
        .filter_map(|line| {
            line.strip_prefix("pub(crate) ")
                .unwrap_or(line)
                .strip_prefix("const OP_")?
                .split_once(": u8 = ")?
                .1
                .trim_end_matches(';')
                .parse()
                .ok()
        })
        .collect();
    listed.sort_unstable();
    known.sort_unstable();
    assert_eq!(listed, known);
}

// If this failed, the page would describe a failure wrongly, or under another number.
#[test]
fn every_failure_is_documented() {
    let rows = table(&page(), "| number | name | message |");
    let known = (1..=u8::MAX).filter(|&code| Failure::from_code(code).code() == code).count();
    assert_eq!(rows.len(), known);
    for row in rows {
        let failure = Failure::from_code(row[0].parse().unwrap());
        assert_eq!((plain(&row[1]), &row[2]), (failure.name(), &failure.to_string()));
    }
}

/// Returns the bytes of a field as the page writes it.
fn bytes_of(field: &str) -> usize {
    let (words, note) = field.split_once(" (").unwrap_or((field, ""));
    let whole = words.split(' ').next_back().unwrap();
    match (whole, note.trim_end_matches(')')) {
        ("", _) | (_, "the rest") => 0,
        (_, "option") => 9,
        ("u8", _) => 1,
        ("u16" | "2×u8", _) => 2,
        ("u32" | "timeout", _) => 4,
        ("u64" | "principal", _) => 8,
        ("requested", _) => 5,
        ("window", _) => 20,
        ("conditions", _) => 23,
        ("spec", _) => 24,
        ("info", _) => 36,
        ("request", _) => 60,
        (unknown, _) => panic!("how long is {unknown}?"),
    }
}

/// Returns the bytes of a field by its type; the text of a name is the rest of its message.
fn bytes_of_type(of: &str) -> usize {
    match of {
        "Name" => 0,
        "bool" | "u8" | "OfferReply" | "ReplicaAck" => 1,
        "Outcome" => 2,
        "u32" | "UploadId" => 4,
        "u64" | "ClientId" | "LockToken" | "Principal" | "SegmentId" | "Timestamp" | "Version" => 8,
        "Permissions" => 10,
        "Part" => 12,
        "RemoteWindow" => 20,
        "PutConditions" => 23,
        "Spec" => 24,
        "SegmentInfo" => 36,
        "Request" => 60,
        unknown => panic!("how long is {unknown}?"),
    }
}

/// Returns the fields of a row; commas in brackets do not separate fields.
fn fields(cell: &str) -> Vec<String> {
    let (mut found, mut depth) = (vec![String::new()], 0);
    for letter in cell.chars() {
        match letter {
            '(' => depth += 1,
            ')' => depth -= 1,
            ',' if depth == 0 => {
                found.push(String::new());
                continue;
            }
            _ => {}
        }
        found.last_mut().unwrap().push(letter);
    }
    found.iter().map(|field| field.trim().to_owned()).collect()
}

// If this failed, the page would show a message field at a wrong position.
#[test]
fn every_message_is_documented_with_its_length() {
    let declared = read("crates/ddss-core/src/peer/message.rs");
    let declared = declared.split_once("pub enum Message {").unwrap().1.split_once("\n}\n").unwrap().0;
    // Bytes of each field of each message, by its type.
    let (mut bytes, mut message): (BTreeMap<(&str, &str), usize>, &str) = (BTreeMap::new(), "");
    for line in declared.lines().map(str::trim).filter(|line| !line.starts_with("///")) {
        if let Some(name) = line.strip_suffix(" {") {
            message = name;
        } else if let Some((field, of)) = line.trim_end_matches(',').split_once(": ") {
            bytes.insert((message, field), bytes_of_type(of));
        }
    }
    let source = read("crates/ddss-core/src/codec/message_codec.rs");
    let list = source.split_once("\nencode_messages! {\n").unwrap().1.split_once("\n}\n").unwrap().0;
    let mut written: BTreeMap<&str, (u8, usize)> = BTreeMap::new();
    for line in list.lines() {
        let (head, fields) = line.trim_end_matches(" }").split_once(" { ").unwrap();
        let (number, name) = head.trim().split_once(' ').unwrap();
        let sum = fields.split(", ").map(|field| bytes[&(name, field)]).sum();
        written.insert(name, (number.parse().unwrap(), sum));
    }
    let rows = table(&page(), "| kind | message | fields |");
    assert_eq!(rows.len(), written.len(), "{written:?}");
    for row in rows {
        let (number, name) = (row[0].parse().unwrap(), plain(&row[1]));
        let bytes = fields(&row[2]).iter().map(|field| bytes_of(field)).sum::<usize>();
        assert_eq!(written.get(name), Some(&(number, bytes)), "{name}: {}", row[2]);
    }
}
