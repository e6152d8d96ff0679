//! The commands of `ddss` with their flags, read from the completions for fish.
//!
//! The completions have a line for each command and flag, so a test over all of them includes later additions.

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;

use crate::{Error, binary};

/// Flags of one command.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Flags {
    /// Long flags that take a value, without their dashes.
    pub valued: BTreeSet<String>,
    /// Long flags that take no value.
    pub bare: BTreeSet<String>,
}

/// Returns each visible command, as the words that name it (`["cluster", "join"]`), with its flags.
pub fn commands() -> Result<BTreeMap<Vec<String>, Flags>, Error> {
    let output = Command::new(binary("ddss")?).args(["completions", "fish"]).output();
    let output = output.map_err(Error::system("reading the completions of ddss"))?;
    Ok(read(&String::from_utf8_lossy(&output.stdout)))
}

/// Returns the word that follows `words` in `line`.
fn after<'a>(line: &'a str, words: &str) -> Option<&'a str> {
    let rest = line.split_once(words)?.1;
    rest.split(|letter: char| letter.is_whitespace() || letter == ';' || letter == '"').next()
}

fn read(completions: &str) -> BTreeMap<Vec<String>, Flags> {
    const USING: &str = "__fish_ddss_using_subcommand ";
    let mut found: BTreeMap<Vec<String>, Flags> = BTreeMap::new();
    let mut groups = BTreeSet::new();
    for line in completions.lines().filter(|line| line.starts_with("complete -c ddss -n ")) {
        let mut path: Vec<String> = after(line, USING).into_iter().map(str::to_owned).collect();
        // The completions offer a group's subcommands only while none of them has been typed.
        if line.contains("; and not __fish_seen_subcommand_from ") {
            groups.insert(path.clone());
        } else {
            path.extend(after(line, "; and __fish_seen_subcommand_from ").map(str::to_owned));
        }
        // A description says nothing about the shape of a flag or command.
        let (head, description) = line.split_once(" -d '").unwrap_or((line, ""));
        let tail = description.replace("\\'", "").split_once('\'').map(|(_, tail)| tail.to_owned()).unwrap_or_default();
        if let Some(flag) = after(head, " -l ") {
            let flags = found.entry(path).or_default();
            let set = if tail.contains(" -r") { &mut flags.valued } else { &mut flags.bare };
            set.insert(flag.to_owned());
        } else if let Some(command) = after(head, " -a \"") {
            path.push(command.to_owned());
            found.entry(path).or_default();
        }
    }
    found.retain(|path, _| !path.is_empty() && !path.iter().any(|word| word == "help"));
    // The third level: the completions have its commands, but not their flags.
    groups.extend(found.keys().filter(|path| path.len() > 2).map(|path| path[..2].to_vec()));
    found.retain(|path, _| !groups.contains(path));
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    // If this failed, tests of every command and flag would test only some of them.
    #[test]
    fn the_commands_and_their_flags_are_found() {
        let found = commands().unwrap();
        let words = |line: &str| line.split(' ').map(str::to_owned).collect::<Vec<_>>();
        let of = |line: &str| found.get(&words(line)).unwrap_or_else(|| panic!("{line} is not in {found:?}"));
        assert!(of("allocate").valued.contains("model") && of("allocate").bare.contains("json"));
        assert!(of("cluster join").valued.contains("state-dir") && of("locks").bare.contains("break"));
        assert!(of("release").bare.contains("yes") && !of("release").valued.contains("yes"));
        assert!(found.len() > 25 && !found.contains_key(&words("cluster")), "{found:?}");
        assert!(
            found.contains_key(&words("river units ls")) && !found.contains_key(&words("river units")),
            "{found:?}"
        );
        // Commands that only programs start are hidden.
        assert!(!found.contains_key(&words("demo-node")) && !found.contains_key(&words("man")), "{found:?}");
    }
}
