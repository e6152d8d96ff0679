//! Tests of the report, rendered from recorded rows.
#![allow(clippy::unwrap_used, reason = "a test ends where something is not as it should be")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::LazyLock;

use ddss_benches::report::{Drawn, Panel};
use roxmltree::{Document, ParsingOptions};

/// Directory with a few recorded rows of every bench.
fn recorded() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/recorded")
}

fn report(words: &[&str]) -> std::process::Output {
    Command::new(env!("CARGO_BIN_EXE_report")).args(words).output().unwrap()
}

/// The report of the recorded rows, made once for all tests: its simulation takes seconds.
static RENDERED: LazyLock<PathBuf> = LazyLock::new(|| {
    let out = Path::new(env!("CARGO_TARGET_TMPDIR")).join("report");
    if out.exists() {
        fs::remove_dir_all(&out).unwrap();
    }
    let (from, docs) = (recorded(), out.join("docs"));
    let words = ["--from", from.to_str().unwrap(), "--out", out.to_str().unwrap(), "--docs", docs.to_str().unwrap()];
    let output = report(&words);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    out
});

/// Parses a document; panics if it is not well-formed.
fn parsed(text: &str) -> Document<'_> {
    Document::parse_with_options(text, ParsingOptions { allow_dtd: true, ..ParsingOptions::default() }).unwrap()
}

/// Checks that a picture has only plain shapes and text: no scripts, no styles, no references.
fn is_plain(document: &Document<'_>) {
    const TAGS: [&str; 10] = ["svg", "title", "desc", "rect", "text", "line", "polyline", "polygon", "circle", "path"];
    for node in document.descendants().filter(roxmltree::Node::is_element) {
        let tag = node.tag_name().name();
        assert!(TAGS.contains(&tag), "there is a {tag}");
        for attribute in node.attributes() {
            let (name, value) = (attribute.name(), attribute.value());
            assert!(!["class", "style", "href"].contains(&name), "{tag} has {name}={value}");
            assert!(!name.starts_with("on") && !value.contains('('), "{tag} has {name}={value}");
        }
    }
}

/// The pages with their figures.
const PAGES: [(&str, &[&str]); 3] = [
    ("figures.md", &FIGURES),
    ("stream-figures.md", &["stream-2", "stream-3", "stream-4"]),
    ("river-figures.md", &["river-1", "river-4", "river-5", "river-6", "river-7", "river-9", "river-10"]),
];

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

// If this failed, a figure of the paper would be missing from the report, or empty, or black in some viewers.
#[test]
fn every_figure_with_rows_is_drawn_with_plain_shapes() {
    for figure in PAGES.iter().flat_map(|(_, figures)| *figures) {
        let picture = fs::read_to_string(RENDERED.join(format!("figures/{figure}.svg"))).unwrap();
        let document = parsed(&picture);
        is_plain(&document);
        assert_eq!(document.root_element().attribute("role"), Some("img"));
        for label in ["title", "desc"] {
            let label = document.descendants().find(|node| node.tag_name().name() == label).unwrap();
            assert!(!label.text().unwrap_or_default().is_empty(), "{figure} says nothing to screen readers");
        }
        let ground = document.descendants().find(|node| node.tag_name().name() == "rect").unwrap();
        assert_eq!(ground.attribute("fill"), Some("#FFFFFF"), "{figure} has no white ground");
        for side in ["width", "height"] {
            let [whole, own] =
                [document.root_element(), ground].map(|node| node.attribute(side).unwrap().parse::<u32>());
            assert!(own.unwrap() + 1 >= whole.unwrap(), "the ground of {figure} does not reach its {side}");
        }
        let marks = ["polygon", "circle", "rect"];
        let marks = document.descendants().filter(|node| marks.contains(&node.tag_name().name())).count();
        assert!(marks > 3, "{figure} has nothing in it");
        assert!(fs::read_to_string(RENDERED.join(format!("docs/figures/{figure}.svg"))).unwrap() == picture);
    }
}

// If this failed, a panel would have too many lines, or the paper's numbers at a wrong place or nowhere.
#[test]
fn panels_have_few_series_and_the_paper_values() {
    let drawn = Drawn::parse(&fs::read_to_string(RENDERED.join("figures.json")).unwrap()).unwrap();
    for picture in &drawn.pictures {
        for panel in &picture.panels {
            let Panel::Curves(curves) = panel else { continue };
            assert!(curves.curves.len() <= 6, "{}, {}: {} series", picture.id, curves.title, curves.curves.len());
        }
    }
    let words = |figure: &str| {
        let picture = fs::read_to_string(RENDERED.join(format!("figures/{figure}.svg"))).unwrap();
        parsed(&picture).descendants().filter_map(|node| node.text().map(str::to_owned)).collect::<String>()
    };
    for (figure, numbers) in [
        ("fig-3a", vec!["MQ 13 µs", "RMQ 8.8 µs", "RCQ 400 ns"]),
        ("fig-3b", vec!["MQ 22.6 µs", "RMQ 11.3 µs", "RCQ 8.2 µs"]),
        ("table-1", vec!["rtree 20%", "3.92 ms", "storm 1000K", "11.1 s"]),
        ("fig-5", vec!["MQ 13 %", "RMQ 7.8 %", "RCQ 5.7 %"]),
        ("fig-7", vec!["up to 1.5"]),
        ("fig-4b", vec!["SIMULATED", "MEASURED"]),
        ("stream-2", vec!["0.9", "1.2", "basic, one system call a write", "bare TCP"]),
        ("stream-3", vec!["sender", "copies: sender", "cache traffic of both sides"]),
        ("stream-4", vec!["virtual microscope", "iso-surface", "shared memory"]),
        ("river-1", vec!["a disk at a third"]),
        ("river-5", vec!["queue without recall", "static"]),
        ("river-7", vec!["graduated mirrors", "plain mirrors", "15 nodes"]),
    ] {
        let words = words(figure);
        let paper = match figure {
            _ if figure.starts_with("stream") => "the paper (2008",
            _ if figure.starts_with("river") => "the paper (1999",
            _ => "the paper (2007",
        };
        let has_marks = !["fig-4b", "river-5", "river-7"].contains(&figure);
        assert!(!has_marks || words.contains(paper), "{figure} does not explain the hollow marks");
        for number in numbers {
            assert!(words.contains(number), "{number} is missing in {figure}");
        }
    }
}

// If this failed, the documentation would show missing pictures, or pictures without a command.
#[test]
fn figures_page_shows_every_picture_with_its_command() {
    for (page, figures) in PAGES {
        let text = fs::read_to_string(RENDERED.join("docs").join(page)).unwrap();
        for figure in figures {
            assert!(text.contains(&format!("(figures/{figure}.svg)")), "{figure}");
        }
        assert_eq!(text.matches("```sh\n").count(), figures.len());
        for under in text.split("```sh\n").skip(1) {
            assert!(under.starts_with("cargo ") || under.starts_with("scripts/"), "{under:.40}");
        }
        assert!(!text.contains("http"), "it needs nothing from elsewhere");
    }
}

/// The text of a file of a directory.
fn text_of(folder: &Path, name: &str) -> String {
    fs::read_to_string(folder.join(name)).unwrap()
}

// If this failed, rows of one bench could not be shown without measuring everything again, or would change other figures.
#[test]
fn redrawing_with_rows_replaces_only_their_figures() {
    let folder = tempfile::tempdir().unwrap();
    let (data, rows) = (RENDERED.join("figures.json"), folder.path().join("wire.csv"));
    let wire = text_of(&recorded(), "wire.csv");
    let (head, lines) = wire.split_once('\n').unwrap();
    // The copies of the sender, with other numbers.
    let changed: Vec<String> = lines.lines().map(|line| line.replace(",2.0000,2.0000,", ",1.5000,2.0000,")).collect();
    fs::write(&rows, format!("{head}\n{}\n", changed.join("\n"))).unwrap();
    let out = folder.path().to_path_buf();
    let [data, rows, out] = [&data, &rows, &out].map(|path| path.to_str().unwrap());
    assert!(report(&["--redraw", data, "--with", rows, "--out", out]).status.success());
    for name in PAGES.iter().flat_map(|(_, figures)| *figures) {
        let [before, after] =
            [&**RENDERED, folder.path()].map(|folder| text_of(folder, &format!("figures/{name}.svg")));
        assert_eq!(before != after, *name == "stream-3", "{name}");
    }
    let page = text_of(folder.path(), "stream-figures.md");
    assert_eq!(page.matches("Measured apart from the other figures").count(), 2, "of two figures there are new rows");
}

// If this failed, a run without the bench of the streams would draw empty axes, or no page.
#[test]
fn figures_without_rows_say_how_to_measure_them() {
    let folder = tempfile::tempdir().unwrap();
    fs::copy(recorded().join("ipc.csv"), folder.path().join("ipc.csv")).unwrap();
    let path = folder.path().to_str().unwrap();
    assert!(report(&["--from", path, "--out", path]).status.success());
    let page = text_of(folder.path(), "stream-figures.md");
    assert_eq!(page.matches("| Figure ").count(), 3, "{page}");
    assert!(page.contains("--bench wire") && page.contains("--bin filters"), "{page}");
    assert!(!page.contains(".svg"), "{page}");
}

// If this failed, the raw results would differ from the drawn ones.
#[test]
fn raw_results_are_complete() {
    let rows = |text: &str| text.lines().skip(1).filter(|line| !line.is_empty()).count();
    let files = fs::read_dir(recorded()).unwrap().map(|file| file.unwrap().path());
    let csv = files.filter(|path| path.extension().is_some_and(|extension| extension == "csv"));
    let simulated = rows(&fs::read_to_string(RENDERED.join("shape.csv")).unwrap());
    let all: usize = csv.map(|path| rows(&fs::read_to_string(path).unwrap())).sum::<usize>() + simulated;
    assert_eq!(rows(&fs::read_to_string(RENDERED.join("results.csv")).unwrap()), all);
    let json = fs::read_to_string(RENDERED.join("results.json")).unwrap();
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
