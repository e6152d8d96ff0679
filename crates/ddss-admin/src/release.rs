//! The release of these programs, its commit, and the formats that it understands.

use ddss_ipc::LAYOUT_VERSION;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::sync::LazyLock;

/// The release of this program: its version, its commit, and the ranges of the formats that it understands.
///
/// Every refusal of another release shows it, so that an operator sees both sides.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Release;

impl Release {
    /// Version of the packages.
    pub const VERSION: &str = env!("CARGO_PKG_VERSION");
    /// First digits of the commit, or `unknown`.
    pub const COMMIT: &str = env!("DDSS_COMMIT");
    /// Newest protocol between nodes.
    pub const PROTOCOL: u8 = 17;
    /// Oldest protocol that this release speaks with a node of an earlier one.
    pub const PROTOCOL_OLDEST: u8 = 16;
    /// Layout of the memory that client and daemon share.
    pub const LAYOUT: u32 = LAYOUT_VERSION;
    /// Format of the segment registry.
    pub const REGISTER: u64 = 2;

    /// Returns version and commit in one word of printable ASCII: `0.1.0+26edb767abcd`, or `0.1.0` of an unknown commit.
    pub fn name() -> &'static str {
        static NAME: LazyLock<String> = LazyLock::new(|| match Release::COMMIT {
            "unknown" => Release::VERSION.to_owned(),
            commit => format!("{}+{commit}", Release::VERSION),
        });
        &NAME
    }

    /// Returns all of it as `--version` shows it.
    pub fn long() -> &'static str {
        static LONG: LazyLock<String> = LazyLock::new(|| Release.to_string());
        &LONG
    }

    /// Returns the protocols between nodes.
    pub const fn protocols() -> ProtocolRange {
        ProtocolRange { oldest: Self::PROTOCOL_OLDEST, newest: Self::PROTOCOL }
    }
}

const _: () = assert!(Release::PROTOCOL_OLDEST <= Release::PROTOCOL);

impl fmt::Display for Release {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (version, commit, protocols) = (Self::VERSION, Self::COMMIT, Self::protocols());
        let (layout, register) = (Self::LAYOUT, Self::REGISTER);
        write!(f, "{version} (commit {commit}; protocol {protocols}; client layout {layout}; register {register})")
    }
}

/// Protocols that a node speaks with other nodes, from the oldest to the newest.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ProtocolRange {
    /// Oldest protocol.
    pub oldest: u8,
    /// Newest protocol.
    pub newest: u8,
}

impl ProtocolRange {
    /// Returns the newest protocol that both sides speak.
    pub fn newest_common(self, other: Self) -> Option<u8> {
        let newest = self.newest.min(other.newest);
        (newest >= self.oldest.max(other.oldest)).then_some(newest)
    }

    /// Returns the newest protocol that all of these sides speak. `None` if there is none, or if one of the sides is not known.
    pub fn newest_of_all(sides: impl IntoIterator<Item = Option<Self>>) -> Option<u8> {
        let mut sides = sides.into_iter();
        let mut common = sides.next()??;
        for side in sides {
            let side = side?;
            common = Self { oldest: common.oldest.max(side.oldest), newest: common.newest.min(side.newest) };
        }
        (common.oldest <= common.newest).then_some(common.newest)
    }
}

impl fmt::Display for ProtocolRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { oldest, newest } = self;
        if oldest == newest { write!(f, "{newest}") } else { write!(f, "{oldest}-{newest}") }
    }
}

/// Release and protocols of a node of a cluster, as it reports them.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct NodeRelease {
    /// Version and commit; empty of a node that does not report them.
    pub name: String,
    /// Protocols that it speaks with other nodes.
    pub protocol: ProtocolRange,
}

impl NodeRelease {
    /// Returns the release of this program.
    pub fn ours() -> Self {
        Self { name: Release::name().to_owned(), protocol: Release::protocols() }
    }

    /// Returns what is known of a node that does not know the question: it is of a release before there were ranges.
    pub fn unnamed() -> Self {
        Self { name: String::new(), protocol: ProtocolRange { oldest: 16, newest: 16 } }
    }

    /// Says why this program cannot work with a node of that release; `None` if it can.
    pub fn refusal(&self, node: impl fmt::Display) -> Option<String> {
        if Release::protocols().newest_common(self.protocol).is_some() {
            return None;
        }
        let name = if self.name.is_empty() { "an earlier release" } else { &self.name };
        Some(format!(
            "{node} is of {name} and speaks protocol {}, this node is of {Release}: upgrade by a release that has a protocol in \
             common with both",
            self.protocol
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_sides_choose_the_newest_protocol_that_both_speak() {
        // If this broke, one side would send messages that the other one reads as something else.
        let range = |oldest, newest| ProtocolRange { oldest, newest };
        for (one, two, common) in [
            (range(16, 16), range(16, 16), Some(16)),
            (range(16, 16), range(16, 17), Some(16)),
            (range(16, 18), range(17, 20), Some(18)),
            (range(16, 17), range(18, 19), None),
            (range(16, 20), range(18, 18), Some(18)),
        ] {
            assert_eq!(one.newest_common(two), common, "{one} and {two}");
            assert_eq!(two.newest_common(one), common, "{two} and {one}");
            assert_eq!(ProtocolRange::newest_of_all([one, two].map(Some)), common, "{one} and {two}");
        }
        // Each two of them have one in common, and all three none.
        let three = [range(16, 17), range(17, 18), range(16, 16)];
        assert_eq!(ProtocolRange::newest_of_all(three.map(Some)), None);
        assert_eq!(ProtocolRange::newest_of_all([Some(range(16, 17)), None]), None);
        assert_eq!(ProtocolRange::newest_of_all([]), None);
        assert_eq!((range(16, 17).to_string(), range(16, 16).to_string()), ("16-17".to_owned(), "16".to_owned()));
    }

    #[test]
    fn refusal_names_both_releases() {
        // If this broke, an operator would not know which side to change.
        for works in [NodeRelease::ours(), NodeRelease::unnamed()] {
            assert_eq!(works.refusal("node 3"), None);
        }
        let newer = NodeRelease { name: "7.0.0+abcd".to_owned(), protocol: ProtocolRange { oldest: 200, newest: 201 } };
        let why = newer.refusal("node 3").unwrap();
        for part in ["node 3 is of 7.0.0+abcd and speaks protocol 200-201", &Release.to_string()] {
            assert!(why.contains(part), "{why}");
        }
    }
}
