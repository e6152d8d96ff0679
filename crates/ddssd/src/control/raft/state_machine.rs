//! The Raft state machine: applies committed entries to the directory, notifies the progress threads, and builds and
//! installs snapshots.

use super::directory::{Directory, DirectoryChange, ReplicaRecord};
use super::log::{LogStore, is_full};
use super::snapshot::{StoredSnapshot, read_snapshot, write_snapshot};
use super::types::{CommandResult, Entry, Group, LogId, Membership, StorageError};
use crate::control::bridge::{ControlEvent, EventSenders};
use crate::control::identity::member::Member;
use ddss_admin::PeerAddress;
use ddss_core::{Name, NodeId, SegmentId};
use ddss_engine::RoleAssignment;
use openraft::storage::{RaftStateMachine, Snapshot};
use openraft::{EntryPayload, OptionalSend, RaftSnapshotBuilder, SnapshotMeta, StorageIOError};
use std::io::{self, Cursor};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::watch;

#[derive(Debug)]
struct Inner {
    own_node: u16,
    events: EventSenders,
    applied: Option<LogId>,
    membership: Membership,
    directory: Directory,
    /// Incremented with each change of the directory.
    changes: u64,
    on_disk: SnapshotFile,
}

/// The snapshot file. A snapshot is built beside the runtime, and one of the leader may be installed meanwhile: the newer one stays, because
/// the log before it is gone.
#[derive(Clone, Debug)]
struct SnapshotFile {
    folder: PathBuf,
    newest: Arc<Mutex<Option<LogId>>>,
    /// Tells the log up to where it may be purged.
    on_disk: watch::Sender<Option<LogId>>,
}

impl SnapshotFile {
    fn new(folder: &Path, newest: Option<LogId>) -> Self {
        let on_disk = watch::Sender::new(newest);
        Self { folder: folder.to_owned(), newest: Arc::new(Mutex::new(newest)), on_disk }
    }

    /// Replaces the file unless it holds a newer snapshot.
    fn write(&self, snapshot: &StoredSnapshot) -> io::Result<()> {
        let mut newest = self.newest.lock().unwrap_or_else(PoisonError::into_inner);
        if *newest > snapshot.meta.last_log_id {
            return Ok(());
        }
        write_snapshot(&self.folder, snapshot)?;
        *newest = snapshot.meta.last_log_id;
        self.on_disk.send_replace(*newest);
        Ok(())
    }
}

/// The state machine; clones share it.
#[derive(Clone, Debug)]
pub(crate) struct StateMachine(Arc<Mutex<Inner>>);

impl StateMachine {
    /// Loads the last snapshot.
    pub(crate) fn open(folder: &Path, own_node: u16, events: EventSenders) -> io::Result<Self> {
        let stored = read_snapshot(folder)?.unwrap_or_default();
        let inner = Inner {
            own_node,
            events,
            on_disk: SnapshotFile::new(folder, stored.meta.last_log_id),
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

    /// Returns the position of the snapshot on the disk, as it changes.
    pub(crate) fn snapshot_on_disk(&self) -> watch::Receiver<Option<LogId>> {
        self.inner().on_disk.on_disk.subscribe()
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

/// Notifies the progress threads of a change of the directory.
fn send_change(events: &EventSenders, change: DirectoryChange) {
    match change {
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
            events.send(ControlEvent::RoleAssigned(role_assignment(home, roles)));
        }
        DirectoryChange::RoleReleased { segment } => {
            events.send(ControlEvent::RoleReleased(SegmentId::from_bits(segment)));
        }
    }
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
                self.directory.apply(&command, |change| send_change(events, change))
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
        let (stored, file) = {
            let inner = self.inner();
            (inner.snapshot(), inner.on_disk.clone())
        };
        let stored = Arc::new(stored);
        let built = loop {
            // A large directory takes longer than heartbeats may be late.
            let (file, writing) = (file.clone(), Arc::clone(&stored));
            let write = move || file.write(&writing).and_then(|()| Ok(serde_json::to_vec(&writing.directory)?));
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
        inner.on_disk.write(&stored).map_err(|error| wrong(&error))?;
        inner.applied = meta.last_log_id;
        inner.membership = meta.last_membership.clone();
        let before = std::mem::replace(&mut inner.directory, stored.directory);
        inner.changes += 1;
        // The log entries that this node lacks would have reported these.
        for change in inner.directory.changes_since(&before) {
            send_change(&inner.events, change);
        }
        inner.send_all();
        Ok(())
    }

    async fn get_current_snapshot(&mut self) -> Result<Option<Snapshot<Group>>, StorageError> {
        let folder = self.inner().on_disk.folder.clone();
        let read = read_snapshot(&folder).and_then(|stored| {
            let Some(stored) = stored else { return Ok(None) };
            let bytes = serde_json::to_vec(&stored.directory)?;
            Ok(Some(Snapshot { meta: stored.meta, snapshot: Box::new(Cursor::new(bytes)) }))
        });
        Ok(read.map_err(|error| StorageIOError::read_snapshot(None, &error))?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::bridge::ControlBridge;
    use crate::control::raft::types::Command;
    use openraft::CommittedLeaderId;

    /// Applies commands to a directory: a replicated segment of that name and id, with node 1 as its home.
    fn replicated(directory: &mut Directory, name: &str, segment: SegmentId) {
        let (name, home, claim) = (name.to_owned(), 1, segment.to_bits());
        directory.apply(&Command::Claim { name: name.clone(), home, claim }, |_| {});
        let pair = Command::Pair { name, home, run: 0, segment: segment.to_bits(), epoch: 1, turn: 1, replica: 2 };
        directory.apply(&pair, |_| {});
    }

    #[test]
    fn snapshot_reports_what_it_lacks() {
        // If this broke, a node that returns through a snapshot would bring back segments that were released meanwhile,
        // and choose no replica at a node that is alive again.
        let folder = std::env::temp_dir().join(format!("ddssd-installed-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let id = |index| SegmentId::new(NodeId(1), index, 1);
        let (mut before, mut after) = (Directory::default(), Directory::default());
        for (index, name) in [(1, "released"), (2, "again"), (3, "stays")] {
            replicated(&mut before, name, id(index));
        }
        for (index, name) in [(9, "again"), (3, "stays")] {
            replicated(&mut after, name, id(index));
        }
        for directory in [&mut before, &mut after] {
            directory.apply(&Command::Alive { node: 2, run: 7 }, |_| {});
        }
        before.apply(&Command::Dead { node: 2, epoch: 1 }, |_| {});
        write_snapshot(&folder, &StoredSnapshot { directory: before, ..Default::default() }).unwrap();
        let (bridge, sender, _requests) = ControlBridge::open().unwrap();
        let mut machine = StateMachine::open(&folder, 2, EventSenders::new([sender])).unwrap();
        while bridge.next_event().is_some() {}
        let bytes = Box::new(Cursor::new(serde_json::to_vec(&after).unwrap()));
        let last_log_id = Some(LogId::new(CommittedLeaderId::new(1, 1), 9));
        let meta = SnapshotMeta { last_log_id, ..Default::default() };
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(machine.install_snapshot(&meta, bytes)).unwrap();
        let events: Vec<ControlEvent> = std::iter::from_fn(|| bridge.next_event()).collect();
        let released = events.iter().filter_map(|event| match event {
            ControlEvent::RoleReleased(segment) => Some(*segment),
            _ => None,
        });
        assert_eq!(released.collect::<Vec<_>>(), [id(1), id(2)], "{events:?}");
        let assigned = |event: &ControlEvent| matches!(event, ControlEvent::RoleAssigned(_));
        assert_eq!(events.iter().filter(|event| assigned(event)).count(), 2, "{events:?}");
        assert!(events.iter().any(|event| matches!(event, ControlEvent::Alive(NodeId(2)))), "{events:?}");
        std::fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn older_snapshot_does_not_replace_a_newer_one() {
        // If this broke, a node that restarts would lack the names between its snapshot and the start of its log.
        let folder = std::env::temp_dir().join(format!("ddssd-snapshot-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let file = SnapshotFile::new(&folder, None);
        let at = |index| {
            let last_log_id = Some(LogId::new(CommittedLeaderId::new(1, 1), index));
            StoredSnapshot { meta: SnapshotMeta { last_log_id, ..Default::default() }, ..Default::default() }
        };
        let stored = || read_snapshot(&folder).unwrap().unwrap().meta.last_log_id.unwrap().index;
        for (written, expected) in [(5, 5), (9, 9), (7, 9), (9, 9), (10, 10)] {
            file.write(&at(written)).unwrap();
            assert_eq!(stored(), expected, "after {written}");
        }
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
