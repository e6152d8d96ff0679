//! A group as one process sees it: who is there, who is connected, who is lost.

use crate::directory::{Note, RowError};
use crate::member::{Incarnation, Member};
use crate::membership::Membership;
use crate::mesh::{DownReason, Mesh, MeshConfig, MeshEvent, SendError};
use crate::news::Change;
use ddss_auth::Context;
use ddss_verbs::{CloseReason, Event, Fabric, PeerId};
use std::collections::VecDeque;
use std::io;
use std::os::fd::BorrowedFd;
use std::time::Duration;

/// Reason why a member is lost.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LostReason {
    /// Its connection ended.
    #[error("its connection ended: {0}")]
    Closed(CloseReason),
    /// It answers nothing, and its lock is free.
    #[error("it answers nothing, and its lock is free")]
    Dead,
    /// It answers nothing for longer than its lease, though its lock is held: it is stopped, or cut off from this process alone.
    #[error("it answers nothing for longer than its lease")]
    Silent,
    /// It sent what no member sends.
    #[error("it sent a message that no member sends")]
    Violation,
    /// Another process has taken its place.
    #[error("another process has its place")]
    Replaced,
}

/// Change that a group reports.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum GroupEvent<'a> {
    /// A process has taken the place of a member. Its connection follows.
    Seen(Member, Note),
    /// A member is connected: messages and one-sided work reach it.
    Up(Member),
    /// A message arrived.
    Message {
        /// Sender.
        from: Member,
        /// Message.
        bytes: &'a [u8],
    },
    /// A member has left in order.
    Left(Member),
    /// A member is lost.
    Lost(Member, LostReason),
    /// The state of the group has changed. All members that joined before are seen.
    State(u8),
    /// This process has lost its place: another one has taken it, or the others have lost this process.
    Replaced,
    /// The directory is no more: no process finds this one any more. Those that are connected may go on.
    Released,
    /// The directory cannot be read by this release.
    Unreadable(RowError),
}

/// A group as this process sees it. The caller owns the fabric and polls it.
///
/// Of each process in a place, exactly one of *left* and *lost* is reported, and nothing after it.
pub struct Group {
    membership: Membership,
    mesh: Mesh,
    lease: Duration,
    /// Members whose end was reported, and that have not been seen again.
    ended: Vec<bool>,
    /// Run of each member that was seen last.
    runs: Vec<u32>,
    pending: VecDeque<GroupEvent<'static>>,
}

impl Group {
    /// Silence after which a member whose lock is free is lost.
    pub const SILENCE: Duration = Duration::from_secs(1);

    /// Creates the view of a membership, whose fabric listens already. `context` names the purpose of the connections and the
    /// release of the protocol on them.
    ///
    /// # Errors
    /// The fabric cannot verify peers.
    pub fn new(membership: Membership, fabric: &mut dyn Fabric, context: Context, lease: Duration) -> io::Result<Self> {
        let (ours, members, key) = (membership.ours(), membership.members(), *membership.key());
        let mesh = Mesh::new(MeshConfig { ours, members, key, context });
        if fabric.capabilities().has_admission_filter {
            fabric.set_admission_filter(Box::new(mesh.verifier()))?;
        }
        let (ended, runs) = (vec![false; usize::from(members)], vec![0; usize::from(members)]);
        Ok(Self { membership, mesh, lease, ended, runs, pending: VecDeque::new() })
    }

    /// Returns this process's number.
    #[must_use]
    pub fn ours(&self) -> Member {
        self.membership.ours().member
    }

    /// Returns the connections.
    pub fn mesh(&mut self) -> &mut Mesh {
        &mut self.mesh
    }

    /// Returns the connection to a member, for one-sided work and windows.
    #[must_use]
    pub fn peer(&self, member: Member) -> Option<PeerId> {
        self.mesh.peer(member)
    }

    /// Returns a descriptor that is readable when the directory has news.
    #[must_use]
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        self.membership.descriptor()
    }

    /// Sends a message: [`Mesh::send`].
    ///
    /// # Errors
    /// The errors of [`Mesh::send`].
    pub fn send(&mut self, fabric: &mut dyn Fabric, to: Member, parts: &[&[u8]]) -> Result<(), SendError> {
        self.mesh.send(fabric, to, parts)
    }

    /// Applies an event of the fabric.
    pub fn handle(&mut self, fabric: &mut dyn Fabric, event: &Event<'_>, now: Duration) -> Option<GroupEvent<'_>> {
        let Self { membership, mesh, ended, runs, .. } = self;
        Some(match mesh.handle(fabric, event, now)? {
            MeshEvent::Up(member) => GroupEvent::Up(member),
            MeshEvent::Message { from, bytes } => GroupEvent::Message { from, bytes },
            MeshEvent::Down(member, reason) => {
                if !matches!(reason, DownReason::Left | DownReason::Replaced) {
                    membership.evict(Incarnation { member, run: runs[usize::from(member.0)] }, true);
                }
                return end(ended, member, reason);
            }
        })
    }

    /// Takes the news of the directory, keeps the connections, and judges who is lost. Call it until it returns `None`, between
    /// polls of the fabric, and at the latest after [`Mesh::ASK_AFTER`].
    pub fn tick(&mut self, fabric: &mut dyn Fabric, now: Duration) -> Option<GroupEvent<'static>> {
        if let Some(event) = self.pending.pop_front() {
            return Some(event);
        }
        while let Some(change) = self.membership.next_change() {
            if let Some(event) = self.apply(fabric, change, now) {
                return Some(event);
            }
        }
        // A process finds a new member in the directory: while that is away, the silence of one that is not connected proves nothing.
        if self.membership.directory_unread_for() >= Self::SILENCE {
            self.mesh.excuse_unconnected(now);
        }
        for member in (0..self.membership.members()).map(Member) {
            let Some(silence) = self.mesh.silence(member, now) else { continue };
            // The lock of a stopped process is free after its lease: this member seems to be cut off from this process alone.
            if silence >= self.lease.saturating_add(Self::SILENCE) {
                self.membership.evict(self.incarnation(member), true);
                return self.lose(fabric, member, LostReason::Silent);
            }
            if silence >= Self::SILENCE && self.mesh.peer(member).is_some() {
                self.membership.suspect_silent(member);
            } else if silence >= Self::SILENCE {
                self.membership.suspect(member);
            }
        }
        self.mesh.tick(fabric, now);
        None
    }

    fn apply(&mut self, fabric: &mut dyn Fabric, change: Change, now: Duration) -> Option<GroupEvent<'static>> {
        match change {
            Change::Seen { whom, address, note } => {
                let replaced = self.mesh.learn(fabric, whom, address, now);
                let seen = GroupEvent::Seen(whom.member, note);
                let ended = &mut self.ended;
                let end = match replaced {
                    Some(MeshEvent::Down(member, reason)) => end(ended, member, reason),
                    _ => None,
                };
                self.ended[usize::from(whom.member.0)] = false;
                self.runs[usize::from(whom.member.0)] = whom.run;
                if end.is_some() {
                    self.pending.push_back(seen);
                }
                end.or(Some(seen))
            }
            // It may have spoken since it was suspected. It is lost once its place is cleared: a process that was only stopped
            // cannot return without noticing.
            Change::LockFree(member) if self.mesh.silence(member, now) >= Some(Self::SILENCE) => {
                self.membership.evict(self.incarnation(member), false);
                None
            }
            Change::LockFree(_) => None,
            Change::Evicted(whom)
                if whom == self.incarnation(whom.member) && !self.ended[usize::from(whom.member.0)] =>
            {
                self.lose(fabric, whom.member, LostReason::Dead)
            }
            Change::Evicted(_) => None,
            Change::State(state) => Some(GroupEvent::State(state)),
            Change::Replaced => Some(GroupEvent::Replaced),
            Change::Released => Some(GroupEvent::Released),
            Change::Unreadable(error) => Some(GroupEvent::Unreadable(error)),
        }
    }

    /// Returns the process that was seen last in the place of a member, or this one: its run is 0 if there was none.
    #[must_use]
    pub fn incarnation(&self, member: Member) -> Incarnation {
        let ours = self.membership.ours();
        if member == ours.member { ours } else { Incarnation { member, run: self.runs[usize::from(member.0)] } }
    }

    /// Closes the connection to a member, which the caller takes for lost: nothing more is reported of this process. Returns
    /// true if its end was reported before.
    pub fn close(&mut self, fabric: &mut dyn Fabric, member: Member) -> bool {
        self.mesh.close(fabric, member);
        std::mem::replace(&mut self.ended[usize::from(member.0)], true)
    }

    /// Reports a member as lost, unless its end was reported before.
    fn lose(&mut self, fabric: &mut dyn Fabric, member: Member, reason: LostReason) -> Option<GroupEvent<'static>> {
        let has_ended = self.close(fabric, member);
        (!has_ended).then_some(GroupEvent::Lost(member, reason))
    }
}

/// Reports the end of a member, once.
fn end(ended: &mut [bool], member: Member, reason: DownReason) -> Option<GroupEvent<'static>> {
    if std::mem::replace(&mut ended[usize::from(member.0)], true) {
        return None;
    }
    Some(match reason {
        DownReason::Left => GroupEvent::Left(member),
        DownReason::Closed(reason) => GroupEvent::Lost(member, LostReason::Closed(reason)),
        DownReason::Violation => GroupEvent::Lost(member, LostReason::Violation),
        DownReason::Replaced => GroupEvent::Lost(member, LostReason::Replaced),
    })
}
