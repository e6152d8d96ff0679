//! Log levels: one for everything, or one for each module.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// Checked value of `--log`: an unknown word would silence the whole log.
///
/// ```
/// use ddss_admin::LogLevels;
/// let levels: LogLevels = "warn,ddssd::peers=debug".parse()?;
/// assert_eq!(levels.directives(), "info,openraft=off,warn,ddssd::peers=debug");
/// assert_eq!("inof".parse::<LogLevels>().unwrap_err(), "\"inof\" is no level: did you mean `info`?");
/// # Ok::<(), String>(())
/// ```
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct LogLevels(String);

impl LogLevels {
    const LEVELS: [&str; 6] = ["error", "warn", "info", "debug", "trace", "off"];
    /// Crates whose modules appear in a log. A name close to one of them is taken for a typo.
    const CRATES: [&str; 7] = ["ddssd", "ddss_core", "ddss_ipc", "ddss_runtime", "ddss_verbs", "ddss", "openraft"];

    /// Returns the directives for the filter, with `info` as the default. The Raft library logs each of its steps, and
    /// an error for each call to an absent member, so it is silent unless named: the daemon logs the consequences itself.
    pub fn directives(&self) -> String {
        format!("info,openraft=off,{}", self.0)
    }

    fn check(directive: &str) -> Result<(), String> {
        // Spans and their fields have a syntax of their own, which the filter checks.
        if directive.contains(['[', '{', '}', ']']) {
            return Ok(());
        }
        match directive.split_once('=') {
            Some((module, level)) => Self::check_level(level).and_then(|()| Self::check_module(module)),
            None if Self::is_crate(directive) => {
                Err(format!("{directive:?} has no level: write `{directive}=debug`, or another level"))
            }
            None => Self::check_level(directive),
        }
    }

    fn is_crate(directive: &str) -> bool {
        directive.contains("::") || Self::CRATES.contains(&directive)
    }

    fn check_level(word: &str) -> Result<(), String> {
        let small = word.to_ascii_lowercase();
        if Self::LEVELS.contains(&small.as_str()) {
            return Ok(());
        }
        // A prefix of a level suggests that level, and so does a longer word that begins with it.
        let letters = |level: &str| {
            let is_part = !small.is_empty() && (level.starts_with(&small) || small.starts_with(level));
            if is_part { 0 } else { strsim::levenshtein(&small, level) }
        };
        let nearest = Self::LEVELS.iter().map(|&level| (letters(level), level)).min_by_key(|&(letters, _)| letters);
        let (letters, level) = nearest.unwrap_or((0, "info"));
        if small.is_empty() || letters > small.len().max(3) / 2 {
            let levels = "`error`, `warn`, `info`, `debug`, `trace` or `off`";
            return Err(format!("{word:?} is no level: give {levels}, or MODULE=LEVEL"));
        }
        Err(format!("{word:?} is no level: did you mean `{level}`?"))
    }

    fn check_module(module: &str) -> Result<(), String> {
        /// Edit distance up to which a name is taken for a typo.
        const LETTERS_MAX: usize = 2;
        let root = module.split("::").next().unwrap_or_default();
        if Self::CRATES.contains(&root) {
            return Ok(());
        }
        let near = Self::CRATES
            .iter()
            .map(|&known| (strsim::levenshtein(root, known), known))
            .min_by_key(|&(letters, _)| letters);
        match near {
            Some((letters, known)) if letters <= LETTERS_MAX => {
                Err(format!("nothing logs as {module:?}: did you mean `{known}`?"))
            }
            _ => Ok(()),
        }
    }
}

impl FromStr for LogLevels {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        // A comma within a span's fields is no separator: the filter checks such a text.
        if text.contains('[') {
            return Ok(Self(text.to_owned()));
        }
        text.split(',').map(str::trim).try_for_each(Self::check)?;
        Ok(Self(text.to_owned()))
    }
}

as_text!(LogLevels);

impl fmt::Display for LogLevels {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Default for LogLevels {
    fn default() -> Self {
        Self("info".to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_level_is_reported_with_nearest_one() {
        // If this failed, a daemon would be silent because of one wrong letter.
        for (text, meant) in [
            ("inof", "`info`"),
            ("information", "`info`"),
            ("WARNING", "`warn`"),
            ("err", "`error`"),
            ("debgu", "`debug`"),
            ("info,ddssd=tarce", "`trace`"),
            ("info,,debug", "`info`"),
            ("", "`info`"),
            ("verbose", "MODULE=LEVEL"),
            ("dssd=debug", "`ddssd`"),
            ("ddss-ipc::rings=debug", "`ddss_ipc`"),
            ("ddssd::links", "`ddssd::links=debug`"),
        ] {
            let error = text.parse::<LogLevels>().unwrap_err();
            assert!(error.contains(meant), "{text}: {error}");
        }
        for good in ["Info", "off", "error, tokio=trace", "ddssd[attach{pid=5,uid=3}]=debug", "openraft=info"] {
            assert_eq!(good.parse::<LogLevels>().map(String::from), Ok(good.to_owned()));
        }
    }
}
