//! Row 0 describes the space, row k + 1 the rank k.

use crate::model::{Config, Ordering, Protocol, Stamps};
use std::net::{IpAddr, Ipv6Addr, SocketAddr};

/// Bytes of a row.
pub const ROW_BYTES: usize = 64;
const MAGIC: [u8; 4] = *b"DSM1";

/// A row that does not fit this rank.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DirectoryError {
    /// The row has another format.
    #[error("cannot read the row of a space of another release: remove the space, or use one release on all ranks")]
    Format,
    /// The space was created with another setting.
    #[error("cannot join a space with {name} {theirs}: this rank has {ours}; start all ranks with the same settings")]
    Mismatch {
        /// Setting.
        name: &'static str,
        /// Value of the space.
        theirs: u64,
        /// Value of this rank.
        ours: u64,
    },
}

/// Row 0: what all ranks have in common.
///
/// Its fields are little-endian: the key at 16, and the settings of [`Config`] around it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SpaceRow {
    /// Key with which ranks authenticate each other.
    pub key: [u8; 32],
}

/// A setting that all ranks have in common, and its field in row 0.
struct Setting {
    name: &'static str,
    at: usize,
    bytes: usize,
    value: u64,
}

/// Byte of row 0 that no field uses.
const PADDING: usize = 51;

/// Returns the settings that all ranks must have in common: a rank with others would misread its peers, or read stale bytes.
fn settings(config: &Config) -> [Setting; 10] {
    let setting = |name, at, bytes, value| Setting { name, at, bytes, value };
    let protocol = match config.protocol {
        Protocol::Async => 1,
        Protocol::Ardmar => 2,
        Protocol::Draw => 3,
        Protocol::NewGenDsm => 4,
    };
    let ordering = if config.ordering == Ordering::Stamped { 1 } else { 2 };
    let stamps = if config.stamps == Stamps::PerHome { 1 } else { 2 };
    [
        setting("ranks", 4, 2, config.ranks as u64),
        setting("fetches", 6, 2, config.tuning.fetches.into()),
        setting("pages", 8, 4, config.pages.into()),
        setting("bytes of a page", 12, 4, config.page_bytes.into()),
        setting("protocol", 48, 1, protocol),
        setting("ordering", 49, 1, ordering),
        setting("stamps", 50, 1, stamps),
        setting("bytes of a message", 52, 4, config.message_bytes as u64),
        setting("records of the log", 56, 4, config.log.slots.into()),
        setting("bytes of a record", 60, 4, config.log.record_bytes.into()),
    ]
}

impl SpaceRow {
    /// Encodes the row of a space with these settings.
    #[must_use]
    pub fn encode(&self, config: &Config) -> [u8; ROW_BYTES] {
        let mut row = [0; ROW_BYTES];
        row[..4].copy_from_slice(&MAGIC);
        row[16..48].copy_from_slice(&self.key);
        for Setting { at, bytes, value, .. } in settings(config) {
            row[at..at + bytes].copy_from_slice(&value.to_le_bytes()[..bytes]);
        }
        row
    }

    /// Decodes the row and compares it with the settings of this rank.
    ///
    /// # Errors
    /// Another format, or the first setting that differs.
    pub fn decode(row: &[u8; ROW_BYTES], config: &Config) -> Result<Self, DirectoryError> {
        if row[..4] != MAGIC || row[PADDING] != 0 {
            return Err(DirectoryError::Format);
        }
        for Setting { name, at, bytes, value: ours } in settings(config) {
            let mut theirs = [0; 8];
            theirs[..bytes].copy_from_slice(&row[at..at + bytes]);
            let theirs = u64::from_le_bytes(theirs);
            if theirs != ours {
                return Err(DirectoryError::Mismatch { name, theirs, ours });
            }
        }
        let mut key = [0; 32];
        key.copy_from_slice(&row[16..48]);
        Ok(Self { key })
    }
}

/// The row of a rank: where its peers connect.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RankRow {
    /// Address of its fabric.
    pub address: SocketAddr,
    /// Process, for people only.
    pub process: u32,
}

impl RankRow {
    /// Encodes the row.
    #[must_use]
    pub fn encode(&self) -> [u8; ROW_BYTES] {
        let mut row = [0; ROW_BYTES];
        row[..4].copy_from_slice(&MAGIC);
        row[4..8].copy_from_slice(&self.process.to_le_bytes());
        row[8..10].copy_from_slice(&self.address.port().to_le_bytes());
        let ip = match self.address.ip() {
            IpAddr::V4(ip) => ip.to_ipv6_mapped(),
            IpAddr::V6(ip) => ip,
        };
        row[16..32].copy_from_slice(&ip.octets());
        row
    }

    /// Decodes the row. `None` if no rank has joined under it.
    ///
    /// # Errors
    /// Another format.
    pub fn decode(row: &[u8; ROW_BYTES]) -> Result<Option<Self>, DirectoryError> {
        if row.iter().all(|byte| *byte == 0) {
            return Ok(None);
        }
        let is_padded = row[10..16].iter().chain(&row[32..]).all(|byte| *byte == 0);
        let port = u16::from_le_bytes([row[8], row[9]]);
        if row[..4] != MAGIC || !is_padded || port == 0 {
            return Err(DirectoryError::Format);
        }
        let mut ip = [0; 16];
        ip.copy_from_slice(&row[16..32]);
        let process = u32::from_le_bytes([row[4], row[5], row[6], row[7]]);
        let address = SocketAddr::new(Ipv6Addr::from(ip).to_canonical(), port);
        Ok(Some(Self { address, process }))
    }
}
