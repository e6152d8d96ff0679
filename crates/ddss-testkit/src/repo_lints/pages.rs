//! Checks that paths and names in documentation pages exist.
//!
//! A word of a page is a path if it contains a `/` and ends in `/` or like a file of this repository, or if it ends in
//! `.rs` or `.toml`. Code spans directly behind a path in a code span are names that must occur in that file.

use std::path::Path;

/// File extensions of paths that pages name.
const ENDINGS: &[&str] = &["/", ".rs", ".toml", ".md", ".sh"];

/// Returns the paths and names in `text` that do not exist in the tree below `root`. `path` is the path of the page.
pub fn page_complaints(path: &str, text: &str, root: &Path) -> Vec<String> {
    let mut complaints = Vec::new();
    let folder = path.rsplit_once('/').map_or("", |(folder, _)| folder);
    for (index, line) in text.lines().enumerate() {
        for word in paths(line) {
            // A link is relative to the page, every other path to the root.
            let (from_root, from_page) = (root.join(word), root.join(folder).join(word));
            let is_link = [')', '#'].iter().any(|end| line.contains(&format!("({word}{end}")));
            let exists = from_root.exists() || (is_link && from_page.exists());
            if !exists {
                complaints.push(format!("{path}:{} names {word}, which does not exist", index + 1));
            }
        }
    }
    for (file, name) in promises(text) {
        // The missing file is already reported.
        let Ok(found) = std::fs::read_to_string(root.join(&file)) else { continue };
        let is_word = |part: &str| part.chars().all(|letter| letter.is_alphanumeric() || letter == '_');
        let mut parts = found.split(|letter: char| !(letter.is_alphanumeric() || letter == '_'));
        if is_word(&name) && !parts.any(|part| part == name) {
            complaints.push(format!("{path} says that {name} stands in {file}, which it does not"));
        }
    }
    complaints
}

/// Returns the words of a line that are paths.
fn paths(line: &str) -> impl Iterator<Item = &str> {
    let is_part = |letter: char| letter.is_alphanumeric() || "_-./".contains(letter);
    line.split(move |letter| !is_part(letter)).map(|word| word.trim_end_matches('.')).filter(|word| {
        let in_folder = word.contains('/') && ENDINGS.iter().any(|ending| word.ends_with(ending));
        let is_file = word.ends_with(".rs") || word.ends_with(".toml");
        // Absolute paths and web addresses are outside the repository.
        !word.starts_with('/') && (is_file || in_folder)
    })
}

/// Returns each file in a code span with each of the code spans right behind it, of which only the last part of a `::`
/// path counts.
fn promises(text: &str) -> Vec<(String, String)> {
    let mut found = Vec::new();
    let mut file: Option<&str> = None;
    for (index, part) in text.split('`').enumerate() {
        let in_span = index % 2 == 1;
        if !in_span {
            let close = part.chars().all(char::is_whitespace) && !part.contains("\n\n") && !part.is_empty();
            file = file.filter(|_| close);
        } else if part.ends_with(".rs") {
            file = Some(part);
        } else if let Some(file) = file {
            let name = part.rsplit("::").next().unwrap_or(part);
            found.push((file.to_owned(), name.trim_end_matches("()").to_owned()));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn complaints(text: &str) -> Vec<String> {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(folder.path().join("a/src")).unwrap();
        std::fs::create_dir_all(folder.path().join("docs")).unwrap();
        std::fs::write(folder.path().join("a/src/b.rs"), "fn carry(parcel: u8) {}").unwrap();
        std::fs::write(folder.path().join("docs/OTHER.md"), "").unwrap();
        page_complaints("docs/PAGE.md", text, folder.path())
    }

    // If this failed, a page could send its reader to deleted files.
    #[test]
    fn wrong_path_is_reported_with_its_line() {
        assert_eq!(complaints("good\nsee `a/src/c.rs`"), ["docs/PAGE.md:2 names a/src/c.rs, which does not exist"]);
        assert_eq!(complaints("in a/lost/ and b.rs, too").len(), 2);
        assert_eq!(complaints("[there](GONE.md) or docs/GONE.md").len(), 1);
        assert_eq!(complaints("`a/src/b.rs`, `a/src/`, a/src/b.rs. [o](OTHER.md#top) (a/src/b.rs)"), [""; 0]);
    }

    // If this failed, every page would fail the check.
    #[test]
    fn foreign_paths_are_ignored() {
        let text = "and/or, 5/6, /dev/shm/x.rs, https://example.org/a.md, `$DIR/ddss`, x86/64, ops/s.";
        assert_eq!(complaints(text), [""; 0]);
    }

    // If this failed, a page could name functions that were renamed long ago.
    #[test]
    fn name_after_path_must_occur_in_that_file() {
        assert_eq!(complaints("`a/src/b.rs` `carry` `Cart::parcel` and `nothing`"), [""; 0]);
        let wrong = complaints("`a/src/b.rs` `carry`\n  `haul`, `pull`");
        assert_eq!(wrong, ["docs/PAGE.md says that haul stands in a/src/b.rs, which it does not"]);
    }
}
