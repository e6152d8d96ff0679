//! Keeps the directory: applies what the group has decided, tells the progress thread, makes and takes snapshots.

use super::directory::{Directory, DirectoryChange, ReplicaRecord};
use super::log::{LogStore, is_full};
use super::snapshot::{StoredSnapshot, read_snapshot, write_snapshot};
use super::types::{Answer, Entry, Group, LogId, Member, Membership, StorageError};
use crate::config::config::PeerAddress;
use crate::control::bridge::{ControlEvent, EventSenders};
use ddss_core::engine::RoleAssignment;
use ddss_core::{Name, NodeId, SegmentId};
use openraft::storage::{RaftStateMachine, Snapshot};
use openraft::{EntryPayload, OptionalSend, RaftSnapshotBuilder, SnapshotMeta, StorageIOError};
use std::io::{self, Cursor};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

#[derive(Debug)]
struct Inner {
    folder: PathBuf,
    ours: u16,
    teller: EventSenders,
    applied: Option<LogId>,
    membership: Membership,
    directory: Directory,
}

/// The state machine; clones are the same one.
#[derive(Clone, Debug)]
pub(crate) struct StateMachine(Arc<Mutex<Inner>>);

impl StateMachine {
    /// Takes up what the last snapshot holds.
    pub(crate) fn open(folder: &Path, ours: u16, teller: EventSenders) -> io::Result<Self> {
        let kept = read_snapshot(folder)?.unwrap_or_default();
        let inner = Inner {
            folder: folder.to_owned(),
            ours,
            teller,
            applied: kept.meta.last_log_id,
            membership: kept.meta.last_membership,
            directory: kept.directory,
        };
        inner.tell_all();
        Ok(Self(Arc::new(Mutex::new(inner))))
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        // Nothing in here leaves it half changed.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Looks at the directory.
    pub(crate) fn look<T>(&self, look: impl FnOnce(&Directory) -> T) -> T {
        look(&self.inner().directory)
    }

    /// The nodes, as far as this one has heard.
    pub(crate) fn members(&self) -> Vec<(u16, Member)> {
        members(&self.inner().membership)
    }
}

fn duty_of(home: u16, mirrored: ReplicaRecord) -> RoleAssignment {
    let ReplicaRecord { segment, mirror, epoch, turn, paired, vacant } = mirrored;
    let (home, mirror) = (NodeId(home), NodeId(mirror));
    RoleAssignment { segment: SegmentId::from_bits(segment), home, mirror, epoch, turn, paired, vacant }
}

fn members(membership: &Membership) -> Vec<(u16, Member)> {
    membership.nodes().filter_map(|(&node, &member)| Some((u16::try_from(node).ok()?, member))).collect()
}

impl Inner {
    fn tell_members(&self) {
        let others = members(&self.membership).into_iter().filter(|&(node, _)| node != self.ours);
        let others = others.map(|(node, member)| PeerAddress { node: NodeId(node), address: member.address });
        self.teller.tell(ControlEvent::Members(others.collect()));
    }

    fn tell_all(&self) {
        let names =
            self.directory.names().filter_map(|(name, holder)| Some((Name::new(name).ok()?, NodeId(holder.home))));
        self.teller.tell(ControlEvent::Names(names.collect()));
        for (_, holder) in self.directory.names() {
            if let Some(mirrored) = holder.mirrored {
                self.teller.tell(ControlEvent::Duty(duty_of(holder.home, mirrored)));
            }
        }
        for node in self.directory.removed() {
            self.teller.tell(ControlEvent::Gone(NodeId(node)));
        }
        for node in self.directory.dead() {
            self.teller.tell(ControlEvent::Dead(NodeId(node)));
        }
        if self.membership.nodes().next().is_some() {
            self.tell_members();
        }
    }

    fn apply(&mut self, entry: Entry) -> Answer {
        self.applied = Some(entry.log_id);
        match entry.payload {
            EntryPayload::Blank => Answer::Done,
            EntryPayload::Normal(command) => {
                let teller = &self.teller;
                self.directory.apply(&command, |change| match change {
                    DirectoryChange::Name { name, home } => match Name::new(&name) {
                        Ok(name) => teller.tell(ControlEvent::Name { name, home: home.map(NodeId) }),
                        // Only a node that lies can have claimed it.
                        Err(_) => tracing::warn!(name, "the directory holds a name that no segment can have"),
                    },
                    DirectoryChange::Dead(node) => {
                        tracing::warn!(node, "the cluster has declared a node dead");
                        teller.tell(ControlEvent::Dead(NodeId(node)));
                    }
                    DirectoryChange::Alive(node) => teller.tell(ControlEvent::Alive(NodeId(node))),
                    DirectoryChange::Gone(node) => {
                        tracing::warn!(node, "a node is out of the cluster: nothing it says counts any more");
                        teller.tell(ControlEvent::Gone(NodeId(node)));
                    }
                    DirectoryChange::Duty { home, mirrored } => {
                        teller.tell(ControlEvent::Duty(duty_of(home, mirrored)))
                    }
                    DirectoryChange::NoDuty { segment } => {
                        teller.tell(ControlEvent::NoDuty(SegmentId::from_bits(segment)))
                    }
                })
            }
            EntryPayload::Membership(membership) => {
                self.membership = Membership::new(Some(entry.log_id), membership);
                self.directory.admit(members(&self.membership).into_iter().map(|(node, _)| node));
                self.tell_members();
                Answer::Done
            }
        }
    }

    fn snapshot(&self) -> StoredSnapshot {
        let at = self.applied.map_or_else(String::new, |id| format!("{}-{}", id.leader_id, id.index));
        let meta =
            SnapshotMeta { last_log_id: self.applied, last_membership: self.membership.clone(), snapshot_id: at };
        StoredSnapshot { meta, directory: self.directory.clone() }
    }
}

impl RaftSnapshotBuilder<Group> for StateMachine {
    async fn build_snapshot(&mut self) -> Result<Snapshot<Group>, StorageError> {
        let (kept, folder) = {
            let inner = self.inner();
            (inner.snapshot(), inner.folder.clone())
        };
        let built = loop {
            match write_snapshot(&folder, &kept) {
                // As with the log: the group's library would give up for good.
                Err(error) if is_full(&error) => {
                    tracing::warn!(%error, "no room for a snapshot of the cluster's directory: waiting for it");
                    tokio::time::sleep(LogStore::AGAIN * 10).await;
                }
                written => break written.and_then(|()| Ok(serde_json::to_vec(&kept.directory)?)),
            }
        };
        let bytes = built.map_err(|error| StorageIOError::write_snapshot(Some(kept.meta.signature()), &error))?;
        Ok(Snapshot { meta: kept.meta, snapshot: Box::new(Cursor::new(bytes)) })
    }
}

impl RaftStateMachine<Group> for StateMachine {
    type SnapshotBuilder = Self;

    async fn applied_state(&mut self) -> Result<(Option<LogId>, Membership), StorageError> {
        let inner = self.inner();
        Ok((inner.applied, inner.membership.clone()))
    }

    async fn apply<I>(&mut self, entries: I) -> Result<Vec<Answer>, StorageError>
    where
        I: IntoIterator<Item = Entry> + OptionalSend,
        I::IntoIter: OptionalSend,
    {
        let mut inner = self.inner();
        Ok(entries.into_iter().map(|entry| inner.apply(entry)).collect())
    }

    async fn get_snapshot_builder(&mut self) -> Self {
        self.clone()
    }

    async fn begin_receiving_snapshot(&mut self) -> Result<Box<Cursor<Vec<u8>>>, StorageError> {
        Ok(Box::default())
    }

    async fn install_snapshot(
        &mut self,
        meta: &SnapshotMeta<u64, Member>,
        snapshot: Box<Cursor<Vec<u8>>>,
    ) -> Result<(), StorageError> {
        let wrong = |error: &io::Error| StorageIOError::read_snapshot(Some(meta.signature()), error);
        let directory = serde_json::from_slice(snapshot.get_ref()).map_err(|error| wrong(&error.into()))?;
        let kept = StoredSnapshot { meta: meta.clone(), directory };
        let mut inner = self.inner();
        write_snapshot(&inner.folder, &kept).map_err(|error| wrong(&error))?;
        inner.applied = meta.last_log_id;
        inner.membership = meta.last_membership.clone();
        inner.directory = kept.directory;
        inner.tell_all();
        Ok(())
    }

    async fn get_current_snapshot(&mut self) -> Result<Option<Snapshot<Group>>, StorageError> {
        let folder = self.inner().folder.clone();
        let read = read_snapshot(&folder).and_then(|kept| {
            let Some(kept) = kept else { return Ok(None) };
            let bytes = serde_json::to_vec(&kept.directory)?;
            Ok(Some(Snapshot { meta: kept.meta, snapshot: Box::new(Cursor::new(bytes)) }))
        });
        Ok(read.map_err(|error| StorageIOError::read_snapshot(None, &error))?)
    }
}
