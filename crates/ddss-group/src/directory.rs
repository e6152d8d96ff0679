//! Rows of the table in which DDSS names a group.
//!
//! Row 0 describes the group, row k + 1 the member k. Of the rows behind them each member holds the lock of one while it lives;
//! they hold nothing. Then follow the last words of the members, and the rows that the group's owner has asked for.

use crate::member::{MEMBERS_MAX, Member};
use ddss_auth::Key;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};

/// Bytes of a row.
pub(crate) const ROW_BYTES: usize = 128;
/// Bytes of the settings of a group, and of the note of a member.
pub const NOTE_BYTES: usize = 80;

/// Bytes whose meaning is the caller's.
pub type Note = [u8; NOTE_BYTES];
/// A row whose meaning is the caller's, or a row of this crate.
pub type Row = [u8; ROW_BYTES];

const GROUP: [u8; 4] = *b"GRP1";
const MEMBER: [u8; 4] = *b"MBR1";
const LAST_WORD: [u8; 4] = *b"END1";

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

/// Row of the last word of a member.
pub(crate) fn word_row_of(member: Member, members: u16) -> u64 {
    1 + 2 * u64::from(members) + u64::from(member.0)
}

/// Rows of the table of a group, before those of the caller.
pub(crate) fn rows_of(members: u16) -> u64 {
    1 + 3 * u64::from(members)
}

/// Returns the number of members of a group whose table has so many rows, of which so many are the caller's. `None` if it is the
/// table of another release.
#[must_use]
pub fn members_of(rows: u64, extra: u16) -> Option<u64> {
    let rows = rows.checked_sub(1 + u64::from(extra)).filter(|rows| rows.is_multiple_of(3))?;
    Some(rows / 3).filter(|members| (1..=u64::from(MEMBERS_MAX)).contains(members))
}

/// Last word of a process: whose loss ended it. It stays when the process gives its place up.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct LastWord {
    /// Run of the process.
    pub(crate) run: u32,
    pub(crate) lost: Member,
}

impl LastWord {
    pub(crate) fn encode(self) -> Row {
        let mut row = [0; ROW_BYTES];
        row[..4].copy_from_slice(&LAST_WORD);
        row[4..8].copy_from_slice(&self.run.to_le_bytes());
        row[8..10].copy_from_slice(&self.lost.0.to_le_bytes());
        row
    }

    /// Decodes the last word of a member. `None` if no process in its place has left one.
    pub(crate) fn decode(row: &[u8], at: u64) -> Result<Option<Self>, RowError> {
        let Some(row) = written(row, LAST_WORD, at)? else { return Ok(None) };
        let run = u32::from_le_bytes([row[4], row[5], row[6], row[7]]);
        Ok(Some(Self { run, lost: Member(u16::from_le_bytes([row[8], row[9]])) }))
    }
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
        let word = LastWord { run: 5, lost: Member(2) };
        assert_eq!(LastWord::decode(&word.encode(), 11), Ok(Some(word)));
        assert_eq!(LastWord::decode(&[0; ROW_BYTES], 11), Ok(None));
        assert_eq!(LastWord::decode(&group.encode(), 11), Err(RowError { row: 11 }));
    }

    #[test]
    fn no_two_rows_coincide() {
        // If this broke, the lock of one member would be another's, and a death would stay unseen.
        let rows_of_one = |k| [row_of(Member(k)), lock_row_of(Member(k), 5), word_row_of(Member(k), 5)];
        let mut rows: Vec<u64> = (0..5).flat_map(rows_of_one).collect();
        rows.push(0);
        rows.sort_unstable();
        assert_eq!(rows, (0..rows_of(5)).collect::<Vec<_>>());
        // Rows of a table of 4 members without and with 160 rows of the caller: each is another release for the other.
        assert_eq!(
            [(13, 0), (13, 160), (173, 160), (1, 0)].map(|(rows, extra)| members_of(rows, extra)),
            [Some(4), None, Some(4), None]
        );
    }
}
