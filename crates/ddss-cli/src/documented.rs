//! Tests that every command line in docs, examples and help texts parses. (Compiled for tests only.)

use crate::arguments::Arguments;
use clap::error::ErrorKind;
use clap::{Command, CommandFactory};
use std::fs;
use std::path::{Path, PathBuf};

/// Returns the root of the workspace.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Returns all documentation pages and help texts, each with its name.
fn texts() -> Vec<(String, String)> {
    let pages = ["README.md", "CONTRIBUTING.md", "examples/README.md"];
    let mut paths: Vec<PathBuf> = pages.iter().map(|page| root().join(page)).collect();
    for folder in ["docs", "docs/book/src", "docs/book/src/concepts", "docs/book/src/reference", "docs/notes"] {
        let docs = fs::read_dir(root().join(folder)).expect("the pages are there").flatten().map(|entry| entry.path());
        paths.extend(docs.filter(|path| path.extension().is_some_and(|end| end == "md")));
    }
    let read = |path: PathBuf| (path.display().to_string(), fs::read_to_string(&path).expect("a page can be read"));
    let mut texts: Vec<(String, String)> = paths.into_iter().map(read).collect();
    let mut command = Arguments::command();
    command.build();
    texts.extend(helps(&command));
    texts
}

/// Returns the examples of a command and of its subcommands.
fn helps(command: &Command) -> Vec<(String, String)> {
    let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
    let mut found = vec![(format!("the help of {}", command.get_name()), help)];
    found.extend(
        command.get_subcommands().filter(|below| !below.is_hide_set() && below.get_name() != "help").flat_map(helps),
    );
    found
}

/// Extracts the command lines of a program from code blocks, examples and code spans.
fn commands_of(text: &str, program: &str) -> Vec<String> {
    let mut found = Vec::new();
    let (mut in_block, mut in_picture) = (false, false);
    for line in text.lines() {
        if let Some(kind) = line.strip_prefix("```") {
            let opens = !in_block && !in_picture;
            (in_block, in_picture) = (opens && kind != "text", opens && kind == "text");
            continue;
        }
        if in_picture {
            continue;
        }
        let trimmed = line.trim_start_matches(['$', ' ']);
        let runs = format!("cargo run --release --bin {program} -- ");
        let is_code = in_block || line.starts_with("  ");
        let spans: Vec<&str> = if is_code { vec![trimmed] } else { line.split('`').skip(1).step_by(2).collect() };
        for span in spans {
            // Each part of a pipe is a command of its own; a comment begins with `#`.
            let code = span.split(" #").next().unwrap_or(span);
            for part in code.split(['|', '>', ';', '&']).map(str::trim) {
                let part = part.strip_prefix(&runs).map_or_else(|| part.to_owned(), |rest| format!("{program} {rest}"));
                // Two blanks separate a command from its explanation.
                let part = part.split("  ").next().unwrap_or_default();
                if part.starts_with(&format!("{program} ")) {
                    found.push(part.to_owned());
                }
            }
        }
    }
    found
}

/// Returns the parse error of a line with an unknown command or flag; values may be placeholders (`NAME`).
fn complaint(command: &Command, line: &str) -> Option<String> {
    let error = command.clone().try_get_matches_from(words(line)).err()?;
    let is_wrong = matches!(error.kind(), ErrorKind::UnknownArgument | ErrorKind::InvalidSubcommand);
    is_wrong.then(|| format!("{line}: {}", error.to_string().lines().next().unwrap_or_default()))
}

/// Splits a line into words as a shell does; a quoted text is one word.
fn words(line: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    for (index, part) in line.split('\'').enumerate() {
        let last = words.last_mut().expect("there is one");
        if index % 2 == 1 {
            last.push_str(part);
            continue;
        }
        let mut plain = part.split(' ');
        last.push_str(plain.next().unwrap_or_default());
        words.extend(plain.map(str::to_owned));
    }
    words.retain(|word| !word.is_empty());
    words
}

#[test]
fn documented_commands_parse() {
    let ddss = Arguments::command();
    let ddssd = ddss_admin::Arguments::command();
    let mut counted = 0;
    let mut complaints = Vec::new();
    for (name, text) in texts() {
        for (program, command) in [("ddss", &ddss), ("ddssd", &ddssd)] {
            for line in commands_of(&text, program) {
                counted += 1;
                complaints.extend(complaint(command, &line).map(|said| format!("{name}: {said}")));
            }
        }
    }
    assert!(complaints.is_empty(), "\n  {}\n", complaints.join("\n  "));
    assert!(counted > 60, "only {counted} commands were found");
}

#[test]
fn every_command_has_examples_in_its_help() {
    let mut command = Arguments::command();
    command.build();
    let mut seen = 0;
    for (name, help) in helps(&command) {
        let wide = help.lines().find(|line| line.chars().count() > 79);
        assert!(wide.is_none(), "{name} breaks in a terminal of 80 columns: {wide:?}");
        let own = name.rsplit(' ').next().unwrap_or_default().to_owned();
        assert!(help.starts_with("Examples:\n"), "{name} has no examples");
        assert!(commands_of(&help, "ddss").iter().any(|line| line.contains(&own)), "{name} has no example of itself");
        seen += 1;
    }
    assert!(seen > 30, "only {seen} commands were checked");
}

// Without this test a broken extraction would let `documented_commands_parse` pass on any page.
#[test]
fn unknown_commands_and_flags_are_reported() {
    let page =
        "Try `ddss fly` or\n```sh\nddss get x --lenght 5   # typo\n$ ddss cluster token | ddss cluster jion 1 -\n```\n";
    let found = commands_of(page, "ddss");
    let expected = ["ddss fly", "ddss get x --lenght 5", "ddss cluster token", "ddss cluster jion 1 -"];
    assert_eq!(found, expected);
    let wrong: Vec<_> = found.iter().filter_map(|line| complaint(&Arguments::command(), line)).collect();
    assert_eq!(wrong.len(), 3, "{wrong:?}");
}
