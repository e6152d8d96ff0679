//! A member of the cluster, and the registration of its starts.

use crate::control::identity::incarnation::Incarnation;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::net::SocketAddr;

/// A member: the address of its data plane. Its control plane listens one port above.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct Member {
    pub(crate) address: SocketAddr,
}

impl Default for Member {
    fn default() -> Self {
        Self { address: SocketAddr::from(([0, 0, 0, 0], 0)) }
    }
}

impl fmt::Display for Member {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.address.fmt(f)
    }
}

/// Says why an address cannot be that of a member: other machines do not reach a loopback address.
pub(in crate::control) fn address_refusal(ours: Member, others: &[(u16, Member)]) -> Option<String> {
    let is_local = |member: &Member| member.address.ip().is_loopback();
    let (node, other) = others.iter().find(|(_, other)| is_local(other) != is_local(&ours))?;
    Some(if is_local(&ours) {
        format!(
            "{ours} is an address of this machine only, and node {node} is at {other}: give --listen IP:PORT of this machine"
        )
    } else {
        format!(
            "node {node} is at {other}, an address of its machine only: start it with --listen IP:PORT of that machine first"
        )
    })
}

/// The newest registration of a node.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct Registration {
    pub(crate) incarnation: Incarnation,
    /// Run number of the daemon of this start.
    pub(crate) run: u32,
}

impl Registration {
    /// Returns true if `next` may follow: a later start in the same folder, or a repetition of this one.
    pub(crate) fn admits(&self, next: Registration) -> bool {
        let (old, new) = (self.incarnation, next.incarnation);
        old.folder == new.folder && (new.start > old.start || new.start == old.start && next.run == self.run)
    }

    /// Explains why `next` may not follow, and what the operator can do.
    pub(crate) fn refusal(&self, node: u16, at: Option<Member>, next: Registration) -> String {
        if self.incarnation.folder == next.incarnation.folder {
            return format!(
                "a copy of this state folder is node {node} now (start {} is registered, this is start {}): this one is out of date. Use the copy, \
                 or take node {node} out with `ddss cluster remove {node}` and join anew with an empty state folder",
                self.incarnation.start, next.incarnation.start
            );
        }
        let place = at.map_or_else(String::new, |at| format!("the node at {at}, which has "));
        format!(
            "number {node} belongs to {place}another state folder: give another --node, or none; if that folder is lost, take the node out with \
             `ddss cluster remove {node}` elsewhere and join anew"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_later_start_of_the_same_folder_is_admitted() {
        // If this broke, an old copy of a folder would replace its node, or a restart would be refused.
        let registration = |folder, start, run| Registration { incarnation: Incarnation { folder, start }, run };
        let known = registration(7, 5, 50);
        for (next, admitted) in [
            (registration(7, 6, 60), true),
            (registration(7, 9, 90), true),
            (registration(7, 5, 50), true),
            (registration(7, 5, 51), false),
            (registration(7, 4, 40), false),
            (registration(8, 6, 60), false),
        ] {
            assert_eq!(known.admits(next), admitted, "{next:?}");
        }
    }
}
