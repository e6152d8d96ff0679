//! Checks of the documentation pages against the tree.
#![allow(clippy::unwrap_used, reason = "a test ends where something is not as it should be")]

use std::fs;

use ddss_testkit::repo_lints::{self, Runnable};

/// Pages and directories of pages, each with its maximum number of words.
const WORDS_MAX: &[(&str, usize)] = &[
    ("README.md", 800),
    ("docs/architecture.md", 2_500),
    ("docs/protocol.md", 3_600),
    ("docs/notes/figures.md", 3_600),
    ("docs/", 17_200),
    (OPERATIONS, 6_000),
];
/// Pages that do not count towards `docs/`.
const COUNTED_APART: &[&str] = &["docs/protocol.md", "docs/notes/figures.md"];
/// Pages for operators are counted apart.
const OPERATIONS: &str = "docs/book/src/operations/";
/// Pages about one system that is built on the core: each has a limit of its own, beside that of `docs/`.
const SYSTEM_PAGES: &[&str] = &[
    "docs/book/src/streams.md",
    "docs/book/src/dsm.md",
    "docs/book/src/river.md",
    "docs/book/src/concepts/tables.md",
    "docs/book/src/concepts/large-values.md",
    "docs/notes/stream-figures.md",
    "docs/notes/river-figures.md",
];
const SYSTEM_PAGE_WORDS_MAX: usize = 1_500;
/// The most words of one decision. Decisions do not count towards `docs/`.
const DECISION_WORDS_MAX: usize = 400;

/// Returns a page without the drawings that are copies of the code, which name files beside the code (`protocol.rs`
/// checks them).
fn without_drawings(text: &str) -> String {
    let (mut marked, mut inside) = (false, false);
    let line = |line: &str| {
        let is_fence = line.starts_with("```");
        match (inside, is_fence) {
            (true, _) => inside = !is_fence,
            (false, true) if marked => inside = true,
            _ => marked = line.starts_with("<!-- drawing "),
        }
        if inside { String::new() } else { line.to_owned() }
    };
    text.lines().map(line).collect::<Vec<_>>().join("\n")
}

// If this failed, documentation would name files and functions that do not exist.
#[test]
fn documented_paths_and_names_exist() {
    let root = repo_lints::workspace_root();
    let complaints: Vec<String> = all_pages()
        .iter()
        .flat_map(|(path, text)| repo_lints::page_complaints(path, &without_drawings(text), &root))
        .collect();
    assert!(complaints.is_empty(), "\n  {}\n", complaints.join("\n  "));
}

// If this failed, a link would lead nowhere, in the repository or in the book.
#[test]
fn every_relative_link_leads_to_a_page_and_a_heading() {
    let root = repo_lints::workspace_root();
    let pages = all_pages();
    let complaints: Vec<String> =
        pages.iter().flat_map(|(path, text)| repo_lints::link_complaints(path, text, &root)).collect();
    assert!(complaints.is_empty(), "\n  {}\n", complaints.join("\n  "));
    // A page of the book that its table of contents does not name is not in the book.
    let (_, contents) = pages.iter().find(|(path, _)| path == "docs/book/src/SUMMARY.md").unwrap();
    for (path, _) in pages.iter().filter(|(path, _)| !path.ends_with("SUMMARY.md")) {
        if let Some(name) = path.strip_prefix("docs/book/src/") {
            assert!(contents.contains(&format!("({name})")), "{path} is not in docs/book/src/SUMMARY.md");
        }
    }
}

/// Returns true if a page has a limit of its own, beside that of `docs/`.
fn is_counted_apart(path: &str) -> bool {
    COUNTED_APART.contains(&path)
        || SYSTEM_PAGES.contains(&path)
        || path.starts_with(OPERATIONS)
        || path.starts_with("docs/decisions/0")
}

// If this failed, the docs would grow until nobody reads them.
#[test]
fn pages_stay_within_their_word_limits() {
    let pages = all_pages();
    let mut complaints = Vec::new();
    for (place, max) in WORDS_MAX {
        let within = pages.iter().filter(|(path, _)| {
            path == place
                || (place.ends_with('/')
                    && path.starts_with(place)
                    && (*place == OPERATIONS || !is_counted_apart(path)))
        });
        let count: usize = within.map(|(_, text)| repo_lints::word_count(text)).sum();
        assert!(count > 0, "{place} is not there");
        if count > *max {
            complaints.push(format!("{place} has {count} words: at most {max}"));
        }
    }
    for (path, text) in pages.iter().filter(|(path, _)| SYSTEM_PAGES.contains(&path.as_str())) {
        let count = repo_lints::word_count(text);
        if count > SYSTEM_PAGE_WORDS_MAX {
            complaints.push(format!("{path} has {count} words: at most {SYSTEM_PAGE_WORDS_MAX}"));
        }
    }
    let decisions = pages.iter().filter(|(path, _)| path.starts_with("docs/decisions/0"));
    for (path, text) in decisions {
        let count = repo_lints::word_count(text);
        if count > DECISION_WORDS_MAX {
            complaints.push(format!("{path} has {count} words: at most {DECISION_WORDS_MAX}"));
        }
    }
    assert!(complaints.is_empty(), "\n  {}\n", complaints.join("\n  "));
}

// If this failed, a query of an operator would select nothing.
#[test]
fn documented_metric_labels_are_in_the_code() {
    let root = repo_lints::workspace_root();
    let page = fs::read_to_string(root.join("docs/book/src/reference/metrics.md")).unwrap();
    let code = fs::read_to_string(root.join("crates/ddssd/src/metrics/exposition.rs")).unwrap();
    let (_, table) = page.split_once("| metric | labels | meaning |").unwrap();
    let rows = table.lines().take_while(|line| !line.starts_with("<!--")).filter(|line| line.starts_with("| `ddss_"));
    let in_rows = rows.filter_map(|row| row.split(" | ").nth(1)).flat_map(|cell| cell.split('`').skip(1).step_by(2));
    let in_text = page.split("label `").skip(1).filter_map(|rest| rest.split('`').next());
    let labels: Vec<&str> = in_rows.chain(in_text).collect();
    assert!(labels.len() > 8, "only {labels:?} were read");
    for label in labels {
        assert!(code.contains(&format!("{label}=\\\"")), "no metric has the label {label}");
    }
}

// If this failed, a number would name two decisions, or a decision would be missing from the list.
#[test]
fn decisions_are_numbered_once_and_listed() {
    let pages = all_pages();
    let (_, list) = pages.iter().find(|(path, _)| path == "docs/decisions/README.md").unwrap();
    let names = pages.iter().filter_map(|(path, _)| path.strip_prefix("docs/decisions/"));
    let mut numbers = Vec::new();
    for (name, text) in names.clone().zip(pages.iter().filter(|(path, _)| path.starts_with("docs/decisions/"))) {
        if name == "README.md" {
            continue;
        }
        let number = name.split('-').next().unwrap();
        assert!(list.contains(&format!("[{number}]({name})")), "{name} is not in docs/decisions/README.md");
        assert!(text.1.starts_with(&format!("# {number} ")), "the title of {name} has another number");
        numbers.push(number.parse::<usize>().unwrap());
    }
    assert_eq!(numbers, (1..=numbers.len()).collect::<Vec<_>>());
}

/// Returns every page for people, with its path: the pages in the root, and all below `docs`.
fn all_pages() -> Vec<(String, String)> {
    let read = ["README.md", "CONTRIBUTING.md", "examples/README.md"];
    let sources = repo_lints::sources(&repo_lints::workspace_root()).unwrap();
    let is_page = |path: &str| read.contains(&path) || (path.starts_with("docs/") && path.ends_with(".md"));
    let mut pages: Vec<(String, String)> =
        sources.into_iter().filter(|source| is_page(&source.path)).map(|source| (source.path, source.text)).collect();
    pages.sort();
    assert!(pages.len() > 40, "only {} pages were found", pages.len());
    pages
}

/// Targets that cargo can run in this workspace.
fn runnable() -> Runnable {
    let manifest = repo_lints::workspace_root().join("Cargo.toml");
    let metadata = cargo_metadata::MetadataCommand::new().manifest_path(manifest).no_deps().exec().unwrap();
    let mut there = Runnable::default();
    for package in &metadata.packages {
        there.packages.insert(package.name.to_string());
        for target in &package.targets {
            there.targets.extend(target.kind.iter().map(|kind| format!("--{kind} {}", target.name)));
        }
    }
    there
}

// If this failed, a page could show a number that cannot be reproduced.
#[test]
fn documented_figures_have_their_command() {
    let pages = all_pages();
    let complaints: Vec<String> =
        pages.iter().flat_map(|(path, text)| repo_lints::figure_complaints(path, text)).collect();
    assert!(complaints.is_empty(), "\n  {}\n", complaints.join("\n  "));
    // Each picture is on a page, and each picture on a page exists.
    let of_figures = |path: &str| {
        ["docs/notes/figures.md", "docs/notes/stream-figures.md", "docs/notes/river-figures.md"].contains(&path)
    };
    let found: Vec<&str> = pages.iter().filter(|(path, _)| of_figures(path)).map(|(_, text)| text.as_str()).collect();
    assert_eq!(found.len(), 3, "a page of figures is missing");
    let page = found.join("\n");
    let drawn = fs::read_dir(repo_lints::workspace_root().join("docs/notes/figures")).unwrap();
    for entry in drawn.map(|entry| entry.unwrap().file_name().into_string().unwrap()) {
        assert!(page.contains(&format!("(figures/{entry})")), "docs/notes/figures/{entry} is on no page");
    }
    let sections = found.iter().flat_map(|page| page.split("\n## ").skip(1));
    let sections: Vec<&str> = sections.filter(|section| section.contains("](figures/")).collect();
    assert!(sections.len() >= 8, "only {} figures", sections.len());
    for section in sections {
        let under = section.rsplit("```sh\n").next().unwrap();
        assert!(under.starts_with("cargo ") || under.starts_with("scripts/"), "no command under {section:.40}");
        assert!(under.trim_end().ends_with("```"), "something stands behind the command under {section:.40}");
    }
}

// If this failed, a page would show figures that were typed by hand, or keep old ones forever.
#[test]
fn pages_have_markers_for_generated_figures() {
    let measurements = "docs/notes/measurements.md";
    let places = ["ratios", "apart", "chaos", "demo"].map(|name| (measurements, name));
    for (page, name) in [("README.md", "figures")].into_iter().chain(places) {
        let text = fs::read_to_string(repo_lints::workspace_root().join(page)).unwrap();
        let (begin, end) = (format!("<!-- begin {name}:"), format!("<!-- end {name} -->"));
        assert_eq!((text.matches(&begin).count(), text.matches(&end).count()), (1, 1), "{name} in {page}");
        let (_, rest) = text.split_once(&begin).unwrap();
        let (inside, _) = rest.split_once(&end).unwrap();
        assert!(inside.lines().count() > 3, "{name} is empty in {page}");
    }
}

// If this failed, a page could name a command that no longer exists.
#[test]
fn documented_commands_name_existing_targets() {
    let (there, root) = (runnable(), repo_lints::workspace_root());
    assert!(there.targets.contains("--bench ipc") && there.packages.contains("ddss-cli"), "{there:?}");
    let complaints: Vec<String> =
        all_pages().iter().flat_map(|(path, text)| repo_lints::command_complaints(path, text, &there, &root)).collect();
    assert!(complaints.is_empty(), "\n  {}\n", complaints.join("\n  "));
}

// If this failed, the first test here could pass for any page.
#[test]
fn planted_wrong_path_and_name_are_reported() {
    let root = repo_lints::workspace_root();
    let page = fs::read_to_string(root.join("docs/architecture.md")).unwrap();
    for (right, wrong) in [
        ("crates/ddssd/src/shard/executor.rs", "crates/ddssd/src/performs.rs"),
        ("`RING_SLOTS`", "`RING_SLITS`"),
        ("decisions/README.md", "decisions/CONTENTS.md"),
    ] {
        assert!(page.contains(right), "{right} is not on the page any more: plant something else");
        let planted = page.replacen(right, wrong, 1);
        assert_eq!(repo_lints::page_complaints("docs/architecture.md", &planted, &root).len(), 1, "{wrong}");
    }
}
