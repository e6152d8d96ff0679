//! Links and lengths of pages: a relative link leads to a page and a heading that exist, and a page stays short.

use std::path::{Component, Path, PathBuf};

/// Returns the links in `text` that lead nowhere. `page` is the path of the page below `root`. A page of the book may
/// link only to pages of the book.
pub fn link_complaints(page: &str, text: &str, root: &Path) -> Vec<String> {
    let folder = Path::new(page).parent().unwrap_or(Path::new(""));
    let book = page.find("book/src/").map(|at| &page[..at + "book/src/".len()]);
    let mut complaints = Vec::new();
    for (line, target) in links(text) {
        if target.contains("://") || target.starts_with("mailto:") {
            continue;
        }
        let (path, heading) = target.split_once('#').unwrap_or((&target, ""));
        let found = if path.is_empty() { Some(PathBuf::from(page)) } else { normal(&folder.join(path)) };
        let Some(found) = found.filter(|found| root.join(found).exists()) else {
            complaints.push(format!("{page}:{line} links to {target}, which does not exist"));
            continue;
        };
        if book.is_some_and(|book| !found.starts_with(book)) {
            complaints
                .push(format!("{page}:{line} links to {target}, which is not in the book: name its path instead"));
        }
        let is_page = found.extension().is_some_and(|end| end == "md");
        if !heading.is_empty() && is_page {
            let linked = if path.is_empty() { Ok(text.to_owned()) } else { std::fs::read_to_string(root.join(&found)) };
            if !linked.is_ok_and(|linked| headings(&linked).any(|slug| slug == heading)) {
                complaints.push(format!("{page}:{line} links to {target}, which has no such heading"));
            }
        }
    }
    complaints
}

/// Returns the number of words of a page. A word has a letter or a digit: the marks of tables and drawings do not
/// count.
pub fn word_count(text: &str) -> usize {
    text.split_whitespace().filter(|word| word.chars().any(char::is_alphanumeric)).count()
}

/// Returns the path without `.` and `..`, or `None` if it leaves the tree.
fn normal(path: &Path) -> Option<PathBuf> {
    let mut normal = PathBuf::new();
    for part in path.components() {
        match part {
            Component::Normal(name) => normal.push(name),
            Component::ParentDir if !normal.pop() => return None,
            Component::ParentDir | Component::CurDir => {}
            Component::RootDir | Component::Prefix(_) => return None,
        }
    }
    Some(normal)
}

/// Returns the lines of a page outside of its code blocks, numbered from 1.
fn prose(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut is_code = false;
    text.lines().enumerate().filter_map(move |(index, line)| {
        let is_fence = line.trim_start().starts_with("```");
        is_code ^= is_fence;
        (!is_code && !is_fence).then_some((index + 1, line))
    })
}

/// Returns the targets of links and pictures, each with its line. Code spans contain no links.
fn links(text: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    for (number, line) in prose(text) {
        let plain: String = line.split('`').step_by(2).collect::<Vec<_>>().join("");
        for (at, mark) in plain.match_indices("](") {
            let rest = &plain[at + mark.len()..];
            if let Some((target, _)) = rest.split_once(')') {
                found.push((number, target.to_owned()));
            }
        }
    }
    found
}

/// Returns the anchors of a page's headings, as GitHub and mdBook make them.
fn headings(text: &str) -> impl Iterator<Item = String> {
    prose(text).filter_map(|(_, line)| {
        let title = line.strip_prefix('#')?.trim_start_matches('#').trim();
        let letters = title.chars().filter(|letter| letter.is_alphanumeric() || " -_".contains(*letter));
        Some(letters.map(|letter| if letter == ' ' { '-' } else { letter.to_ascii_lowercase() }).collect())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn complaints(page: &str, text: &str) -> Vec<String> {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(folder.path().join("docs/book/src/a")).unwrap();
        std::fs::write(folder.path().join("docs/other.md"), "# A title\n## Stop, upgrade\n").unwrap();
        std::fs::write(folder.path().join("docs/book/src/in.md"), "# In\n").unwrap();
        std::fs::write(folder.path().join(page), text).unwrap();
        link_complaints(page, text, folder.path())
    }

    // If this failed, a page could lead its reader nowhere.
    #[test]
    fn broken_link_is_found_with_its_line() {
        assert_eq!(
            complaints("docs/x.md", "good\n[o](gone.md)"),
            ["docs/x.md:2 links to gone.md, which does not exist"]
        );
        assert_eq!(complaints("docs/x.md", "[o](other.md#titel) [p](#none) [q](../../out.md)").len(), 3);
        let good = "# Here\n[o](other.md#stop-upgrade), ![p](../docs/other.md), [q](#here), [r](https://example.org/x)\n\
                    `[s](gone.md)`\n```text\n[t](gone.md)\n```\n";
        assert_eq!(complaints("docs/x.md", good), [""; 0]);
    }

    // If this failed, the book would have links that work in the repository only.
    #[test]
    fn book_page_links_to_pages_of_the_book_only() {
        assert_eq!(complaints("docs/book/src/a/x.md", "[i](../in.md#in)"), [""; 0]);
        assert_eq!(complaints("docs/book/src/a/x.md", "[o](../../../other.md)").len(), 1);
    }

    #[test]
    fn marks_of_tables_are_no_words() {
        assert_eq!(word_count("| a word | --- |\n+----+ 5 µs"), 4);
    }
}
