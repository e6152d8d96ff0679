//! What the pages for people say about the tree is true.
#![allow(clippy::unwrap_used, reason = "a test ends where something is not as it should be")]

use std::fs;

use ddss_tests::house;

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
    let root = house::workspace_root();
    let complaints: Vec<String> = PAGES
        .iter()
        .flat_map(|page| {
            house::page_complaints(page, &without_drawings(&fs::read_to_string(root.join(page)).unwrap()), &root)
        })
        .collect();
    assert!(complaints.is_empty(), "\n  {}\n", complaints.join("\n  "));
}

// If this failed, the test above could pass whatever the page says.
#[test]
fn a_wrong_path_and_a_wrong_name_planted_into_the_real_page_are_found() {
    let root = house::workspace_root();
    let page = fs::read_to_string(root.join("docs/ARCHITECTURE.md")).unwrap();
    for (right, wrong) in [
        ("ddssd/src/perform.rs", "ddssd/src/performs.rs"),
        ("`get_far`", "`got_far`"),
        ("decisions/0003-one-end-per-request.md", "decisions/0003-two-ends-per-request.md"),
    ] {
        assert!(page.contains(right), "{right} is not on the page any more: plant something else");
        let planted = page.replacen(right, wrong, 1);
        assert_eq!(house::page_complaints("docs/ARCHITECTURE.md", &planted, &root).len(), 1, "{wrong}");
    }
}
