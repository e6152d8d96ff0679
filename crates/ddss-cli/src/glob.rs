//! Glob patterns: `*` matches any run of characters, `?` any one character.

/// A parsed glob pattern.
#[derive(Clone, Debug)]
pub(crate) struct Glob {
    pattern: Vec<char>,
    prefix: String,
}

impl Glob {
    pub(crate) fn new(pattern: &str) -> Self {
        let prefix = pattern.chars().take_while(|&letter| letter != '*' && letter != '?').collect();
        Self { pattern: pattern.chars().collect(), prefix }
    }

    /// Returns true if the pattern can match more than one name.
    pub(crate) fn is_pattern(&self) -> bool {
        self.prefix.chars().count() < self.pattern.len()
    }

    /// Returns the literal prefix of every matching name.
    pub(crate) fn prefix(&self) -> &str {
        &self.prefix
    }

    pub(crate) fn matches(&self, name: &str) -> bool {
        let (pattern, name): (&[char], Vec<char>) = (&self.pattern, name.chars().collect());
        let (mut at, mut from) = (0, 0);
        // Position of the last star, and the offset in the name at which it was tried last.
        let mut star = None;
        while from < name.len() {
            match pattern.get(at) {
                Some('*') => {
                    star = Some((at, from));
                    at += 1;
                }
                Some(&letter) if letter == '?' || letter == name[from] => (at, from) = (at + 1, from + 1),
                _ => match star {
                    Some((place, tried)) => {
                        star = Some((place, tried + 1));
                        (at, from) = (place + 1, tried + 1);
                    }
                    None => return false,
                },
            }
        }
        pattern[at..].iter().all(|&letter| letter == '*')
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn glob_matches_as_in_a_shell() {
        // A wrong match would make `ddss release` release other segments.
        let cases =
            [("*", "x", true), ("a*", "abc", true), ("a*c", "abc", true), ("a*c", "abd", false), ("", "", true)];
        let more = [
            ("a?c", "abc", true),
            ("a?c", "ac", false),
            ("*b*b*", "abcb", true),
            ("*b*b*", "abc", false),
            ("ab", "abc", false),
        ];
        for (pattern, name, expected) in cases.into_iter().chain(more) {
            assert_eq!(Glob::new(pattern).matches(name), expected, "{pattern} {name}");
        }
        assert_eq!(Glob::new("scores/2?/x*").prefix(), "scores/2");
        assert!(Glob::new("é?").is_pattern() && !Glob::new("é").is_pattern());
    }
}
