//! Connecting a client of either form, and its options.

use crate::async_client::client;
use crate::call::channels::ChannelPool;
use crate::client::Client;
use crate::deadline::check_timeout;
use crate::error::Error;
use crate::error::reason::Reason;
use crate::reactor::tasks::Tasks;
use crate::session::ended::Ended;
use crate::session::{AttachPlan, CallSettings};
use crate::shards::Shards;
use ddss_core::limits::{ARENA_BYTES_MAX, CHANNELS_PER_CLIENT_MAX, TIMEOUT_DEFAULT_US};
use ddss_core::{BadArgument, Failure};
use ddss_ipc::{AttachOptions, SOCKET_NAME, Strategy};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// Options of a client; each has a default.
///
/// ```
/// use ddss::{Client, ConnectOptions, Strategy};
/// use std::time::Duration;
///
/// # let node = ddssd::EphemeralNode::start()?;
/// # let directory = node.directory();
/// let options = ConnectOptions::new().directory(directory).channels(4).timeout(Duration::from_millis(500));
/// let client = Client::connect_with(options.strategy(Strategy::Rcq))?;
/// assert_eq!(client.strategy(), Strategy::Rcq);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, Default)]
#[must_use = "options do nothing until `Client::connect_with`"]
pub struct ConnectOptions {
    directory: Option<PathBuf>,
    strategy: Option<Strategy>,
    channels: Option<usize>,
    arena_len: Option<usize>,
    timeout: Option<Duration>,
    no_local_reads: bool,
    no_retries: bool,
}

impl ConnectOptions {
    /// Creates options with all defaults.
    pub const fn new() -> Self {
        Self {
            directory: None,
            strategy: None,
            channels: None,
            arena_len: None,
            timeout: None,
            no_local_reads: false,
            no_retries: false,
        }
    }

    /// Sets the daemon's directory (`ddssd --dir`). The default is `DDSS_DIR`, else this user's daemon, else `/run/ddss`
    /// of the packages.
    pub fn directory(mut self, directory: impl Into<PathBuf>) -> Self {
        self.directory = Some(directory.into());
        self
    }

    /// Sets the IPC strategy: how calls travel to the daemon and back. The default is `DDSS_STRATEGY`, else
    /// [`Strategy::Auto`].
    pub const fn strategy(mut self, strategy: Strategy) -> Self {
        self.strategy = Some(strategy);
        self
    }

    /// Sets the number of channels, and so of threads that can call at the same time: 1 to 61, default 8.
    /// [`Client::connect_with`] refuses other numbers. Calls that wait for a lock or a version may use a part of the
    /// channels; the rest stay free for other calls.
    pub const fn channels(mut self, channels: usize) -> Self {
        self.channels = Some(channels);
        self
    }

    /// Sets the bytes of memory shared with the daemon for the calls' data, in whole pages: 1 byte to 256 MiB, default
    /// 8 MiB.
    pub const fn arena_len(mut self, bytes: usize) -> Self {
        self.arena_len = Some(bytes);
        self
    }

    /// Sets the timeout of each call, counted from its begin: at most 600 s, default 2 s.
    /// [`Segment::with_timeout`](crate::Segment::with_timeout) sets it for one handle.
    pub const fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self
    }

    /// Enables or disables local reads: segments of this node are read by a mapping where the permissions allow it. The
    /// default is yes. If disabled, every get goes through the daemon, like a get of another node's segment.
    pub const fn local_reads(mut self, local_reads: bool) -> Self {
        self.no_local_reads = !local_reads;
        self
    }

    /// Enables or disables retries: while a daemon or a segment's home is away, a call that certainly did nothing is
    /// repeated until its deadline, with pauses of up to 256 ms. A crash, a stop and a takeover then make calls slower. The
    /// default is yes. If disabled, such a call fails at once, as with [`ErrorKind::NodeDown`](crate::ErrorKind::NodeDown).
    ///
    /// A call that may have taken effect is never repeated.
    ///
    /// ```
    /// # let node = ddssd::EphemeralNode::start()?;
    /// # let directory = node.directory();
    /// let client = ddss::Client::connect_with(ddss::ConnectOptions::new().directory(directory).retries(false))?;
    /// # client.ping()?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub const fn retries(mut self, retries: bool) -> Self {
        self.no_retries = !retries;
        self
    }

    /// Checks that a count is at least 1 and at most `most`.
    fn check_count(argument: &'static str, value: usize, most: usize) -> Result<usize, Error> {
        if (1..=most).contains(&value) {
            return Ok(value);
        }
        let refused = BadArgument::new(argument, value, format_args!("1 to {most}"), Failure::BadSize);
        Err(Error::argument("connect to", "the daemon")(refused))
    }

    /// Computes the attach options and the timeout of each call.
    fn attach_options(&self) -> Result<(AttachOptions, Duration), Error> {
        let mut options = AttachOptions::default();
        options.strategy = match self.strategy {
            Some(strategy) => strategy,
            None => Strategy::from_environment().map_err(|text| Reason::Strategy { text })?.unwrap_or_default(),
        };
        options.channels = Self::check_count(
            "channels",
            self.channels.unwrap_or(options.channels),
            CHANNELS_PER_CLIENT_MAX - ChannelPool::EXTRA_CHANNELS,
        )? + ChannelPool::EXTRA_CHANNELS;
        options.arena_bytes =
            Self::check_count("arena_len", self.arena_len.unwrap_or(options.arena_bytes), ARENA_BYTES_MAX)?;
        let timeout = self.timeout.unwrap_or(Duration::from_micros(TIMEOUT_DEFAULT_US.into()));
        check_timeout(timeout).map_err(Error::argument("connect to", "the daemon"))?;
        // A client with a longer call timeout also waits longer for a daemon to listen on its socket.
        options.timeout = options.timeout.max(timeout);
        Ok((options, timeout))
    }
}

impl Client {
    /// Attaches to the daemon of this node with default options.
    pub fn connect() -> Result<Self, Error> {
        Self::connect_with(ConnectOptions::new())
    }

    /// Attaches to a daemon with these options.
    pub fn connect_with(options: ConnectOptions) -> Result<Self, Error> {
        let (attach, timeout) = options.attach_options()?;
        let folder = options.directory.unwrap_or_else(ddss_ipc::client_folder);
        let socket = folder.join(SOCKET_NAME);
        let settings = CallSettings { local_reads: !options.no_local_reads, retries: !options.no_retries };
        let plan = AttachPlan { folder, socket, options: attach, shard: 0, shard_count: None };
        let (first, shards) = Shards::begin(plan, settings)?;
        let tasks = Arc::new(Tasks::new(shards.count()));
        Ok(Client { inner: first, shards, tasks, timeout })
    }
}

/// The result that a thread owes to a task: the handshake with the daemon blocks. A thread that panics owes an error.
struct Owed(Arc<Ended<Result<client::Client, Error>>>);

impl Drop for Owed {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.end(Err(Reason::Thread(std::io::ErrorKind::Other.into()).into()));
        }
    }
}

impl client::Client {
    /// Attaches to the daemon of this node with default options: [`Client::connect`](crate::Client::connect).
    pub async fn connect() -> Result<Self, Error> {
        Self::connect_with(ConnectOptions::new()).await
    }

    /// Attaches to a daemon with these options: [`Client::connect_with`](crate::Client::connect_with). The task does not block;
    /// if its future is dropped, the connection ends when it is made.
    ///
    /// ```
    /// # let node = ddssd::EphemeralNode::start()?;
    /// # let directory = node.directory();
    /// # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
    /// use ddss::{ConnectOptions, aio};
    /// let client = aio::Client::connect_with(ConnectOptions::new().directory(directory)).await?;
    /// client.segment("scores").allocate(64).await?.put(0, b"hello").await?;
    /// # Ok::<(), ddss::Error>(())
    /// # })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub async fn connect_with(options: ConnectOptions) -> Result<Self, Error> {
        let ended = Arc::new(Ended::default());
        let owed = Owed(Arc::clone(&ended));
        let connect = move || owed.0.end(Client::connect_with(options).and_then(|client| client.aio()));
        std::thread::Builder::new().name("ddss-connect".to_owned()).spawn(connect).map_err(Reason::Thread)?;
        std::future::poll_fn(|context| ended.poll(context)).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ErrorKind;
    use crate::testing::{TestNode, block_on, poll_once};
    use rustix::net::{self, AddressFamily, SendFlags, SocketAddrUnix, SocketType};
    use std::pin::pin;

    #[test]
    fn connect_options_reach_attach_options() {
        // If this broke, a client would accept a setting and ignore it.
        let asked = |options: &ConnectOptions| options.attach_options().unwrap();
        let (usual, timeout) = asked(&ConnectOptions::new());
        assert_eq!((usual.channels, timeout), (8 + ChannelPool::EXTRA_CHANNELS, Duration::from_secs(2)));
        let some = ConnectOptions::new()
            .channels(CHANNELS_PER_CLIENT_MAX - ChannelPool::EXTRA_CHANNELS)
            .arena_len(1 << 16)
            .strategy(Strategy::Mq);
        let (options, timeout) = asked(&some.timeout(Duration::from_secs(70)));
        assert_eq!(options.strategy, Strategy::Mq);
        assert_eq!((options.channels, options.arena_bytes), (CHANNELS_PER_CLIENT_MAX, 1 << 16));
        assert_eq!((options.timeout, timeout), (timeout, Duration::from_secs(70)));
    }

    #[test]
    fn connect_reports_both_versions_when_daemon_has_another_release() {
        // If this broke, an upgrade of half the machine would look like a crash.
        let folder = std::env::temp_dir().join(format!("ddss-version-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let door = net::socket(AddressFamily::UNIX, SocketType::SEQPACKET, None).unwrap();
        net::bind(&door, &SocketAddrUnix::new(folder.join(SOCKET_NAME)).unwrap()).unwrap();
        net::listen(&door, 1).unwrap();
        // The parts that no release changes: the magic word, the version behind it, and a refusal.
        let daemon = std::thread::spawn(move || {
            let guest = net::accept(&door).unwrap();
            let mut answer = [0; 256];
            answer[..8].copy_from_slice(b"DDSSIPC\0");
            answer[8..12].copy_from_slice(&77u32.to_ne_bytes());
            answer[12..16].copy_from_slice(&2u32.to_ne_bytes());
            answer[20..24].copy_from_slice(&14u32.to_ne_bytes());
            answer[24..38].copy_from_slice(b"ddssd 7.0+abcd");
            net::send(&guest, &answer, SendFlags::empty()).unwrap();
            guest
        });
        let error = Client::connect_with(ConnectOptions::new().directory(&folder)).unwrap_err();
        drop(daemon.join().unwrap());
        std::fs::remove_dir_all(&folder).unwrap();
        assert!(matches!(error.reason(), Reason::VersionMismatch { theirs: 77, .. }), "{error}");
        let text = error.to_string();
        for part in ["same release", "ddss 0.1.0", "(ddssd 7.0+abcd)"] {
            assert!(text.contains(&part.replace("0.1.0", env!("CARGO_PKG_VERSION"))), "{text}");
        }
    }

    #[test]
    fn task_connects_without_blocking_its_executor() {
        // If this broke, a service would stand still for seconds while a daemon does not answer.
        let node = TestNode::start_with(|config| config.progress_threads = 2);
        let mut first = pin!(client::Client::connect_with(node.options()));
        // The handshake takes several system calls of two processes; this poll only starts its thread.
        let client = match poll_once(&mut first) {
            std::task::Poll::Pending => block_on(first).unwrap(),
            std::task::Poll::Ready(client) => client.unwrap(),
        };
        for name in ["a", "b", "c"] {
            block_on(async { client.segment(name).allocate(8).await?.put(0, b"x").await }).unwrap();
        }
        // A future that is dropped leaves a thread behind, which ends by itself.
        drop(poll_once(&mut Box::pin(client::Client::connect_with(node.options()))));
        drop(node);
        let nowhere = ConnectOptions::new().directory("/nowhere");
        assert_eq!(block_on(client::Client::connect_with(nowhere)).unwrap_err().kind(), ErrorKind::NoDaemon);
        let invalid = block_on(client::Client::connect_with(ConnectOptions::new().channels(0))).unwrap_err();
        assert_eq!(invalid.kind(), ErrorKind::BadArgument);
    }

    #[test]
    fn task_learns_that_its_thread_has_panicked() {
        // If this broke, the task would wait for ever.
        let ended = Arc::new(Ended::default());
        let owed = Owed(Arc::clone(&ended));
        let thread = std::thread::spawn(move || {
            let _owed = owed;
            panic!("what cannot happen");
        });
        assert!(thread.join().is_err());
        let error = block_on(std::future::poll_fn(|context| ended.poll(context))).unwrap_err();
        assert!(matches!(error.reason(), Reason::Thread(_)), "{error}");
    }
}
