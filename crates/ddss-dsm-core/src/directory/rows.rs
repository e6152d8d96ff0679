//! Row 0 describes the space, row k + 1 the rank k.

use crate::model::Config;
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
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SpaceRow {
    /// Number of ranks.
    pub ranks: u32,
    /// Pages of the space.
    pub pages: u32,
    /// Bytes of a page.
    pub page_bytes: u32,
    /// Key with which ranks authenticate each other.
    pub key: [u8; 32],
}

impl SpaceRow {
    /// Returns the row of a space with these settings.
    #[must_use]
    pub fn of(config: &Config, key: [u8; 32]) -> Self {
        Self { ranks: config.ranks as u32, pages: config.pages, page_bytes: config.page_bytes, key }
    }

    /// Encodes the row.
    #[must_use]
    pub fn encode(&self) -> [u8; ROW_BYTES] {
        let mut row = [0; ROW_BYTES];
        row[..4].copy_from_slice(&MAGIC);
        for (at, value) in [(4, self.ranks), (8, self.pages), (12, self.page_bytes)] {
            row[at..at + 4].copy_from_slice(&value.to_le_bytes());
        }
        row[16..48].copy_from_slice(&self.key);
        row
    }

    /// Decodes the row and compares it with the settings of this rank.
    ///
    /// # Errors
    /// Another format, or the first setting that differs.
    pub fn decode(row: &[u8; ROW_BYTES], config: &Config) -> Result<Self, DirectoryError> {
        let word = |at: usize| u32::from_le_bytes([row[at], row[at + 1], row[at + 2], row[at + 3]]);
        if row[..4] != MAGIC || row[48..].iter().any(|byte| *byte != 0) {
            return Err(DirectoryError::Format);
        }
        let mut key = [0; 32];
        key.copy_from_slice(&row[16..48]);
        let found = Self { ranks: word(4), pages: word(8), page_bytes: word(12), key };
        let ours = Self::of(config, key);
        let settings = [
            ("ranks", found.ranks, ours.ranks),
            ("pages", found.pages, ours.pages),
            ("bytes of a page", found.page_bytes, ours.page_bytes),
        ];
        match settings.into_iter().find(|(_, theirs, ours)| theirs != ours) {
            Some((name, theirs, ours)) => {
                Err(DirectoryError::Mismatch { name, theirs: theirs.into(), ours: ours.into() })
            }
            None => Ok(found),
        }
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
