//! Cluster key, which all nodes of one cluster share: 32 random bytes in a file that only its owner may read.

use std::fmt;
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::str::FromStr;

/// Failure to read, write or create a key.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum KeyError {
    /// The file cannot be read.
    #[error("cannot read the cluster key {}: copy it from another node, or make a new cluster with `ddss cluster init`", path.display())]
    Unreadable {
        /// Path of the file.
        path: PathBuf,
        /// Cause.
        #[source]
        source: io::Error,
    },
    /// Users other than the owner may read or change the file.
    #[error("others may read or change the cluster key {}, or it is not this user's: chown it and chmod 600 it", path.display())]
    Exposed {
        /// Path of the file.
        path: PathBuf,
    },
    /// The file holds no key.
    #[error("{} holds no cluster key: 64 hexadecimal digits, as `ddss cluster init` writes them", path.display())]
    NoKey {
        /// Path of the file.
        path: PathBuf,
    },
    /// The token is not a key.
    #[error("that is no cluster token: 64 hexadecimal digits, as `ddss cluster token` shows them")]
    NoToken,
    /// A key exists already.
    #[error("there is a cluster key at {} already: this node belongs to a cluster", path.display())]
    Exists {
        /// Path of the file.
        path: PathBuf,
    },
    /// The file cannot be written.
    #[error("cannot write the cluster key {}", path.display())]
    Unwritable {
        /// Path of the file.
        path: PathBuf,
        /// Cause.
        #[source]
        source: io::Error,
    },
    /// The system has no random bytes.
    #[error("cannot create a key: the system has no random bytes")]
    NoRandom,
}

/// Key of a cluster. Every holder is a node of the cluster.
///
/// ```
/// use ddss_admin::ClusterKey;
/// let key = ClusterKey::generate()?;
/// let token = key.token();
/// assert_eq!(token.parse::<ClusterKey>()?, key);
/// assert!(!format!("{key:?}").contains(&token), "a key never gets into a log");
/// # Ok::<(), ddss_admin::KeyError>(())
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct ClusterKey([u8; Self::BYTES]);

impl ClusterKey {
    /// Bytes of a key.
    pub const BYTES: usize = 32;
    /// Name of the key file in the state directory.
    pub const FILE_NAME: &str = "cluster.key";
    /// Size limit of a key file; a longer file is not a key.
    const FILE_BYTES_MAX: u64 = 256;

    /// Creates a random key.
    pub fn generate() -> Result<Self, KeyError> {
        let mut bytes = [0; Self::BYTES];
        getrandom::fill(&mut bytes).map_err(|_| KeyError::NoRandom)?;
        Ok(Self(bytes))
    }

    /// Returns the raw bytes.
    pub fn bytes(&self) -> &[u8; Self::BYTES] {
        &self.0
    }

    /// Returns the key with which the nodes of a recovered cluster talk to each other. Another cluster, from which it was
    /// recovered, has the same key file and another id. The handshake hashes the key, so each bit of the id changes all.
    #[must_use]
    pub fn of_cluster(&self, id: u64) -> Self {
        let mut bytes = self.0;
        for (byte, id) in bytes.iter_mut().zip(id.to_le_bytes()) {
            *byte ^= id;
        }
        Self(bytes)
    }

    /// Returns the key as text, to carry it to another node. It is the whole secret.
    pub fn token(&self) -> String {
        self.0.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// Reads a key file, if no other user can.
    pub fn read(path: &Path) -> Result<Self, KeyError> {
        let user = rustix::process::geteuid().as_raw();
        // Root may hand its key to a service of another user, never the other way round.
        Self::read_of(path, |owner| owner == user || owner == 0)
    }

    /// Reads a key file to show it. Root may look at the key of a service of another user.
    pub fn read_to_show(path: &Path) -> Result<Self, KeyError> {
        let user = rustix::process::geteuid().as_raw();
        Self::read_of(path, |owner| owner == user || user == 0)
    }

    /// Reads a key file of an allowed owner, if only that owner can use it.
    fn read_of(path: &Path, allows: impl FnOnce(u32) -> bool) -> Result<Self, KeyError> {
        let unreadable = |source| KeyError::Unreadable { path: path.to_owned(), source };
        let file = File::open(path).map_err(unreadable)?;
        let found = file.metadata().map_err(unreadable)?;
        if found.mode() & 0o077 != 0 || !allows(found.uid()) {
            return Err(KeyError::Exposed { path: path.to_owned() });
        }
        let mut text = String::new();
        file.take(Self::FILE_BYTES_MAX).read_to_string(&mut text).map_err(unreadable)?;
        text.trim().parse().map_err(|_| KeyError::NoKey { path: path.to_owned() })
    }

    /// Writes the key to a new file. Never overwrites a key.
    pub fn write(&self, path: &Path) -> Result<(), KeyError> {
        let unwritable = |source: io::Error| match source.kind() {
            io::ErrorKind::AlreadyExists => KeyError::Exists { path: path.to_owned() },
            _ => KeyError::Unwritable { path: path.to_owned(), source },
        };
        let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path);
        let mut file = file.map_err(unwritable)?;
        let written = writeln!(file, "{}", self.token()).and_then(|()| file.sync_all());
        written.map_err(unwritable)
    }
}

impl FromStr for ClusterKey {
    type Err = KeyError;

    fn from_str(text: &str) -> Result<Self, KeyError> {
        if text.len() != 2 * Self::BYTES || !text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return Err(KeyError::NoToken);
        }
        let mut bytes = [0; Self::BYTES];
        for (index, byte) in bytes.iter_mut().enumerate() {
            *byte = u8::from_str_radix(&text[2 * index..2 * index + 2], 16).map_err(|_| KeyError::NoToken)?;
        }
        Ok(Self(bytes))
    }
}

impl fmt::Debug for ClusterKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ClusterKey(..)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn key_is_never_overwritten_and_exposed_file_is_refused() {
        // If this failed, a second init could lose a cluster's secret, or a publicly readable key would be used.
        let folder = std::env::temp_dir().join(format!("ddss-admin-key-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let path = folder.join(ClusterKey::FILE_NAME);
        assert!(matches!(ClusterKey::read(&path), Err(KeyError::Unreadable { .. })));
        let key = ClusterKey::generate().unwrap();
        key.write(&path).unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
        assert_eq!(ClusterKey::read(&path).unwrap(), key);
        let again = ClusterKey::generate().unwrap();
        assert_ne!(again, key);
        assert!(matches!(again.write(&path), Err(KeyError::Exists { .. })));
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o640)).unwrap();
        assert!(matches!(ClusterKey::read(&path), Err(KeyError::Exposed { .. })));
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o600)).unwrap();
        for text in ["", "abc", &"g".repeat(64), &"0".repeat(65), &"0".repeat(1000)] {
            std::fs::write(&path, text).unwrap();
            assert!(matches!(ClusterKey::read(&path), Err(KeyError::NoKey { .. })), "{text:?}");
        }
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
