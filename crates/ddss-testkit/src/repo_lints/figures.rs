//! Checks that documented figures have a command nearby, and that documented commands name existing targets.

use std::collections::BTreeSet;
use std::path::Path;

/// Units of measured numbers.
const UNITS: &[&str] = &["ns", "µs", "k/s", "M/s", "million calls", "million a second"];
/// Beginnings of commands that produce a figure.
const MAKERS: &[&str] = &["cargo ", "scripts/", "ddss bench", "ddss demo"];

/// Packages that cargo can run, and their targets as `--bin NAME`, `--test NAME`, ...
#[derive(Debug, Clone, Default)]
pub struct Runnable {
    /// Names of packages.
    pub packages: BTreeSet<String>,
    /// Targets as they are written on the command line.
    pub targets: BTreeSet<String>,
}

/// Returns the measured figures without a command in their section. A decision record counts as one section.
pub fn figure_complaints(page: &str, text: &str) -> Vec<String> {
    let is_decision = page.contains("decisions/");
    let mut complaints = Vec::new();
    let (mut first, mut makes) = (None, false);
    let mut end = |first: &mut Option<usize>, makes: &mut bool| {
        if let (Some(line), false) = (first.take(), *makes) {
            complaints.push(format!("{page}:{line} has a figure, and its section no command that makes it"));
        }
        *makes = false;
    };
    for (index, line) in text.lines().enumerate() {
        if line.starts_with('#') && !line.starts_with("# ") && !is_decision {
            end(&mut first, &mut makes);
        }
        if has_figure(line) {
            first = first.or(Some(index + 1));
        }
        makes |= line.split('`').any(|part| MAKERS.iter().any(|maker| part.starts_with(maker)));
    }
    end(&mut first, &mut makes);
    complaints
}

/// Returns true if the text has a number with a unit of measurement.
fn has_figure(line: &str) -> bool {
    UNITS.iter().any(|unit| {
        line.match_indices(&format!(" {unit}")).any(|(at, found)| {
            let before = line[..at].chars().next_back().is_some_and(|letter| letter.is_ascii_digit());
            let behind = line[at + found.len()..].chars().next().is_none_or(|letter| !letter.is_alphanumeric());
            before && behind
        })
    })
}

/// Returns the commands on a page that name a missing package, target or script.
pub fn command_complaints(page: &str, text: &str, there: &Runnable, root: &Path) -> Vec<String> {
    let mut complaints = Vec::new();
    let parts = text.lines().enumerate().flat_map(|(index, line)| line.split('`').map(move |part| (index + 1, part)));
    for (line, part) in parts {
        let part = part.trim_start_matches(['$', ' ']);
        let words: Vec<&str> =
            part.split_whitespace().map(|word| word.trim_end_matches([',', ')', '.', ':'])).collect();
        // Packages outside the workspace are built by their own manifest.
        let is_apart = words.contains(&"--manifest-path") || words.contains(&"fuzz");
        if part.contains("cargo ") && !is_apart {
            let own: Vec<&str> = words.iter().copied().take_while(|word| *word != "--").collect();
            for pair in own.windows(2) {
                let known = match pair[0] {
                    "-p" | "--package" => there.packages.contains(pair[1]),
                    "--bin" | "--bench" | "--test" | "--example" => {
                        there.targets.contains(&format!("{} {}", pair[0], pair[1]))
                    }
                    _ => true,
                };
                // A placeholder is written in capitals.
                if !known && pair[1].chars().any(char::is_lowercase) {
                    complaints.push(format!("{page}:{line} runs {} {}, which does not exist", pair[0], pair[1]));
                }
            }
        }
        let script = words.first().filter(|word| word.starts_with("scripts/") && word.len() > "scripts/".len());
        if let Some(script) = script.filter(|script| !root.join(script).exists()) {
            complaints.push(format!("{page}:{line} runs {script}, which does not exist"));
        }
    }
    complaints
}

#[cfg(test)]
mod tests {
    use super::*;

    // If this failed, a page could show a number that cannot be reproduced.
    #[test]
    fn figure_without_command_is_reported_with_its_line() {
        let complaints = |text: &str| figure_complaints("docs/PAGE.md", text);
        assert_eq!(
            complaints("## A\nIt takes 12 µs.\n## B\n`cargo bench`"),
            ["docs/PAGE.md:2 has a figure, and its section no command that makes it"]
        );
        assert_eq!(complaints("## A\n12 ns\n```sh\nscripts/figures\n```\n## B\n3.5 M/s\n").len(), 1);
        assert_eq!(complaints("## A\n12 ns and `cargo bench -p x`\nwithin 3 s, 5 nsx, microseconds"), [""; 0]);
        assert_eq!(figure_complaints("docs/decisions/1.md", "# A\n1 µs\n## B\n`scripts/guard`"), [""; 0]);
    }

    // If this failed, a page could name a command that no longer exists.
    #[test]
    fn missing_cargo_target_is_reported() {
        let set = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect();
        let there = Runnable { packages: set(&["a"]), targets: set(&["--bench x"]) };
        let folder = tempfile::tempdir().unwrap();
        let complaints = |text: &str| command_complaints("PAGE.md", text, &there, folder.path());
        assert_eq!(complaints("cargo bench -p a --bench x -- --test nothing\n`cargo run -p PACKAGE`"), [""; 0]);
        assert_eq!(
            complaints("cargo bench -p b --bench y\n"),
            ["PAGE.md:1 runs -p b, which does not exist", "PAGE.md:1 runs --bench y, which does not exist"]
        );
        assert_eq!(complaints("so `scripts/nothing --now` does").len(), 1);
    }
}
