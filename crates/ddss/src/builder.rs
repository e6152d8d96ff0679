//! How a client is made.

use crate::call::channels::ChannelPool;
use crate::client::Client;
use crate::deadline::check_timeout;
use crate::error::Error;
use crate::session::AttachPlan;
use crate::shards::Shards;
use ddss_core::limits::{ARENA_BYTES_MAX, CHANNELS_PER_CLIENT_MAX, TIMEOUT_DEFAULT_US};
use ddss_core::{BadArgument, Failure};
use ddss_ipc::{AttachOptions, SOCKET_NAME, Strategy};
use std::path::PathBuf;
use std::time::Duration;

/// What a client may be told before it connects; nothing has to be.
///
/// ```
/// use ddss::{Client, Strategy};
/// use std::time::Duration;
///
/// # let node = ddssd::Ephemeral::start()?;
/// # let folder = node.folder();
/// let client = Client::builder()
///     .folder(folder)
///     .strategy(Strategy::Rcq)
///     .lanes(4)
///     .timeout(Duration::from_millis(500))
///     .connect()?;
/// assert_eq!(client.strategy(), Strategy::Rcq);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, Default)]
#[must_use = "a builder does nothing until `connect`"]
pub struct ClientBuilder {
    folder: Option<PathBuf>,
    strategy: Option<Strategy>,
    lanes: Option<usize>,
    arena_bytes: Option<usize>,
    timeout: Option<Duration>,
    no_near: bool,
    unfair: bool,
}

impl ClientBuilder {
    /// The folder of the daemon (`ddssd --dir`); else what `DDSS_DIR` says, else where this user's daemon is,
    /// else `/run/ddss`, where the packages put it.
    pub fn folder(mut self, folder: impl Into<PathBuf>) -> Self {
        self.folder = Some(folder.into());
        self
    }

    /// How calls travel to the daemon and back; else what `DDSS_STRATEGY` says, else [`Strategy::Auto`].
    pub fn strategy(mut self, strategy: Strategy) -> Self {
        self.strategy = Some(strategy);
        self
    }

    /// How many threads can call at the same time without waiting for each other: 1 to 61, usually 8. Another number is
    /// refused by [`connect`](Self::connect). Threads that wait for a lock or for a version have a share of these; they do
    /// not keep others from calls that need not wait.
    pub fn lanes(mut self, lanes: usize) -> Self {
        self.lanes = Some(lanes);
        self
    }

    /// Bytes of memory shared with the daemon for what calls carry, in whole pages: 1 byte to 256 MiB, usually 8 MiB.
    pub fn arena_bytes(mut self, bytes: usize) -> Self {
        self.arena_bytes = Some(bytes);
        self
    }

    /// The deadline of each call, counted from its begin: 600 s at the most, usually 2 s. Those of one handle may have
    /// another: [`Segment::within`](crate::Segment::within).
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self
    }

    /// Whether segments of this node are read in place, by a mapping, where the permissions allow it: usually yes. No
    /// has every get go through the daemon, as a get of another node's segment does.
    pub fn near(mut self, near: bool) -> Self {
        self.no_near = !near;
        self
    }

    /// Whether threads that call under [`Strategy::Auto`], more of them than there are cores, hand their core over to each other
    /// after turns of some 100 µs: usually yes, and each gets its share. No leaves it to the kernel, which lets one run for
    /// milliseconds while the others wait, for the last few percent of throughput.
    ///
    /// Threads that keep off the daemon's core ask the kernel for slices as long as their turns while they hand over, and for what
    /// they had when they no longer do. Nothing else about their priority changes.
    ///
    /// ```
    /// # let node = ddssd::Ephemeral::start()?;
    /// # let folder = node.folder();
    /// let client = ddss::Client::builder().folder(folder).fair(false).connect()?;
    /// # client.ping()?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn fair(mut self, fair: bool) -> Self {
        self.unfair = !fair;
        self
    }

    /// Attaches to the daemon.
    pub fn connect(self) -> Result<Client, Error> {
        let (options, timeout) = self.options()?;
        let folder = self.folder.unwrap_or_else(ddss_ipc::client_folder);
        let socket = folder.join(SOCKET_NAME);
        Shards::begin(AttachPlan { folder, socket, options, plane: 0, planes: None }, timeout, !self.no_near)
    }

    /// A number of something that there is at least one of.
    fn within(argument: &'static str, value: usize, most: usize) -> Result<usize, Error> {
        if (1..=most).contains(&value) {
            return Ok(value);
        }
        let refused = BadArgument::new(argument, value, format_args!("1 to {most}"), Failure::BadSize);
        Err(Error::argument("connect to", "the daemon")(refused))
    }

    /// What is asked of the daemon, and the deadline of each call.
    fn options(&self) -> Result<(AttachOptions, Duration), Error> {
        let mut options = AttachOptions::default();
        options.strategy = match self.strategy {
            Some(strategy) => strategy,
            None => Strategy::from_environment()?.unwrap_or_default(),
        };
        options.channels =
            Self::within("lanes", self.lanes.unwrap_or(options.channels), CHANNELS_PER_CLIENT_MAX - ChannelPool::MORE)?
                + ChannelPool::MORE;
        options.arena_bytes =
            Self::within("arena_bytes", self.arena_bytes.unwrap_or(options.arena_bytes), ARENA_BYTES_MAX)?;
        let timeout = self.timeout.unwrap_or(Duration::from_micros(TIMEOUT_DEFAULT_US.into()));
        check_timeout(timeout).map_err(Error::argument("connect to", "the daemon"))?;
        // Who waits longer for a call waits as long for a daemon that is still to come to its socket.
        options.timeout = options.timeout.max(timeout);
        options.fair = !self.unfair;
        Ok((options, timeout))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::net::{self, AddressFamily, SendFlags, SocketAddrUnix, SocketType};

    #[test]
    fn what_the_builder_is_told_is_asked_for() {
        // If this broke, a setting would be taken and forgotten.
        let asked = |builder: &ClientBuilder| builder.options().unwrap();
        let (usual, timeout) = asked(&Client::builder());
        assert!(
            usual.fair && usual.channels == 8 + ChannelPool::MORE && timeout == Duration::from_secs(2),
            "{usual:?}"
        );
        let builder = Client::builder()
            .fair(false)
            .lanes(CHANNELS_PER_CLIENT_MAX - ChannelPool::MORE)
            .arena_bytes(1 << 16)
            .strategy(Strategy::Mq);
        let (options, timeout) = asked(&builder.timeout(Duration::from_secs(70)));
        assert!(!options.fair && options.strategy == Strategy::Mq, "{options:?}");
        assert_eq!((options.channels, options.arena_bytes), (CHANNELS_PER_CLIENT_MAX, 1 << 16));
        assert_eq!((options.timeout, timeout), (timeout, Duration::from_secs(70)));
    }

    #[test]
    fn a_daemon_of_another_release_is_told_apart_and_both_versions_are_named() {
        // If this broke, an upgrade of half the machine would look like a crash.
        let folder = std::env::temp_dir().join(format!("ddss-version-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let door = net::socket(AddressFamily::UNIX, SocketType::SEQPACKET, None).unwrap();
        net::bind(&door, &SocketAddrUnix::new(folder.join(SOCKET_NAME)).unwrap()).unwrap();
        net::listen(&door, 1).unwrap();
        // What stays the same over all releases: the magic word, and the version behind it.
        let daemon = std::thread::spawn(move || {
            let guest = net::accept(&door).unwrap();
            let mut answer = [0; 256];
            answer[..8].copy_from_slice(b"DDSSIPC\0");
            answer[8..12].copy_from_slice(&77u32.to_ne_bytes());
            net::send(&guest, &answer, SendFlags::empty()).unwrap();
            guest
        });
        let error = Client::builder().folder(&folder).connect().unwrap_err();
        drop(daemon.join().unwrap());
        std::fs::remove_dir_all(&folder).unwrap();
        assert!(matches!(error, Error::VersionMismatch { theirs: 77, .. }), "{error}");
        assert!(error.to_string().contains("same release"), "{error}");
    }
}
