//! Command line of a daemon, for the operator who finds its node dead.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

/// File in the daemon's directory with the command line of its last start.
const FILE_NAME: &str = "ddssd.command";
/// Size limit of the file; a longer one is not read.
const BYTES_MAX: u64 = 16 << 10;

/// Records a command line, quoted for a shell.
pub fn record_command(folder: &Path, words: impl Iterator<Item = OsString>) -> io::Result<()> {
    let words: Vec<String> = words.map(|word| quoted(&word.to_string_lossy())).collect();
    let (path, fresh) = (folder.join(FILE_NAME), folder.join(format!("{FILE_NAME}.new")));
    std::fs::write(&fresh, words.join(" ") + "\n")?;
    std::fs::rename(fresh, path)
}

/// Returns the command line of the last start in a directory, if it is one line of printable text.
pub fn last_command(folder: &Path) -> Option<String> {
    let mut text = String::new();
    File::open(folder.join(FILE_NAME)).ok()?.take(BYTES_MAX).read_to_string(&mut text).ok()?;
    let line = text.strip_suffix('\n')?;
    (!line.is_empty() && !line.chars().any(char::is_control)).then(|| line.to_owned())
}

/// Quotes a word as a POSIX shell reads it.
fn quoted(word: &str) -> String {
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "_./:=,@%+-".contains(letter);
    if !word.is_empty() && word.chars().all(is_plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn command_is_read_back_and_control_characters_are_not_shown() {
        // If this failed, an operator would start the node with other flags, or a file could write to the terminal.
        let folder = std::env::temp_dir().join(format!("ddss-admin-command-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        assert_eq!(last_command(&folder), None);
        let words = ["ddssd", "--dir", "/a b", "--quota", "it's", ""];
        record_command(&folder, words.iter().map(OsString::from)).unwrap();
        assert_eq!(last_command(&folder).unwrap(), r"ddssd --dir '/a b' --quota 'it'\''s' ''");
        for text in ["", "\n", "ddssd", "ddssd \u{1b}[2J\n", "a\nb\n"] {
            std::fs::write(folder.join(FILE_NAME), text).unwrap();
            assert_eq!(last_command(&folder), None, "{text:?}");
        }
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
