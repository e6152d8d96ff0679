//! The Raft state machine: applies committed entries to the directory, notifies the progress threads, and builds and
//! installs snapshots.

use super::directory::{Directory, DirectoryChange, ReplicaRecord};
use super::log::{LogStore, is_full};
use super::snapshot::{StoredSnapshot, read_snapshot, write_snapshot};
use super::types::{CommandResult, Entry, Group, LogId, Membership, StorageError};
use crate::control::bridge::{ControlEvent, EventSenders};
use crate::control::member::Member;
use ddss_admin::PeerAddress;
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
    own_node: u16,
    events: EventSenders,
    applied: Option<LogId>,
    membership: Membership,
    directory: Directory,
    /// Incremented with each change of the directory.
    changes: u64,
}

/// The state machine; clones share it.
#[derive(Clone, Debug)]
pub(crate) struct StateMachine(Arc<Mutex<Inner>>);

impl StateMachine {
    /// Loads the last snapshot.
    pub(crate) fn open(folder: &Path, own_node: u16, events: EventSenders) -> io::Result<Self> {
        let stored = read_snapshot(folder)?.unwrap_or_default();
        let inner = Inner {
            folder: folder.to_owned(),
            own_node,
            events,
            applied: stored.meta.last_log_id,
            membership: stored.meta.last_membership,
            directory: stored.directory,
            changes: 0,
        };
        inner.send_all();
        Ok(Self(Arc::new(Mutex::new(inner))))
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        // A poisoned lock is safe: no panic leaves the state half changed.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads the directory.
    pub(crate) fn read<T>(&self, read: impl FnOnce(&Directory) -> T) -> T {
        read(&self.inner().directory)
    }

    /// Returns true if a node is the home of a replicated segment.
    pub(crate) fn has_replicas(&self, node: u16) -> bool {
        self.inner().directory.has_replicas(node)
    }

    /// Returns a number that changes with the directory.
    pub(crate) fn changes(&self) -> u64 {
        self.inner().changes
    }

    /// Returns the position of the last entry that was applied.
    pub(crate) fn applied_index(&self) -> u64 {
        self.inner().applied.map_or(0, |id| id.index)
    }

    /// Returns the members that this node knows.
    pub(crate) fn members(&self) -> Vec<(u16, Member)> {
        members(&self.inner().membership)
    }
}

fn role_assignment(home: u16, roles: ReplicaRecord) -> RoleAssignment {
    let ReplicaRecord { segment, replica, epoch, turn, paired, vacant } = roles;
    let (home, replica) = (NodeId(home), NodeId(replica));
    RoleAssignment { segment: SegmentId::from_bits(segment), home, replica, epoch, turn, paired, vacant }
}

fn members(membership: &Membership) -> Vec<(u16, Member)> {
    membership.nodes().filter_map(|(&node, &member)| Some((u16::try_from(node).ok()?, member))).collect()
}

impl Inner {
    fn send_members(&self) {
        let others = members(&self.membership).into_iter().filter(|&(node, _)| node != self.own_node);
        let others = others.map(|(node, member)| PeerAddress { node: NodeId(node), address: member.address });
        self.events.send(ControlEvent::Members(others.collect()));
    }

    fn send_all(&self) {
        let names =
            self.directory.names().filter_map(|(name, holder)| Some((Name::new(name).ok()?, NodeId(holder.home))));
        self.events.send(ControlEvent::Names(names.collect()));
        for (_, holder) in self.directory.names() {
            if let Some(roles) = holder.roles {
                self.events.send(ControlEvent::RoleAssigned(role_assignment(holder.home, roles)));
            }
        }
        for node in self.directory.removed_nodes() {
            self.events.send(ControlEvent::Removed(NodeId(node)));
        }
        for node in self.directory.dead_nodes() {
            self.events.send(ControlEvent::Dead(NodeId(node)));
        }
        if self.membership.nodes().next().is_some() {
            self.send_members();
        }
    }

    fn apply(&mut self, entry: Entry) -> CommandResult {
        self.applied = Some(entry.log_id);
        match entry.payload {
            EntryPayload::Blank => CommandResult::Done,
            EntryPayload::Normal(command) => {
                self.changes += 1;
                let events = &self.events;
                self.directory.apply(&command, |change| match change {
                    DirectoryChange::Name { name, home } => match Name::new(&name) {
                        Ok(name) => events.send(ControlEvent::Name { name, home: home.map(NodeId) }),
                        // Only a byzantine node can have claimed such a name.
                        Err(_) => tracing::warn!(name, "the directory holds a name that no segment can have"),
                    },
                    DirectoryChange::Dead(node) => {
                        tracing::warn!(node, "the cluster has declared a node dead");
                        events.send(ControlEvent::Dead(NodeId(node)));
                    }
                    DirectoryChange::Alive(node) => events.send(ControlEvent::Alive(NodeId(node))),
                    DirectoryChange::Removed(node) => {
                        tracing::warn!(node, "a node was removed from the cluster: its messages are ignored");
                        events.send(ControlEvent::Removed(NodeId(node)));
                    }
                    DirectoryChange::RoleAssigned { home, roles } => {
                        events.send(ControlEvent::RoleAssigned(role_assignment(home, roles)))
                    }
                    DirectoryChange::RoleReleased { segment } => {
                        events.send(ControlEvent::RoleReleased(SegmentId::from_bits(segment)))
                    }
                })
            }
            EntryPayload::Membership(membership) => {
                self.membership = Membership::new(Some(entry.log_id), membership);
                self.directory.clear_removed(members(&self.membership).into_iter().map(|(node, _)| node));
                self.send_members();
                CommandResult::Done
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
        let (stored, folder) = {
            let inner = self.inner();
            (inner.snapshot(), inner.folder.clone())
        };
        let stored = Arc::new(stored);
        let built = loop {
            // A large directory takes longer than heartbeats may be late.
            let (folder, writing) = (folder.clone(), Arc::clone(&stored));
            let write =
                move || write_snapshot(&folder, &writing).and_then(|()| Ok(serde_json::to_vec(&writing.directory)?));
            let written = tokio::task::spawn_blocking(write).await.unwrap_or_else(|error| Err(io::Error::other(error)));
            match written {
                // As with the log: the Raft library would stop for good.
                Err(error) if is_full(&error) => {
                    tracing::warn!(%error, "no disk space for a snapshot of the cluster's directory: waiting");
                    tokio::time::sleep(LogStore::RETRY_INTERVAL * 10).await;
                }
                written => break written,
            }
        };
        let bytes = built.map_err(|error| StorageIOError::write_snapshot(Some(stored.meta.signature()), &error))?;
        Ok(Snapshot { meta: stored.meta.clone(), snapshot: Box::new(Cursor::new(bytes)) })
    }
}

impl RaftStateMachine<Group> for StateMachine {
    type SnapshotBuilder = Self;

    async fn applied_state(&mut self) -> Result<(Option<LogId>, Membership), StorageError> {
        let inner = self.inner();
        Ok((inner.applied, inner.membership.clone()))
    }

    async fn apply<I>(&mut self, entries: I) -> Result<Vec<CommandResult>, StorageError>
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
        let stored = StoredSnapshot { meta: meta.clone(), directory };
        let mut inner = self.inner();
        write_snapshot(&inner.folder, &stored).map_err(|error| wrong(&error))?;
        inner.applied = meta.last_log_id;
        inner.membership = meta.last_membership.clone();
        inner.directory = stored.directory;
        inner.changes += 1;
        inner.send_all();
        Ok(())
    }

    async fn get_current_snapshot(&mut self) -> Result<Option<Snapshot<Group>>, StorageError> {
        let folder = self.inner().folder.clone();
        let read = read_snapshot(&folder).and_then(|stored| {
            let Some(stored) = stored else { return Ok(None) };
            let bytes = serde_json::to_vec(&stored.directory)?;
            Ok(Some(Snapshot { meta: stored.meta, snapshot: Box::new(Cursor::new(bytes)) }))
        });
        Ok(read.map_err(|error| StorageIOError::read_snapshot(None, &error))?)
    }
}
