//! Rows of the table in which DDSS names a group.
//!
//! Row 0 describes the group, row k + 1 the member k. The rows behind them hold nothing: each member holds the lock of one
//! while it lives.

use crate::member::Member;
use ddss_auth::Key;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};

/// Bytes of a row.
pub(crate) const ROW_BYTES: usize = 128;
/// Bytes of the settings of a group, and of the note of a member.
pub const NOTE_BYTES: usize = 80;

/// Bytes whose meaning is the caller's.
pub type Note = [u8; NOTE_BYTES];
pub(crate) type Row = [u8; ROW_BYTES];

const GROUP: [u8; 4] = *b"GRP1";
const MEMBER: [u8; 4] = *b"MBR1";

/// A row is not one of this release, or damaged.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("row {row} of the group is of another release: remove the group, or use one release in all its processes")]
pub struct RowError {
    pub(crate) row: u64,
}

/// Row of a member's description.
pub(crate) fn row_of(member: Member) -> u64 {
    1 + u64::from(member.0)
}

/// Row whose lock a member holds while it lives.
pub(crate) fn lock_row_of(member: Member, members: u16) -> u64 {
    1 + u64::from(members) + u64::from(member.0)
}

/// Rows of the table of a group.
pub(crate) fn rows_of(members: u16) -> u64 {
    1 + 2 * u64::from(members)
}

/// Description of a group.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct GroupRow {
    pub(crate) members: u16,
    /// State of the group, whose meaning is the caller's: 0 when the group is made.
    pub(crate) state: u8,
    pub(crate) key: Key,
    pub(crate) settings: Note,
}

impl GroupRow {
    pub(crate) fn encode(&self) -> Row {
        let mut row = [0; ROW_BYTES];
        row[..4].copy_from_slice(&GROUP);
        row[4..6].copy_from_slice(&self.members.to_le_bytes());
        row[6] = self.state;
        row[8..40].copy_from_slice(&self.key);
        row[40..120].copy_from_slice(&self.settings);
        row
    }

    /// Decodes row 0. `None` if nobody has written it.
    pub(crate) fn decode(row: &[u8]) -> Result<Option<Self>, RowError> {
        let Some(row) = written(row, GROUP, 0)? else { return Ok(None) };
        let (mut key, mut settings) = ([0; 32], [0; NOTE_BYTES]);
        key.copy_from_slice(&row[8..40]);
        settings.copy_from_slice(&row[40..120]);
        Ok(Some(Self { members: u16::from_le_bytes([row[4], row[5]]), state: row[6], key, settings }))
    }
}

/// Description of a member.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct MemberRow {
    pub(crate) run: u32,
    /// Process id, for people only.
    pub(crate) process: u32,
    pub(crate) address: SocketAddr,
    pub(crate) note: Note,
}

impl MemberRow {
    pub(crate) fn encode(&self) -> Row {
        let mut row = [0; ROW_BYTES];
        row[..4].copy_from_slice(&MEMBER);
        row[4..8].copy_from_slice(&self.run.to_le_bytes());
        row[8..12].copy_from_slice(&self.process.to_le_bytes());
        row[12..14].copy_from_slice(&self.address.port().to_le_bytes());
        let ip = match self.address.ip() {
            IpAddr::V4(ip) => ip.to_ipv6_mapped(),
            IpAddr::V6(ip) => ip,
        };
        row[16..32].copy_from_slice(&ip.octets());
        row[40..120].copy_from_slice(&self.note);
        row
    }

    /// Decodes the row of a member. `None` if no process has taken its place.
    pub(crate) fn decode(row: &[u8], at: u64) -> Result<Option<Self>, RowError> {
        let Some(row) = written(row, MEMBER, at)? else { return Ok(None) };
        let word = |at: usize| u32::from_le_bytes([row[at], row[at + 1], row[at + 2], row[at + 3]]);
        let (run, process, port) = (word(4), word(8), u16::from_le_bytes([row[12], row[13]]));
        if run == 0 || port == 0 {
            return Err(RowError { row: at });
        }
        let (mut ip, mut note) = ([0; 16], [0; NOTE_BYTES]);
        ip.copy_from_slice(&row[16..32]);
        note.copy_from_slice(&row[40..120]);
        let address = SocketAddr::new(Ipv6Addr::from(ip).to_canonical(), port);
        Ok(Some(Self { run, process, address, note }))
    }
}

/// Returns the row, or `None` if it is empty.
fn written(row: &[u8], magic: [u8; 4], at: u64) -> Result<Option<&Row>, RowError> {
    let row: &Row = row.try_into().map_err(|_| RowError { row: at })?;
    if row.iter().all(|byte| *byte == 0) {
        return Ok(None);
    }
    if row[..4] == magic { Ok(Some(row)) } else { Err(RowError { row: at }) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_round_trip_and_foreign_rows_are_refused() {
        // If this broke, members would connect to wrong addresses, or believe bytes of another release.
        let group = GroupRow { members: 3, state: 9, key: [7; 32], settings: [9; NOTE_BYTES] };
        assert_eq!(GroupRow::decode(&group.encode()), Ok(Some(group)));
        for address in ["10.1.2.3:70", "[fe80::1]:65535"] {
            let member = MemberRow { run: 5, process: 6, address: address.parse().unwrap(), note: [1; NOTE_BYTES] };
            assert_eq!(MemberRow::decode(&member.encode(), 4), Ok(Some(member)));
            assert_eq!(GroupRow::decode(&member.encode()), Err(RowError { row: 0 }));
            let mut portless = member.encode();
            portless[12..14].fill(0);
            assert_eq!(MemberRow::decode(&portless, 4), Err(RowError { row: 4 }));
        }
        assert_eq!(MemberRow::decode(&[0; ROW_BYTES], 4), Ok(None));
        assert_eq!(MemberRow::decode(&[0; 12], 4), Err(RowError { row: 4 }));
        assert_eq!(MemberRow::decode(&group.encode(), 4), Err(RowError { row: 4 }));
    }

    #[test]
    fn no_two_rows_coincide() {
        // If this broke, the lock of one member would be another's, and a death would stay unseen.
        let mut rows: Vec<u64> = (0..5).flat_map(|k| [row_of(Member(k)), lock_row_of(Member(k), 5)]).collect();
        rows.push(0);
        rows.sort_unstable();
        assert_eq!(rows, (0..rows_of(5)).collect::<Vec<_>>());
    }
}
