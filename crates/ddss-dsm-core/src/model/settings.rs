//! Settings that all ranks of a space have in common, as bytes: whoever makes the space writes them, and others compare.

use super::config::{Config, Ordering, Protocol, Stamps};

/// Bytes of the settings.
pub const SETTINGS_BYTES: usize = 32;
const MAGIC: [u8; 4] = *b"DSM1";
/// Byte that no field uses.
const PADDING: usize = 19;

/// Settings of a space do not fit this rank.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SettingsError {
    /// The bytes have another format.
    #[error(
        "cannot read the settings of a space of another release: remove the space, or use one release on all ranks"
    )]
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

/// A setting, and the place of its little-endian bytes.
struct Setting {
    name: &'static str,
    at: usize,
    bytes: usize,
    value: u64,
}

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
        setting("protocol", 16, 1, protocol),
        setting("ordering", 17, 1, ordering),
        setting("stamps", 18, 1, stamps),
        setting("bytes of a message", 20, 4, config.message_bytes as u64),
        setting("records of the log", 24, 4, config.log.slots.into()),
        setting("bytes of a record", 28, 4, config.log.record_bytes.into()),
    ]
}

impl Config {
    /// Encodes the settings that all ranks have in common.
    #[must_use]
    pub fn encode_settings(&self) -> [u8; SETTINGS_BYTES] {
        let mut out = [0; SETTINGS_BYTES];
        out[..4].copy_from_slice(&MAGIC);
        for Setting { at, bytes, value, .. } in settings(self) {
            out[at..at + bytes].copy_from_slice(&value.to_le_bytes()[..bytes]);
        }
        out
    }

    /// Compares the settings of a space with those of this rank.
    ///
    /// # Errors
    /// Another format, or the first setting that differs.
    pub fn compare_settings(&self, theirs: &[u8; SETTINGS_BYTES]) -> Result<(), SettingsError> {
        if theirs[..4] != MAGIC || theirs[PADDING] != 0 {
            return Err(SettingsError::Format);
        }
        for Setting { name, at, bytes, value: ours } in settings(self) {
            let mut word = [0; 8];
            word[..bytes].copy_from_slice(&theirs[at..at + bytes]);
            let theirs = u64::from_le_bytes(word);
            if theirs != ours {
                return Err(SettingsError::Mismatch { name, theirs, ours });
            }
        }
        Ok(())
    }
}
