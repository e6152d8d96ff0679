//! Sentences on standard output and standard error. A terminal gets them wrapped at word boundaries, without control
//! characters. A pipe or a file gets each sentence as one line, so that scripts find it complete.

use crate::error::WRITE_STDOUT;
use rustix::termios::tcgetwinsize;
use serde_json::{Value, json};
use std::fmt::{Arguments, Display};
use std::io::{ErrorKind, IsTerminal, Write};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
use unicode_width::UnicodeWidthChar;

/// Minimum length of a wrapped line, however narrow the terminal is.
const LINE_MIN: usize = 24;
/// Column at which the value of a field begins.
const FIELD_INDENT: usize = 10;

/// Returns the width of the terminal behind this descriptor, if there is one.
pub(crate) fn columns(behind: impl AsFd) -> Option<usize> {
    let size = tcgetwinsize(behind).ok()?;
    (size.ws_col > 0).then_some(size.ws_col.into())
}

/// Wraps a sentence into lines of at most `most` columns; all but the first begin with `indent` blanks. Leading blanks
/// stay. A word that is longer than a line stays whole, because it may be a path to copy.
pub(crate) fn wrapped(sentence: &str, indent: usize, most: usize) -> Vec<String> {
    let most = most.max(indent + LINE_MIN);
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

/// Prints a sentence to standard output, wrapped for its terminal.
pub(crate) fn print_sentence(sentence: &str, indent: usize) {
    let most = columns(std::io::stdout()).unwrap_or(usize::MAX);
    wrapped(&sanitize(sentence), indent, most).iter().for_each(|line| println!("{line}"));
}

/// Returns true for characters that a terminal does not show as they are: control characters, invisible characters and
/// direction overrides. Segment names may contain the latter two.
fn is_deceptive(letter: char) -> bool {
    let hides = matches!(letter, '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{2060}'..='\u{2064}');
    let turns =
        matches!(letter, '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{206f}' | '\u{feff}' | '\u{e0000}'..='\u{e007f}');
    letter.is_control() || hides || turns
}

/// Replaces deceptive characters, so that a name cannot control the terminal of its reader.
pub(crate) fn sanitize(words: &str) -> String {
    words.replace(is_deceptive, "\u{fffd}")
}

/// Returns the width of a text in terminal columns.
pub(crate) fn width(words: &str) -> usize {
    words.chars().map(char_width).sum()
}

/// Returns the width of a character; a deceptive one has the width of its replacement.
pub(crate) fn char_width(letter: char) -> usize {
    if is_deceptive(letter) { 1 } else { letter.width().unwrap_or(1) }
}

/// Returns true if these bytes are text without deceptive characters. Zeroes are accepted; a terminal ignores them.
pub(crate) fn is_printable_text(bytes: &[u8]) -> bool {
    let is_plain = |letter: char| matches!(letter, '\n' | '\t' | '\0') || !is_deceptive(letter);
    std::str::from_utf8(bytes).is_ok_and(|text| text.chars().all(is_plain))
}

/// Prints a named field.
pub(crate) fn print_field(name: &str, words: impl Display) {
    print_sentence(&format!("{name:<FIELD_INDENT$}{words}"), FIELD_INDENT);
}

/// True under `--json`: each line on standard error is a JSON object, too.
static AS_JSON: AtomicBool = AtomicBool::new(false);

/// Makes errors and warnings JSON from now on.
pub(crate) fn enable_json_errors() {
    AS_JSON.store(true, Ordering::Relaxed);
}

fn is_json_enabled() -> bool {
    AS_JSON.load(Ordering::Relaxed)
}

/// Prints the error of a command, its exit code and the next step to standard error.
pub(crate) fn print_error(sentence: &str, code: u8, step: Option<&str>) {
    if is_json_enabled() {
        return print_json(&json!({ "error": sentence, "code": code, "hint": step }));
    }
    print_warning(sentence);
    step.into_iter().for_each(print_hint);
}

/// Prints a JSON object to standard error.
fn print_json(value: &Value) {
    // A closed standard error is no reason to fail.
    let _ = writeln!(std::io::stderr(), "{value}");
}

/// Prints a warning to standard error, beside the answer on standard output.
pub(crate) fn print_warning(sentence: &str) {
    if is_json_enabled() {
        return print_json(&json!({ "warning": sentence }));
    }
    let most = columns(std::io::stderr()).unwrap_or(usize::MAX);
    wrapped(&format!("ddss: {sentence}"), "ddss: ".len(), most).iter().for_each(|line| print_note(line));
}

/// Prints a parse error of the command line to standard error.
pub(crate) fn print_usage_error(text: &str) {
    if is_json_enabled() {
        let sentence = text.lines().map(str::trim).filter(|line| !line.is_empty()).collect::<Vec<_>>().join("; ");
        let sentence = sentence.strip_prefix("error: ").unwrap_or(&sentence);
        return print_json(&json!({ "error": sentence, "code": 2, "hint": "run it with --help" }));
    }
    let most = columns(std::io::stderr()).unwrap_or(usize::MAX);
    text.trim_end().lines().flat_map(|line| wrapped(line, 7, most)).for_each(|line| print_note(&line));
}

/// Prints the next step below an error.
fn print_hint(step: &str) {
    let most = columns(std::io::stderr()).unwrap_or(usize::MAX);
    wrapped(&format!("  next: {step}"), 8, most).iter().for_each(|line| print_note(line));
}

/// Prints a line to standard error.
pub(crate) fn print_note(line: &str) {
    // A closed standard error is no reason to stop.
    let _ = writeln!(std::io::stderr(), "{}", sanitize(line));
}

/// Panic payload after a failed write to standard output: the exit code.
pub(crate) struct OutputClosed(pub(crate) u8);

/// Exit code of a program whose reader has gone: 128 + SIGPIPE.
pub(crate) const SIGPIPE_EXIT_CODE: u8 = 141;

/// Prints a line to standard output; `println!` expands to it. If the reader has gone (`| head -1`), it unwinds to `main`,
/// which exits silently with the code that a shell expects.
pub(crate) fn line(words: Arguments<'_>) {
    if let Err(error) = write_line(&mut std::io::stdout().lock(), words) {
        let code = if error.kind() == ErrorKind::BrokenPipe { SIGPIPE_EXIT_CODE } else { 1 };
        if code != SIGPIPE_EXIT_CODE {
            print_error(&format!("cannot {WRITE_STDOUT}: {error}"), code, None);
        }
        std::panic::resume_unwind(Box::new(OutputClosed(code)));
    }
}

/// Writes a line to standard output. A terminal gets it without deceptive characters, a pipe unchanged.
pub(crate) fn write_line(out: &mut std::io::StdoutLock<'_>, words: Arguments<'_>) -> std::io::Result<()> {
    if !out.is_terminal() {
        return writeln!(out, "{words}");
    }
    let is_layout = |letter| matches!(letter, '\n' | '\t');
    writeln!(out, "{}", words.to_string().replace(|letter| is_deceptive(letter) && !is_layout(letter), "\u{fffd}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    // Otherwise a segment name could control the terminal of its reader, or look like another name.
    #[test]
    fn control_and_invisible_characters_are_replaced() {
        assert_eq!(sanitize("a\u{1b}[2Jb\u{202e}c\u{200b}"), "a\u{fffd}[2Jb\u{fffd}c\u{fffd}");
        assert_eq!(sanitize("größe 温度 ε\u{301}"), "größe 温度 ε\u{301}");
        assert_eq!([width("größe"), width("温度"), width("e\u{301}"), width("a\u{202e}")], [5, 4, 1, 2]);
        assert!(is_printable_text("two\n\tlines\0\0".as_bytes()));
        assert!(!is_printable_text(b"\x1b[2J") && !is_printable_text(&[0xff]) && !is_printable_text(b"a\rb"));
    }

    #[test]
    fn sentences_wrap_at_word_boundaries() {
        let sentence = "  → start one with `ddssd`, or name its folder with --dir";
        assert_eq!(wrapped(sentence, 4, usize::MAX), [sentence]);
        let lines = wrapped(sentence, 4, 30);
        assert_eq!(lines, ["  → start one with `ddssd`, or", "    name its folder with --dir"]);
        assert!(lines.iter().all(|line| line.chars().count() <= 30));
        let path = format!("in /{}", "long/".repeat(20));
        assert_eq!(wrapped(&path, 2, 30)[1].trim_start(), &path[3..]);
        assert_eq!(wrapped("", 2, 30), [""]);
        // The narrowest terminal has room for a word.
        assert!(wrapped("a few short words of no great length", 10, 1).len() < 5);
    }
}
