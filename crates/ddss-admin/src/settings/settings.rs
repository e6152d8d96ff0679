//! Settings of a daemon and their sources: flags, then the environment, then the file, then defaults. One structure
//! serves all of them, so that each setting has one name and one meaning.

use super::byte_size::ByteSize;
use super::choices::{CoreChoice, FabricChoice, MetricsAddress, PeerAddress, UncleanFiles};
use super::host_port::HostPort;
use super::log_levels::LogLevels;
use super::quota_rule::QuotaRule;
use super::toml::expand_tables;
use crate::key::ClusterKey;
use crate::storage::{JOIN_FILE_NAME, STATE_VARIABLE, default_state_folder};
use clap::Args;
use ddss_core::limits::{SEGMENTS_PER_NODE_DEFAULT, SEGMENTS_PER_NODE_MAX, WAITS_PER_CLIENT_DEFAULT};
use serde::{Deserialize, Serialize};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Failure to read or show the settings.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SettingsError {
    /// The file cannot be read.
    #[error("cannot read the configuration {}", path.display())]
    Unreadable {
        /// Path of the file.
        path: PathBuf,
        /// Cause.
        #[source]
        source: std::io::Error,
    },
    /// The file contains an unknown or invalid setting.
    #[error("{}: {what}", path.display())]
    Wrong {
        /// Path of the file.
        path: PathBuf,
        /// Description with the line and a suggestion.
        what: String,
    },
    /// The settings cannot be serialized.
    #[error("cannot show the settings: {0}")]
    Unshowable(String),
}

macro_rules! settings {
    ($($(#[$meta:meta])* $field:ident: $kind:ty,)*) => {
        /// All settings of a daemon; `None` means unset.
        #[derive(clap::Args, Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
        #[serde(deny_unknown_fields, rename_all = "kebab-case")]
        pub struct Settings {
            $($(#[$meta])* #[serde(default, skip_serializing_if = "Option::is_none")] pub $field: Option<$kind>,)*
        }

        impl Settings {
            /// Field names of all settings.
            const NAMES: &[&str] = &[$(stringify!($field),)*];

            /// Fills the unset values from `other`.
            #[must_use]
            pub fn or(self, other: Settings) -> Settings {
                Settings { $($field: self.$field.or(other.$field),)* }
            }

            /// Returns the names of the settings that differ.
            pub fn changed(&self, other: &Settings) -> Vec<String> {
                let mut names = Vec::new();
                $(if self.$field != other.$field { names.push(stringify!($field).replace('_', "-")); })*
                names
            }
        }
    };
}

settings! {
    /// Number of this node, 1 to 1024 [default: 1, or what the cluster gave it when it joined]
    #[arg(long, env = "DDSS_NODE", value_name = "N")]
    node: u16,
    /// Folder of the clients' socket [default: /run/ddss for root, else $XDG_RUNTIME_DIR/ddss, else /tmp/ddss-USER]
    #[arg(long, env = ddss_ipc::FOLDER_VARIABLE, value_name = "DIR")]
    dir: PathBuf,
    /// Folder of the shared memory, on a memory file system [default: /dev/shm/ddss-USER-N, or DIR/memory with --dir]
    #[arg(long, env = "DDSS_MEMORY_DIR", value_name = "DIR")]
    memory_dir: PathBuf,
    /// Folder of what survives a restart [default: DIR/state with --dir, else /var/lib/ddss for root, else ~/.local/state/ddss]
    #[arg(long, env = STATE_VARIABLE, value_name = "DIR")]
    state_dir: PathBuf,
    /// The cluster's key; without one this node is alone [default: cluster.key in the state folder, if it is there]
    #[arg(long, env = "DDSS_KEY_FILE", value_name = "FILE")]
    key_file: PathBuf,
    /// Address on which this node listens for other nodes; needs a key [default: 127.0.0.1:7400]
    #[arg(long, env = "DDSS_LISTEN", value_name = "IP:PORT")]
    listen: SocketAddr,
    /// Address for other nodes, if it differs from the listen address
    #[arg(long, env = "DDSS_ADVERTISE", value_name = "IP:PORT")]
    advertise: SocketAddr,
    /// A node of the cluster to join; not needed again after that
    #[arg(long, env = "DDSS_JOIN", value_name = "HOST:PORT")]
    join: HostPort,
    /// Founding nodes of a new cluster, the same on each of them; separated by commas or repeated
    #[arg(long, env = "DDSS_PEERS", value_name = "N=IP:PORT", value_delimiter = ',', action = clap::ArgAction::Append)]
    peer: Vec<PeerAddress>,
    /// Fabric to the other nodes: auto (the RDMA adapter that has the listening address, else iwarp), iwarp, rdma, or
    /// rdma:NAME
    #[arg(long, env = "DDSS_FABRIC", value_name = "FABRIC")]
    fabric: FabricChoice,
    /// Make the reads of an RDMA adapter wait for each other, as an adapter that reorders them needs [default: off on
    /// Soft-RoCE and Soft-iWARP, else on]
    #[arg(long, env = "DDSS_FENCE_READS", value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    fence_reads: bool,
    /// Progress threads, 1 to 16, the same on all nodes of a cluster: segments are distributed over them [default: 1]
    #[arg(long, env = "DDSS_PROGRESS_THREADS", value_name = "N")]
    progress_threads: u8,
    /// Waits for locks and versions that one client may have in the daemon beyond its calls in flight [default: 65536]
    #[arg(long, env = "DDSS_WAITS_PER_CLIENT", value_name = "N")]
    waits_per_client: u32,
    /// Core of the progress thread: a number (with commas one for each thread), auto (the last one that no other
    /// daemon has claimed, never the first), or none
    #[arg(long, env = "DDSS_CORE", value_name = "CORE")]
    core: CoreChoice,
    /// Microseconds without work until the progress thread sleeps [default: 50]
    #[arg(long, env = "DDSS_SPIN_US", value_name = "US")]
    spin_us: u64,
    /// Never sleep: for a core without other work
    #[arg(long, env = "DDSS_BUSY", value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    busy: bool,
    /// Bytes for segments, a number or one with K, M, G or T [default: 268435456]
    #[arg(long, env = "DDSS_POOL_BYTES", value_name = "BYTES")]
    pool_bytes: ByteSize,
    /// Segments that each progress thread of this node may have, at most 1000000 [default: 65536]
    #[arg(long, env = "DDSS_SEGMENTS", value_name = "N", value_parser = clap::value_parser!(u32).range(1..=SEGMENTS_PER_NODE_MAX as i64))]
    segments: u32,
    /// Bytes for segments in files, in the state folder; 0: there are none [default: 1073741824]
    #[arg(long, env = "DDSS_FILE_BYTES", value_name = "BYTES")]
    file_bytes: ByteSize,
    /// Segments in files after the machine ended before the daemon did: refuse (do not start), keep (their bytes may
    /// be those of several puts), or drop [default: refuse]
    #[arg(long, env = "DDSS_UNCLEAN_FILES", value_name = "WHAT")]
    unclean_files: UncleanFiles,
    /// Throw away the segments that an earlier daemon left in memory and in files, and those of this one when it stops
    #[arg(long, env = "DDSS_DISCARD", value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    discard: bool,
    /// Milliseconds that pending calls may take to finish when the daemon stops; 0: none [default: 2000]
    #[arg(long, env = "DDSS_DRAIN_MS", value_name = "MS")]
    drain_ms: u64,
    /// Permission bits of the clients' socket, octal [default: 600]
    #[arg(long, env = "DDSS_SOCKET_MODE", value_name = "MODE")]
    socket_mode: Mode,
    /// Limits of a user: USER:bytes=SIZE,segments=N,clients=N; USER is a name, a uid, or default for all but root
    /// [default: no limit]
    #[arg(long, env = "DDSS_QUOTA", value_name = "RULE", value_delimiter = ';', action = clap::ArgAction::Append)]
    quota: Vec<QuotaRule>,
    /// Address of the HTTP endpoint for Prometheus and health checks; a port alone is one of 127.0.0.1 [default: off]
    #[arg(long, env = "DDSS_METRICS_LISTEN", value_name = "IP:PORT")]
    metrics_listen: MetricsAddress,
    /// Permission bits of the status page (counters, processes and users), octal [default: 600]
    #[arg(long, env = "DDSS_STATUS_MODE", value_name = "MODE")]
    status_mode: Mode,
    /// Log level: error, warn, info, debug, trace, or a level for each module [default: info]
    #[arg(long, env = "DDSS_LOG", value_name = "LEVELS")]
    log: LogLevels,
    /// Log lines as JSON
    #[arg(long, env = "DDSS_LOG_JSON", value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    log_json: bool,
}

/// Permission bits, written in octal.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Mode(pub u32);

impl std::str::FromStr for Mode {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mode = u32::from_str_radix(text, 8).ok().filter(|mode| mode & !0o777 == 0);
        mode.map(Mode).ok_or_else(|| format!("{text:?} is no permission: give three octal digits, as in 660"))
    }
}

impl std::fmt::Display for Mode {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:o}", self.0)
    }
}

as_text!(Mode);

impl Settings {
    /// Default listen port.
    pub const PORT: u16 = 7400;
    /// Default size of all segments in memory. Pages are taken as segments are allocated.
    pub const POOL_BYTES: u64 = 256 << 20;
    /// Default size of all segments in files. Pages are taken as segments are allocated.
    pub const FILE_BYTES: u64 = 1 << 30;
    /// Default grace period: as long as a call without a deadline.
    pub const DRAIN: Duration = Duration::from_secs(2);
    /// Default time without work until the progress thread sleeps.
    pub const SPIN: Duration = Duration::from_micros(50);
    /// Name of the default settings file in the daemon's directory.
    pub const FILE_NAME: &str = "ddssd.conf";
    /// Size limit of a settings file; a longer file is something else.
    const FILE_BYTES_MAX: u64 = 1 << 20;

    /// Reads a settings file.
    pub fn read(path: &Path) -> Result<Self, SettingsError> {
        let unreadable = |source| SettingsError::Unreadable { path: path.to_owned(), source };
        let wrong = |what| SettingsError::Wrong { path: path.to_owned(), what };
        let bytes = std::fs::metadata(path).map_err(unreadable)?.len();
        if bytes > Self::FILE_BYTES_MAX {
            return Err(wrong(format!("{bytes} bytes are no configuration")));
        }
        Self::parse(&std::fs::read_to_string(path).map_err(unreadable)?).map_err(wrong)
    }

    fn parse(text: &str) -> Result<Self, String> {
        let mut table: toml::Table =
            text.parse().map_err(|error: toml::de::Error| error.to_string().trim().to_owned())?;
        let grouped = expand_tables(&mut table)?;
        for key in table.keys() {
            let names = || Self::NAMES.iter().map(|name| name.replace('_', "-"));
            if names().any(|name| name == *key) {
                continue;
            }
            let near = names().map(|name| (strsim::levenshtein(key, &name), name)).min();
            let hint = match near {
                Some((distance, name)) if distance <= key.len().max(3) / 2 => format!("did you mean `{name}`?"),
                _ => format!("there are {}", names().collect::<Vec<_>>().join(", ")),
            };
            return Err(format!("unknown setting `{key}`: {hint}"));
        }
        // From text, so that an error names the line; an expanded table has lost its lines.
        let read = if grouped { table.try_into() } else { toml::from_str(text) };
        read.map_err(|error: toml::de::Error| error.to_string().trim().to_owned())
    }

    /// Returns the settings file of these flags: the named one, or the one in the directory if it exists.
    pub fn file(&self, named: Option<&Path>) -> Option<PathBuf> {
        let folder = || self.dir.clone().unwrap_or_else(ddss_ipc::default_folder);
        match named {
            Some(path) => Some(path.to_owned()),
            None => Some(folder().join(Self::FILE_NAME)).filter(|path| path.exists()),
        }
    }

    /// Returns the directory of the state that survives a restart.
    pub fn state_folder(&self) -> PathBuf {
        self.state_dir.clone().unwrap_or_else(|| default_state_folder(self.dir.as_deref()))
    }

    /// Fills in every default.
    #[must_use]
    pub fn resolved(self) -> Settings {
        let user = rustix::process::getuid().as_raw();
        let node = self.node.unwrap_or(1);
        let memory_folder = match &self.dir {
            Some(folder) => folder.join("memory"),
            None => format!("/dev/shm/ddss-{user}-{node}").into(),
        };
        let state_folder = self.state_folder();
        let key_file = Some(state_folder.join(ClusterKey::FILE_NAME)).filter(|path| path.exists());
        let listen = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), Self::PORT);
        let join = std::fs::read_to_string(state_folder.join(JOIN_FILE_NAME)).ok();
        let clustered = self.key_file.is_some() || key_file.is_some();
        let defaults = Settings {
            node: Some(node),
            dir: Some(ddss_ipc::default_folder()),
            memory_dir: Some(memory_folder),
            state_dir: Some(state_folder),
            key_file,
            listen: clustered.then_some(listen),
            advertise: None,
            join: join.and_then(|text| text.trim().parse().ok()),
            fabric: Some(FabricChoice::Auto),
            fence_reads: None,
            progress_threads: Some(1),
            waits_per_client: Some(WAITS_PER_CLIENT_DEFAULT as u32),
            core: Some(CoreChoice::Auto),
            spin_us: Some(Self::SPIN.as_micros() as u64),
            busy: Some(false),
            pool_bytes: Some(ByteSize(Self::POOL_BYTES)),
            segments: Some(SEGMENTS_PER_NODE_DEFAULT as u32),
            file_bytes: Some(ByteSize(Self::FILE_BYTES)),
            unclean_files: Some(UncleanFiles::Refuse),
            discard: Some(false),
            drain_ms: Some(Self::DRAIN.as_millis() as u64),
            socket_mode: Some(Mode(0o600)),
            quota: None,
            metrics_listen: None,
            status_mode: Some(Mode(0o600)),
            log: Some(LogLevels::default()),
            log_json: Some(false),
            peer: None,
        };
        self.or(defaults)
    }

    /// Returns the memory directory of the daemon in `dir` (`None`: the usual directory). The environment takes
    /// precedence, then the last daemon's directory, then the settings file.
    pub fn memory_folder(dir: Option<PathBuf>) -> PathBuf {
        Self::segment_folders(dir).0
    }

    /// Returns the memory directory and the state directory, which holds segments in files.
    pub fn segment_folders(dir: Option<PathBuf>) -> (PathBuf, PathBuf) {
        let named = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
        let dir = dir.or_else(|| named(ddss_ipc::FOLDER_VARIABLE).map(PathBuf::from));
        let folder = dir.clone().unwrap_or_else(ddss_ipc::client_folder);
        // A daemon outside of this user's default directory was configured with that directory.
        let dir = dir.or_else(|| Some(folder.clone()).filter(|folder| *folder != ddss_ipc::default_folder()));
        let memory_dir = named("DDSS_MEMORY_DIR").map(PathBuf::from).or_else(|| last_memory_folder(&folder));
        let node = named("DDSS_NODE").and_then(|text| text.to_str()?.parse().ok());
        let state_dir = named(STATE_VARIABLE).map(PathBuf::from);
        let told = Settings { dir, memory_dir, state_dir, node, ..Settings::default() };
        let file = told.file(None).and_then(|path| Settings::read(&path).ok());
        let all = told.or(file.unwrap_or_default()).resolved();
        let all_set = "every setting is filled in";
        (all.memory_dir.expect(all_set), all.state_dir.expect(all_set))
    }

    /// Formats the settings as a complete file; unset ones stand in it as comments.
    pub fn to_toml(&self) -> Result<String, SettingsError> {
        let mut text = toml::to_string(self).map_err(|error| SettingsError::Unshowable(error.to_string()))?;
        let set: toml::Table =
            text.parse().map_err(|error: toml::de::Error| SettingsError::Unshowable(error.to_string()))?;
        let command = Settings::augment_args(clap::Command::new("ddssd"));
        for argument in command.get_arguments() {
            let name = argument.get_id().as_str().replace('_', "-");
            if set.contains_key(&name) {
                continue;
            }
            let value = argument.get_value_names().and_then(|names| names.first()).map_or("..", |name| name.as_str());
            let is_list = matches!(argument.get_action(), clap::ArgAction::Append);
            let value = if is_list { format!("[{value:?}]") } else { format!("{value:?}") };
            text.push_str(&format!("# {name} = {value}\n"));
        }
        Ok(text)
    }
}

/// Returns the memory directory of the last daemon in `folder`: its status page lies there.
fn last_memory_folder(folder: &Path) -> Option<PathBuf> {
    let page = folder.join(std::fs::read_link(folder.join(ddss_ipc::STATUS_NAME)).ok()?);
    page.parent().filter(|folder| folder.is_dir()).map(Path::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mistyped_setting_is_refused_with_suggestion() {
        // If this failed, a daemon would silently run with a default that the operator meant to change.
        let wrong = |text: &str| Settings::parse(text).unwrap_err();
        assert_eq!(wrong("pool-byte = 5"), "unknown setting `pool-byte`: did you mean `pool-bytes`?");
        assert_eq!(wrong("Listen = \"127.0.0.1:1\""), "unknown setting `Listen`: did you mean `listen`?");
        assert!(wrong("colour = 1").starts_with("unknown setting `colour`: "));
        assert!(wrong("zzzzzzzzzzzzzzzz = 1").contains("there are node, dir, memory-dir"));
        assert!(wrong("node = \"one\"").contains("line 1"));
        assert!(wrong("socket-mode = \"999\"").contains("three octal digits"));
        assert!(wrong("peer = [\"2\"]").contains("give NODE=ADDRESS:PORT"));
        assert!(wrong("node =").contains("line 1"));
        assert!(wrong("[metrics]\nlistn = 1").contains("did you mean `metrics-listen`?"));
        assert!(wrong("metrics = 1").contains("is a table"));
        assert!(wrong("metrics-listen = \"1\"\n[metrics]\nlisten = \"2\"").contains("twice"));
        assert!(wrong("[metrics]\nlisten = \"here\"").contains("give IP:PORT"));
        assert!(wrong("quota = 1").contains("invalid type"));
        assert!(wrong("[quota.default]\nbites = 1").contains("there are bytes, segments and clients"));
        assert!(wrong("[quota]\nbytes = 1").contains("[quota.default]"));
    }

    #[test]
    fn table_key_sets_prefixed_setting() {
        // If this failed, an endpoint meant for this machine only would be open to the network.
        let listen = |text: &str| Settings::parse(text).unwrap().metrics_listen.unwrap().to_string();
        assert_eq!(listen("[metrics]\nlisten = \"7480\""), "127.0.0.1:7480");
        assert_eq!(listen("node = 3\n[metrics]\nlisten = \"10.0.0.1:7480\""), "10.0.0.1:7480");
        assert_eq!(listen("metrics-listen = \"[::1]:7480\""), "[::1]:7480");
        let text = "[quota.default]\nbytes = \"1G\"\nclients = 5\n[quota.1000]\nsegments = 7";
        let rules = Settings::parse(text).unwrap().quota.unwrap();
        assert_eq!(
            rules.iter().map(ToString::to_string).collect::<Vec<_>>(),
            ["1000:segments=7", "default:bytes=1073741824,clients=5"]
        );
    }

    #[test]
    fn flags_override_file_and_file_overrides_defaults() {
        // If this failed, an operator's setting would be silently ignored.
        let file =
            Settings::parse("node = 4\nspin-us = 7\nbusy = true\ncore = \"none\"\npeer = [\"2=127.0.0.2:7400\"]")
                .unwrap();
        let flags = Settings { node: Some(9), dir: Some("/nowhere".into()), ..Settings::default() };
        let all = flags.or(file).resolved();
        assert_eq!((all.node, all.spin_us, all.busy), (Some(9), Some(7), Some(true)));
        assert_eq!(all.memory_dir.as_deref(), Some(Path::new("/nowhere/memory")));
        assert_eq!(all.pool_bytes, Some(ByteSize(Settings::POOL_BYTES)));
        let shown = all.to_toml().unwrap();
        assert_eq!(Settings::parse(&shown).unwrap(), all, "{shown}");
        // Each setting stands there once: unset ones as comments, in their written form.
        for name in Settings::NAMES.iter().map(|name| name.replace('_', "-")) {
            let is_it = |line: &&str| line.trim_start_matches("# ").starts_with(&format!("{name} = "));
            assert_eq!(shown.lines().filter(is_it).count(), 1, "{name}: {shown}");
        }
        for unset in ["# advertise = \"IP:PORT\"", "# quota = [\"RULE\"]", "# key-file = \"FILE\""] {
            assert!(shown.lines().any(|line| line == unset), "{unset}: {shown}");
        }
    }

    #[test]
    fn changed_settings_are_named() {
        // If this failed, a reload would not report the settings that need a restart.
        let one = Settings { node: Some(1), log: Some(LogLevels::default()), ..Settings::default() };
        let other = Settings { pool_bytes: Some(ByteSize(1)), log: "debug".parse().ok(), ..one.clone() };
        assert_eq!(one.changed(&other), ["pool-bytes", "log"]);
    }
}
