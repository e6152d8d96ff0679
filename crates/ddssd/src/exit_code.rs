//! How the daemon ends, as a script is told by its exit code. The help, the operator's page and the code say the same.

/// Why it ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
#[non_exhaustive]
pub enum ExitReason {
    /// Somebody told it to.
    Stopped = 0,
    /// Something that has no code of its own.
    Badly = 1,
    /// What it was told cannot be.
    Settings = 2,
    /// Somebody works in its folder.
    Taken = 3,
    /// It has no place for its bytes, or cannot use what is there.
    Storage = 4,
    /// It has no key.
    Key = 5,
    /// Nobody could reach it.
    Network = 6,
    /// What it had in memory from a file is there no more.
    LostFile = 7,
    /// It is no member of its cluster any more.
    Removed = 8,
}

impl ExitReason {
    /// All of them, in the order of their codes.
    pub const ALL: &[Self] = &[
        Self::Stopped,
        Self::Badly,
        Self::Settings,
        Self::Taken,
        Self::Storage,
        Self::Key,
        Self::Network,
        Self::LostFile,
        Self::Removed,
    ];

    /// The exit code.
    pub fn code(self) -> u8 {
        self as u8
    }

    /// What it means.
    pub fn words(self) -> &'static str {
        match self {
            Self::Stopped => "stopped as asked",
            Self::Badly => "ended badly",
            Self::Settings => "wrong flags or configuration",
            Self::Taken => "another ddssd works in the folder",
            Self::Storage => "folder, memory, state or disk cannot be used",
            Self::Key => "no key or none that can be used",
            Self::Network => "the network or the cluster",
            Self::LostFile => "a file with segments was lost under it",
            Self::Removed => "removed from its cluster",
        }
    }

    /// All of them in one sentence, for the help.
    pub(crate) fn in_help() -> String {
        let all = Self::ALL.iter().map(|ending| format!("{} {}", ending.code(), ending.words()));
        format!("Exit codes: {}.", all.collect::<Vec<_>>().join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_help_and_the_page_for_operators_know_every_code() {
        // If this broke, a script would meet a code that nobody has explained.
        let page = include_str!("../../../docs/book/src/reference/exit-codes.md");
        let chapter = page.split("## ddssd").nth(1).unwrap().split("\n## ").next().unwrap();
        let rows = chapter.lines().filter(|line| line.starts_with('|')).skip(2);
        let rows: Vec<Vec<&str>> = rows.map(|line| line.split('|').map(str::trim).collect()).collect();
        assert_eq!(rows.len(), ExitReason::ALL.len(), "{rows:?}");
        for (index, (ending, row)) in ExitReason::ALL.iter().zip(rows).enumerate() {
            assert_eq!(usize::from(ending.code()), index);
            assert_eq!(row[1], ending.code().to_string());
            assert!(row[2].starts_with(ending.words()), "{ending:?}: {}", row[2]);
        }
        let help = <crate::Arguments as clap::CommandFactory>::command().render_long_help().to_string();
        let help = help.split_whitespace().collect::<Vec<_>>().join(" ");
        for ending in ExitReason::ALL {
            assert!(help.contains(&format!(" {} {}", ending.code(), ending.words())), "{help}");
        }
    }
}
