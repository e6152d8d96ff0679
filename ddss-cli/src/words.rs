//! Sentences for people: in a terminal they go on in the next line before a word would be broken by its edge. Where
//! nobody watches (a pipe, a file) a sentence is one line, so that scripts find it whole.

use crate::failure::WRITE_OUT;
use rustix::termios::tcgetwinsize;
use std::fmt::{Arguments, Display};
use std::io::{ErrorKind, Write};
use std::os::fd::AsFd;

/// Letters that a line has at the least, however narrow the terminal is.
const LINE_LEAST: usize = 24;
/// Where the words of a fact begin, behind its name.
const FACT_INDENT: usize = 10;

/// How wide the terminal is behind this descriptor, if there is one.
pub(crate) fn columns(behind: impl AsFd) -> Option<usize> {
    let size = tcgetwinsize(behind).ok()?;
    (size.ws_col > 0).then_some(size.ws_col.into())
}

/// The sentence in lines of so many letters at the most; all but the first begin with so many blanks, and what begins
/// the sentence is kept. A word that is longer than a line is left whole: it may be a path that somebody copies.
pub(crate) fn wrapped(sentence: &str, indent: usize, most: usize) -> Vec<String> {
    let most = most.max(indent + LINE_LEAST);
    let mut lines: Vec<String> = Vec::new();
    let mut line = sentence.chars().take_while(|letter| *letter == ' ').collect::<String>();
    let mut has_words = false;
    for word in sentence.trim_start().split(' ') {
        if has_words && line.chars().count() + 1 + word.chars().count() > most {
            lines.push(std::mem::replace(&mut line, " ".repeat(indent)));
            has_words = false;
        }
        if has_words {
            line.push(' ');
        }
        line.push_str(word);
        has_words = true;
    }
    lines.push(line);
    lines
}

/// To standard output, within its terminal.
pub(crate) fn say(sentence: &str, indent: usize) {
    let most = columns(std::io::stdout()).unwrap_or(usize::MAX);
    wrapped(&harmless(sentence), indent, most).iter().for_each(|line| println!("{line}"));
}

/// A name or a path that somebody chose must not paint the terminal of who reads it.
fn harmless(words: &str) -> String {
    words.replace(char::is_control, "\u{fffd}")
}

/// A fact: its name, and what is to be said about it.
pub(crate) fn fact(name: &str, words: impl Display) {
    say(&format!("{name:<FACT_INDENT$}{words}"), FACT_INDENT);
}

/// To standard error, within its terminal: an error, or a note beside what standard output has.
pub(crate) fn complain(sentence: &str) {
    let most = columns(std::io::stderr()).unwrap_or(usize::MAX);
    wrapped(&harmless(&format!("ddss: {sentence}")), "ddss: ".len(), most).iter().for_each(|line| note(line));
}

/// A line to standard error.
pub(crate) fn note(line: &str) {
    // Who does not listen to notes is no reason to stop.
    let _ = writeln!(std::io::stderr(), "{line}");
}

/// Standard output takes no more, and this is the exit code that says so.
pub(crate) struct Unheard(pub(crate) u8);

/// How a shell names the end of a program whose reader has gone: 128 and SIGPIPE.
pub(crate) const READER_GONE: u8 = 141;

/// A line to standard output: what `println!` means in this program. When its reader has gone (`| head -1`), everything is
/// taken down as after an error, and nothing is said: `main` ends as a shell expects it.
pub(crate) fn line(words: Arguments<'_>) {
    if let Err(error) = writeln!(std::io::stdout(), "{words}") {
        let code = if error.kind() == ErrorKind::BrokenPipe { READER_GONE } else { 1 };
        if code != READER_GONE {
            complain(&format!("cannot {WRITE_OUT}: {error}"));
        }
        std::panic::resume_unwind(Box::new(Unheard(code)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // If this failed, a narrow terminal would break words in their middle, or a script would find half a sentence.
    #[test]
    fn a_sentence_goes_on_in_the_next_line_and_keeps_its_words() {
        let sentence = "  → start one with `ddssd`, or name its folder with --dir";
        assert_eq!(wrapped(sentence, 4, usize::MAX), [sentence]);
        let lines = wrapped(sentence, 4, 30);
        assert_eq!(lines, ["  → start one with `ddssd`, or", "    name its folder with --dir"]);
        assert!(lines.iter().all(|line| line.chars().count() <= 30));
        let path = format!("in /{}", "long/".repeat(20));
        assert_eq!(wrapped(&path, 2, 30)[1].trim_start(), &path[3..]);
        assert_eq!(wrapped("", 2, 30), [""]);
        // However narrow, there is room for a word.
        assert!(wrapped("a few short words of no great length", 10, 1).len() < 5);
    }
}
