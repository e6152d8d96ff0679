//! What the pages for people say about the tree is true.
#![allow(clippy::unwrap_used, reason = "a test ends where something is not as it should be")]

use std::fs;

use ddss_testkit::repo_lints::{self, Runnable};

/// The pages that are checked.
const PAGES: &[&str] = &[
    "README.md",
    "docs/ARCHITECTURE.md",
    "docs/MODELS.md",
    "docs/OPERATIONS.md",
    "docs/PROTOCOL.md",
    "docs/TESTING.md",
    "examples/README.md",
];

/// A page without the drawings that are copies out of the code (`protocol.rs` checks those): they name their neighbours.
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

// If this failed, a reader would follow the road into files and functions that are not there.
#[test]
fn every_path_on_a_page_exists_and_every_name_behind_it_stands_there() {
    let root = repo_lints::workspace_root();
    let complaints: Vec<String> = PAGES
        .iter()
        .flat_map(|page| {
            repo_lints::page_complaints(page, &without_drawings(&fs::read_to_string(root.join(page)).unwrap()), &root)
        })
        .collect();
    assert!(complaints.is_empty(), "\n  {}\n", complaints.join("\n  "));
}

/// Every page that people read, with its path.
fn all_pages() -> Vec<(String, String)> {
    let root = repo_lints::workspace_root();
    let mut paths = vec!["README.md".to_owned(), "examples/README.md".to_owned()];
    for folder in ["docs", "docs/decisions"] {
        let entries = fs::read_dir(root.join(folder)).unwrap().map(|entry| entry.unwrap().file_name());
        let names = entries.map(|name| format!("{folder}/{}", name.to_string_lossy()));
        paths.extend(names.filter(|name| name.ends_with(".md")));
    }
    paths.sort();
    let read = |path: String| (path.clone(), fs::read_to_string(root.join(path)).unwrap());
    paths.into_iter().map(read).collect()
}

/// What cargo can run in this workspace.
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

// If this failed, a reader would see a number that nobody can make again.
#[test]
fn every_figure_on_a_page_has_the_command_near_it_that_makes_it() {
    let pages = all_pages();
    let complaints: Vec<String> =
        pages.iter().flat_map(|(path, text)| repo_lints::figure_complaints(path, text)).collect();
    assert!(complaints.is_empty(), "\n  {}\n", complaints.join("\n  "));
    // The pictures: each is on the page, and each place for one has it.
    let page = &pages.iter().find(|(path, _)| path == "docs/FIGURES.md").unwrap().1;
    let drawn = fs::read_dir(repo_lints::workspace_root().join("docs/figures")).unwrap();
    for entry in drawn.map(|entry| entry.unwrap().file_name().into_string().unwrap()) {
        assert!(page.contains(&format!("(figures/{entry})")), "docs/figures/{entry} is on no page");
    }
    let sections: Vec<&str> = page.split("\n## ").skip(1).filter(|section| section.contains("](figures/")).collect();
    assert!(sections.len() >= 8, "only {} figures", sections.len());
    for section in sections {
        let under = section.rsplit("```sh\n").next().unwrap();
        assert!(under.starts_with("cargo ") || under.starts_with("scripts/"), "no command under {section:.40}");
        assert!(under.trim_end().ends_with("```"), "something stands behind the command under {section:.40}");
    }
}

// If this failed, the README would show figures that somebody typed, or keep old ones for ever.
#[test]
fn the_readme_has_the_places_that_its_figures_are_written_into() {
    let readme = fs::read_to_string(repo_lints::workspace_root().join("README.md")).unwrap();
    for name in ["demo", "figures", "chaos"] {
        let (begin, end) = (format!("<!-- begin {name}:"), format!("<!-- end {name} -->"));
        assert_eq!((readme.matches(&begin).count(), readme.matches(&end).count()), (1, 1), "{name}");
        let (_, rest) = readme.split_once(&begin).unwrap();
        let (inside, _) = rest.split_once(&end).unwrap();
        assert!(inside.lines().count() > 3, "{name} is empty");
    }
}

// If this failed, a reader would run a command that went away long ago.
#[test]
fn every_command_on_a_page_is_of_something_that_is_there() {
    let (there, root) = (runnable(), repo_lints::workspace_root());
    assert!(there.targets.contains("--bench ipc") && there.packages.contains("ddss-cli"), "{there:?}");
    let complaints: Vec<String> =
        all_pages().iter().flat_map(|(path, text)| repo_lints::command_complaints(path, text, &there, &root)).collect();
    assert!(complaints.is_empty(), "\n  {}\n", complaints.join("\n  "));
}

// If this failed, the first test here could pass whatever the page says.
#[test]
fn a_wrong_path_and_a_wrong_name_planted_into_the_real_page_are_found() {
    let root = repo_lints::workspace_root();
    let page = fs::read_to_string(root.join("docs/ARCHITECTURE.md")).unwrap();
    for (right, wrong) in [
        ("crates/ddssd/src/shard/executor.rs", "crates/ddssd/src/performs.rs"),
        ("`get_far`", "`got_far`"),
        ("decisions/0003-one-end-per-request.md", "decisions/0003-two-ends-per-request.md"),
    ] {
        assert!(page.contains(right), "{right} is not on the page any more: plant something else");
        let planted = page.replacen(right, wrong, 1);
        assert_eq!(repo_lints::page_complaints("docs/ARCHITECTURE.md", &planted, &root).len(), 1, "{wrong}");
    }
}
