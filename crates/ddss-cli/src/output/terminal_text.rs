//! Sentences for people: in a terminal they go on in the next line before a word would be broken by its edge. Where
//! nobody watches (a pipe, a file) a sentence is one line, so that scripts find it whole.

use crate::error::WRITE_OUT;
use rustix::termios::tcgetwinsize;
use serde_json::{Value, json};
use std::fmt::{Arguments, Display};
use std::io::{ErrorKind, IsTerminal, Write};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
use unicode_width::UnicodeWidthChar;

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
        if has_words && width(&line) + 1 + width(word) > most {
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

/// Whether a terminal would do something else with it than show it: a command, or a letter that hides, or that turns
/// the line around so that it reads as another one. Names may have the latter.
fn is_deceit(letter: char) -> bool {
    let hides = matches!(letter, '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{2060}'..='\u{2064}');
    let turns =
        matches!(letter, '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{206f}' | '\u{feff}' | '\u{e0000}'..='\u{e007f}');
    letter.is_control() || hides || turns
}

/// A name or a path that somebody chose must not paint the terminal of who reads it.
pub(crate) fn harmless(words: &str) -> String {
    words.replace(is_deceit, "\u{fffd}")
}

/// How many columns of a terminal it takes.
pub(crate) fn width(words: &str) -> usize {
    words.chars().map(letter_width).sum()
}

/// The same of one letter; one that is not shown as it is has the width of what stands for it.
pub(crate) fn letter_width(letter: char) -> usize {
    if is_deceit(letter) { 1 } else { letter.width().unwrap_or(1) }
}

/// Whether these bytes can be written to a terminal as they are: text, and nothing that it takes for a command. Zeroes
/// are not seen.
pub(crate) fn is_shown_as_it_is(bytes: &[u8]) -> bool {
    let is_plain = |letter: char| matches!(letter, '\n' | '\t' | '\0') || !is_deceit(letter);
    std::str::from_utf8(bytes).is_ok_and(|text| text.chars().all(is_plain))
}

/// A fact: its name, and what is to be said about it.
pub(crate) fn fact(name: &str, words: impl Display) {
    say(&format!("{name:<FACT_INDENT$}{words}"), FACT_INDENT);
}

/// Whether a script listens, which asked for JSON: each line to standard error is an object then, too.
static AS_JSON: AtomicBool = AtomicBool::new(false);

/// From now on a script listens.
pub(crate) fn speak_json() {
    AS_JSON.store(true, Ordering::Relaxed);
}

fn speaks_json() -> bool {
    AS_JSON.load(Ordering::Relaxed)
}

/// To standard error: why the command fails, with which exit code, and what to do next.
pub(crate) fn fail(sentence: &str, code: u8, step: Option<&str>) {
    if speaks_json() {
        return object(&json!({ "error": sentence, "code": code, "hint": step }));
    }
    complain(sentence);
    step.into_iter().for_each(advise);
}

/// A line to standard error, for a script.
fn object(value: &Value) {
    // As with notes, nobody has to listen.
    let _ = writeln!(std::io::stderr(), "{value}");
}

/// To standard error, within its terminal: a note beside what standard output has.
pub(crate) fn complain(sentence: &str) {
    if speaks_json() {
        return object(&json!({ "warning": sentence }));
    }
    let most = columns(std::io::stderr()).unwrap_or(usize::MAX);
    wrapped(&format!("ddss: {sentence}"), "ddss: ".len(), most).iter().for_each(|line| note(line));
}

/// To standard error, within its terminal: what is wrong with the words that somebody typed.
pub(crate) fn complain_of_words(text: &str) {
    if speaks_json() {
        let sentence = text.lines().map(str::trim).filter(|line| !line.is_empty()).collect::<Vec<_>>().join("; ");
        let sentence = sentence.strip_prefix("error: ").unwrap_or(&sentence);
        return object(&json!({ "error": sentence, "code": 2, "hint": "--help shows what may be written" }));
    }
    let most = columns(std::io::stderr()).unwrap_or(usize::MAX);
    text.trim_end().lines().flat_map(|line| wrapped(line, 7, most)).for_each(|line| note(&line));
}

/// What to do next, under a complaint.
fn advise(step: &str) {
    let most = columns(std::io::stderr()).unwrap_or(usize::MAX);
    wrapped(&format!("  next: {step}"), 8, most).iter().for_each(|line| note(line));
}

/// A line to standard error.
pub(crate) fn note(line: &str) {
    // Who does not listen to notes is no reason to stop.
    let _ = writeln!(std::io::stderr(), "{}", harmless(line));
}

/// Standard output takes no more, and this is the exit code that says so.
pub(crate) struct Unheard(pub(crate) u8);

/// How a shell names the end of a program whose reader has gone: 128 and SIGPIPE.
pub(crate) const READER_GONE: u8 = 141;

/// A line to standard output: what `println!` means in this program. When its reader has gone (`| head -1`), everything is
/// taken down as after an error, and nothing is said: `main` ends as a shell expects it.
pub(crate) fn line(words: Arguments<'_>) {
    if let Err(error) = told(&mut std::io::stdout().lock(), words) {
        let code = if error.kind() == ErrorKind::BrokenPipe { READER_GONE } else { 1 };
        if code != READER_GONE {
            fail(&format!("cannot {WRITE_OUT}: {error}"), code, None);
        }
        std::panic::resume_unwind(Box::new(Unheard(code)));
    }
}

/// A line to standard output, which a terminal gets without what it would take for a command. A script gets all of it.
pub(crate) fn told(out: &mut std::io::StdoutLock<'_>, words: Arguments<'_>) -> std::io::Result<()> {
    if !out.is_terminal() {
        return writeln!(out, "{words}");
    }
    let is_layout = |letter| matches!(letter, '\n' | '\t');
    writeln!(out, "{}", words.to_string().replace(|letter| is_deceit(letter) && !is_layout(letter), "\u{fffd}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    // If this failed, a name could paint the terminal of who lists it, or read as another one.
    #[test]
    fn what_a_terminal_would_obey_is_not_shown() {
        assert_eq!(harmless("a\u{1b}[2Jb\u{202e}c\u{200b}"), "a\u{fffd}[2Jb\u{fffd}c\u{fffd}");
        assert_eq!(harmless("größe 温度 ε\u{301}"), "größe 温度 ε\u{301}");
        assert_eq!([width("größe"), width("温度"), width("e\u{301}"), width("a\u{202e}")], [5, 4, 1, 2]);
        assert!(is_shown_as_it_is("two\n\tlines\0\0".as_bytes()));
        assert!(!is_shown_as_it_is(b"\x1b[2J") && !is_shown_as_it_is(&[0xff]) && !is_shown_as_it_is(b"a\rb"));
    }

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
