//! Exit codes of the daemon. The help, the operator's page and the code agree by test.

/// Reason for the end of the daemon.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
#[non_exhaustive]
pub enum ExitReason {
    /// A signal or an operator stopped it.
    Stopped = 0,
    /// A failure without a code of its own.
    Failure = 1,
    /// The settings are invalid.
    Settings = 2,
    /// Another daemon works in the directory.
    InUse = 3,
    /// Directory, memory, state or disk is unusable.
    Storage = 4,
    /// The cluster key is missing or unusable.
    Key = 5,
    /// The network or the cluster is unusable.
    Network = 6,
    /// A mapped file with segments was lost.
    LostFile = 7,
    /// The cluster removed the node.
    Removed = 8,
}

impl ExitReason {
    /// All reasons, in the order of their codes.
    pub const ALL: &[Self] = &[
        Self::Stopped,
        Self::Failure,
        Self::Settings,
        Self::InUse,
        Self::Storage,
        Self::Key,
        Self::Network,
        Self::LostFile,
        Self::Removed,
    ];

    /// Returns the exit code.
    pub fn code(self) -> u8 {
        self as u8
    }

    /// Returns a short description.
    pub fn description(self) -> &'static str {
        match self {
            Self::Stopped => "stopped as asked",
            Self::Failure => "ended badly",
            Self::Settings => "wrong flags or configuration",
            Self::InUse => "another ddssd works in the folder",
            Self::Storage => "folder, memory, state or disk cannot be used",
            Self::Key => "no key or none that can be used",
            Self::Network => "the network or the cluster",
            Self::LostFile => "a file with segments was lost under it",
            Self::Removed => "removed from its cluster",
        }
    }

    /// Lists all codes in one sentence, for the help.
    pub(crate) fn in_help() -> String {
        let all = Self::ALL.iter().map(|reason| format!("{} {}", reason.code(), reason.description()));
        format!("Exit codes: {}.", all.collect::<Vec<_>>().join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn help_and_operations_page_list_every_exit_code() {
        // If this failed, a script would meet an undocumented exit code.
        // Read, not included: the page is no part of the published package, whose tests still have to compile.
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/book/src/reference/exit-codes.md");
        let page = std::fs::read_to_string(path).expect("the repository has the page; the package does not");
        let chapter = page.split("## ddssd").nth(1).unwrap().split("\n## ").next().unwrap();
        let rows = chapter.lines().filter(|line| line.starts_with('|')).skip(2);
        let rows: Vec<Vec<&str>> = rows.map(|line| line.split('|').map(str::trim).collect()).collect();
        assert_eq!(rows.len(), ExitReason::ALL.len(), "{rows:?}");
        for (index, (reason, row)) in ExitReason::ALL.iter().zip(rows).enumerate() {
            assert_eq!(usize::from(reason.code()), index);
            assert_eq!(row[1], reason.code().to_string());
            assert!(row[2].starts_with(reason.description()), "{reason:?}: {}", row[2]);
        }
        let help = <crate::Arguments as clap::CommandFactory>::command().render_long_help().to_string();
        let help = help.split_whitespace().collect::<Vec<_>>().join(" ");
        for reason in ExitReason::ALL {
            assert!(help.contains(&format!(" {} {}", reason.code(), reason.description())), "{help}");
        }
    }
}
