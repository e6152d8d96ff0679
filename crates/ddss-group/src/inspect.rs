//! A group as its directory describes it, without a place in it.

use crate::directory::{GroupRow, MemberRow, Note, ROW_BYTES, Row, RowError, row_of, rows_of};
use crate::join::JoinError;
use crate::member::{Incarnation, MEMBERS_MAX, Member};
use crate::probe::Probe;
use ddss::{Client, ErrorKind, Table};
use std::net::SocketAddr;
use std::time::Duration;

/// Time between two reads of the locks.
const LOOK_PAUSE: Duration = Duration::from_millis(20);

/// A group, as its directory describes it.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct GroupInfo {
    /// Places.
    pub places: u16,
    /// State, whose meaning is that of the group.
    pub state: u8,
    /// Settings that all members agree on.
    pub settings: Note,
    /// Members that live.
    pub members: Vec<MemberInfo>,
    table: Table,
}

impl GroupInfo {
    /// Reads a row that a member has [published](crate::GroupState::publish_row). `None` if none has, or the group has no such
    /// row.
    ///
    /// # Errors
    /// The error of a call.
    pub fn row(&self, number: u16) -> Result<Option<Row>, JoinError> {
        let at = rows_of(self.places) + u64::from(number);
        if at >= self.table.len() {
            return Ok(None);
        }
        let row: Option<Row> = self.table.row(at).get()?[..].try_into().ok();
        Ok(row.filter(|row| row.iter().any(|byte| *byte != 0)))
    }
}

/// A living member, as its row describes it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct MemberInfo {
    /// Place and process.
    pub whom: Incarnation,
    /// Process id on its node.
    pub process: u32,
    /// Address of its fabric.
    pub address: SocketAddr,
    /// Note that it published last.
    pub note: Note,
}

/// Reads the directory of a group. `None` if there is none of this name. A living member whose lock's home has just restarted
/// is left out: [`count_living`] waits for it.
///
/// # Errors
/// The directory has another format, or the error of a call.
pub fn inspect(client: &Client, name: &str) -> Result<Option<GroupInfo>, JoinError> {
    let Some((table, group)) = open(client, name)? else { return Ok(None) };
    let mut members = Vec::new();
    for (member, row) in rows(&table, group.members)? {
        if !Probe::default().is_free(&table, member, group.members)? {
            let MemberRow { run, process, address, note } = row;
            members.push(MemberInfo { whom: Incarnation { member, run }, process, address, note });
        }
    }
    Ok(Some(GroupInfo { places: group.members, state: group.state, settings: group.settings, members, table }))
}

/// Returns the number of members that live, once that is certain: a lock that is free proves a death only after a third of the
/// lease of its place and a second, and one that is held proves a life only when no other process probes it.
///
/// # Errors
/// The directory has another format, or the error of a call.
pub fn count_living(client: &Client, name: &str, lease: Duration) -> Result<usize, JoinError> {
    let Some((table, group)) = open(client, name)? else { return Ok(0) };
    let mut probes = vec![Probe::default(); usize::from(group.members)];
    loop {
        let (mut living, mut is_certain) = (0, true);
        for (member, row) in rows(&table, group.members)? {
            let probe = &mut probes[usize::from(member.0)];
            probe.observe(row.run);
            probe.is_free(&table, member, group.members)?;
            living += usize::from(probe.is_held());
            is_certain &= probe.is_held() || probe.is_dead(lease);
        }
        if is_certain {
            return Ok(living);
        }
        std::thread::sleep(LOOK_PAUSE);
    }
}

/// Opens the directory of a group, and reads its description. `None` if there is none of this name.
fn open(client: &Client, name: &str) -> Result<Option<(Table, GroupRow)>, JoinError> {
    let table = match client.table::<[u8]>(name).open() {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        other => other?,
    };
    let wrong = RowError { row: 0 };
    if table.row_len() != ROW_BYTES as u64 {
        return Err(wrong.into());
    }
    let Some(group) = GroupRow::decode(&table.row(0).get()?)? else { return Ok(None) };
    if group.members > MEMBERS_MAX || table.len() < rows_of(group.members) {
        return Err(wrong.into());
    }
    Ok(Some((table, group)))
}

/// Reads the rows of the members, dead or alive.
fn rows(table: &Table, members: u16) -> Result<Vec<(Member, MemberRow)>, JoinError> {
    let row = |member| {
        let at = row_of(member);
        Ok(MemberRow::decode(&table.row(at).get()?, at)?.map(|row| (member, row)))
    };
    (0..members).map(Member).map(row).filter_map(Result::transpose).collect()
}
