//! Tests of the report, rendered from recorded rows.
#![allow(clippy::unwrap_used, reason = "a test ends where something is not as it should be")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use roxmltree::{Document, ParsingOptions};

/// Rows of every bench, few and as they were written by one.
fn recorded() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/recorded")
}

fn report(words: &[&str]) -> std::process::Output {
    Command::new(env!("CARGO_BIN_EXE_report")).args(words).output().unwrap()
}

/// The report of the recorded rows, in a folder of its own.
fn rendered() -> tempfile::TempDir {
    let out = tempfile::tempdir().unwrap();
    let from = recorded();
    let docs = out.path().join("docs");
    let words =
        ["--from", from.to_str().unwrap(), "--out", out.path().to_str().unwrap(), "--docs", docs.to_str().unwrap()];
    let output = report(&words);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    out
}

/// Parsed, which fails where it is not well formed.
fn parsed(text: &str) -> Document<'_> {
    Document::parse_with_options(text, ParsingOptions { allow_dtd: true, ..ParsingOptions::default() }).unwrap()
}

/// References to other hosts.
fn is_self_contained(document: &Document<'_>) {
    for node in document.descendants().filter(|node| node.is_element()) {
        let tag = node.tag_name().name();
        assert!(!["script", "link", "img", "iframe", "object", "embed", "use"].contains(&tag), "there is a {tag}");
        for attribute in node.attributes() {
            let (name, value) = (attribute.name(), attribute.value());
            let is_link = ["href", "src", "action", "data", "poster"].contains(&name);
            assert!(!is_link || value.starts_with('#'), "{name} of {tag} leads to {value}");
            assert!(!name.starts_with("on"), "{name} of {tag} runs something");
        }
        if tag == "style" {
            let style = node.text().unwrap_or_default();
            assert!(!style.contains("url(") && !style.contains("@import"), "a style asks for something");
            assert!(style.contains("prefers-color-scheme"), "the dark theme is missing");
        }
    }
}

const FIGURES: [&str; 15] = [
    "fig-3a",
    "fig-3b",
    "puts",
    "adapters",
    "atomics",
    "fig-4a",
    "fig-4a-price",
    "fig-4b",
    "steps",
    "cost",
    "open-loop",
    "table-1",
    "fig-5",
    "fig-6",
    "fig-7",
];

// If this failed, a page would not show in some browsers, or would request something from the network.
#[test]
fn page_is_complete_and_self_contained() {
    let out = rendered();
    let text = fs::read_to_string(out.path().join("index.html")).unwrap();
    let document = parsed(&text);
    is_self_contained(&document);
    let ids: Vec<&str> = document.descendants().filter_map(|node| node.attribute("id")).collect();
    let mut once = ids.clone();
    once.sort_unstable();
    once.dedup();
    assert_eq!(once.len(), ids.len(), "an id stands twice: a link leads to the wrong place");
    for link in document.descendants().filter_map(|node| node.attribute("href")) {
        assert!(ids.contains(&&link[1..]), "{link} leads nowhere");
    }
    for figure in FIGURES {
        assert!(ids.contains(&&*format!("{figure}-place")), "{figure} is not on the page");
    }
    for picture in document.descendants().filter(|node| node.tag_name().name() == "svg") {
        assert_eq!(picture.attribute("role"), Some("img"));
        for name in picture.attribute("aria-labelledby").unwrap().split(' ') {
            let label = document.descendants().find(|node| node.attribute("id") == Some(name)).unwrap();
            assert!(!label.text().unwrap_or_default().is_empty(), "{name} is empty for screen readers");
        }
    }
}

// If this failed, a figure of the paper would be missing from the report, or empty.
#[test]
fn every_figure_with_rows_shows_its_command_and_the_paper_values() {
    let out = rendered();
    let page = fs::read_to_string(out.path().join("index.html")).unwrap();
    let document = parsed(&page);
    let section = |figure: &str| {
        let place = format!("{figure}-place");
        document.descendants().find(|node| node.attribute("id") == Some(&*place)).unwrap()
    };
    for figure in FIGURES {
        let section = section(figure);
        let commands = section.descendants().find(|node| node.tag_name().name() == "pre").unwrap();
        let command = commands.text().unwrap();
        assert!(command.starts_with("cargo ") || command.starts_with("scripts/"), "{figure}: {command}");
        let marks = section.descendants().filter(|node| {
            let class = node.attribute("class").unwrap_or_default();
            class.starts_with("mark ") || class.starts_with("bar ")
        });
        assert!(marks.count() > 1, "{figure} has nothing in it");
        let picture = fs::read_to_string(out.path().join(figure).with_extension("svg")).unwrap();
        is_self_contained(&parsed(&picture));
        assert!(fs::read_to_string(out.path().join(format!("docs/figures/{figure}.svg"))).unwrap() == picture);
    }
    let words: String = section("fig-3a").descendants().filter_map(|node| node.text()).collect();
    for number in ["13 µs", "8.8 µs", "400 ns"] {
        assert!(words.contains(number), "the paper's {number} is missing");
    }
    let words: String = section("fig-4b").descendants().filter_map(|node| node.text()).collect();
    assert!(words.contains("SIMULATED") && words.contains("MEASURED"), "the labels SIMULATED and MEASURED are missing");
}

// If this failed, the documentation would show missing pictures, or pictures without a command.
#[test]
fn figures_page_shows_every_picture_with_its_command() {
    let out = rendered();
    let text = fs::read_to_string(out.path().join("docs/figures.md")).unwrap();
    for figure in FIGURES {
        assert!(text.contains(&format!("(figures/{figure}.svg)")), "{figure}");
    }
    assert_eq!(text.matches("```sh\n").count(), FIGURES.len());
    assert!(!text.contains("http"), "it needs nothing from elsewhere");
}

// If this failed, the raw results would differ from the drawn ones.
#[test]
fn raw_results_are_complete() {
    let out = rendered();
    let rows = |text: &str| text.lines().skip(1).filter(|line| !line.is_empty()).count();
    let files = fs::read_dir(recorded()).unwrap().map(|file| file.unwrap().path());
    let csv = files.filter(|path| path.extension().is_some_and(|extension| extension == "csv"));
    let simulated = rows(&fs::read_to_string(out.path().join("shape.csv")).unwrap());
    let all: usize = csv.map(|path| rows(&fs::read_to_string(path).unwrap())).sum::<usize>() + simulated;
    assert_eq!(rows(&fs::read_to_string(out.path().join("results.csv")).unwrap()), all);
    let json = fs::read_to_string(out.path().join("results.json")).unwrap();
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(json["rows"].as_array().unwrap().len(), all);
    assert_eq!(json["machine"]["processor"], "A processor that is recorded");
}

// If this failed, a truncated row would be drawn as complete.
#[test]
fn malformed_rows_are_errors_with_their_line() {
    let folder = tempfile::tempdir().unwrap();
    let contract = "name,op,size,mode,outstanding,p50_us,p99_us,ops_per_s";
    fs::write(folder.path().join("ipc.csv"), format!("{contract}\nddss,null,8,shm/rcq/t1,1,0.4")).unwrap();
    let path = folder.path().to_str().unwrap();
    let output = report(&["--from", path, "--out", path]);
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(!output.status.success() && said.contains("rows of ipc, line 2"), "{said}");
    assert_eq!(report(&["--quick"]).status.code(), Some(2), "without --out it does not know where to");
}
