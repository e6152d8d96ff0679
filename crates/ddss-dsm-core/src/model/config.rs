//! Settings of a rank's engine.

use super::config_error::ConfigError;
use super::log_shape::LogShape;
use super::rank::Rank;
use crate::limits::{
    FETCHES_MAX, MESSAGE_BYTES_MAX, MESSAGE_BYTES_MIN, PAGE_BYTES_MAX, PAGE_BYTES_MIN, PAGES_MAX, RANKS_MAX, TWINS_MAX,
    WINDOW_MAX,
};

/// One of the paper's protocols: how a rank finds and fetches pages, and how its diffs reach the home.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Protocol {
    /// Pages and diffs are messages that the home's handler answers.
    Async,
    /// Pages are read one-sided, diffs are messages.
    Ardmar,
    /// Pages are requested by messages, diffs are written one-sided.
    Draw,
    /// Pages are read and diffs are written one-sided.
    NewGenDsm,
}

impl Protocol {
    /// All protocols.
    pub const ALL: [Self; 4] = [Self::Async, Self::Ardmar, Self::Draw, Self::NewGenDsm];

    /// Returns true if pages are found and fetched without the home's handler.
    #[must_use]
    pub const fn reads_one_sided(self) -> bool {
        matches!(self, Self::Ardmar | Self::NewGenDsm)
    }

    /// Returns true if diffs are written without the home's handler.
    #[must_use]
    pub const fn writes_one_sided(self) -> bool {
        matches!(self, Self::Draw | Self::NewGenDsm)
    }
}

/// How a fetch knows that the writes which it must see are in the home's memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ordering {
    /// The fetching rank compares the page's version line with the stamps that it needs. Releases wait for nothing where
    /// diffs are written one-sided, and for the acknowledgements where diffs are messages.
    Stamped,
    /// A release waits until its writes are placed. A fetch is one read.
    Placed,
}

/// Messages with stamps of one-sided diffs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stamps {
    /// One for each home, behind all its pages.
    PerHome,
    /// One for each page, behind its runs.
    PerPage,
}

/// How pages get their home.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Homes {
    /// The first rank that asks.
    FirstTouch,
    /// Blocks of this many pages, dealt to the ranks in turn.
    Blocks(u32),
    /// One rank.
    Rank(Rank),
}

/// Tuned constants.
#[derive(Clone, Copy, Debug)]
pub struct Tuning {
    /// Runs of a page that are written one by one; a page with more goes to the home as one packed message.
    pub runs_max: usize,
    /// Diff messages in flight in the protocols that send diffs as messages. The paper has one receive buffer: 1.
    pub window: u32,
    /// Reads of a page whose version line is old, before the home is asked to report the version.
    pub retries_max: u32,
    /// Pause before the first repeated read in microseconds; it doubles.
    pub backoff_us: u64,
    /// Longest pause in microseconds.
    pub backoff_max_us: u64,
    /// Twins at most.
    pub twins: u32,
    /// Pages in flight at most.
    pub fetches: u16,
}

impl Default for Tuning {
    fn default() -> Self {
        Self {
            runs_max: 24,
            window: 1,
            retries_max: 8,
            backoff_us: 2,
            backoff_max_us: 200,
            twins: 1 << 16,
            fetches: 64,
        }
    }
}

/// Settings of one rank. All but the rank and the tuned constants are the same on each rank of a space; of the tuned
/// constants only `fetches` is.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// This rank.
    pub rank: Rank,
    /// Number of ranks.
    pub ranks: usize,
    /// Pages of the space.
    pub pages: u32,
    /// Bytes of a page, a power of two.
    pub page_bytes: u32,
    /// Bytes of the largest message of the fabric.
    pub message_bytes: usize,
    /// Protocol.
    pub protocol: Protocol,
    /// Ordering.
    pub ordering: Ordering,
    /// Stamps.
    pub stamps: Stamps,
    /// Shape of the log ring.
    pub log: LogShape,
    /// Tuned constants.
    pub tuning: Tuning,
}

impl Config {
    /// Checks every setting.
    ///
    /// # Errors
    /// The first setting outside its limits, with its value.
    pub fn check(&self) -> Result<(), ConfigError> {
        let require =
            |holds: bool, name: &'static str, value: u64| if holds { Ok(()) } else { Err(ConfigError(name, value)) };
        let Tuning { window, twins, fetches, backoff_us, backoff_max_us, .. } = self.tuning;
        require((1..=RANKS_MAX).contains(&self.ranks), "ranks", self.ranks as u64)?;
        require(self.rank.index() < self.ranks, "rank", self.rank.index() as u64)?;
        require((1..=PAGES_MAX).contains(&self.pages), "pages", self.pages.into())?;
        let is_page = self.page_bytes.is_power_of_two() && (PAGE_BYTES_MIN..=PAGE_BYTES_MAX).contains(&self.page_bytes);
        require(is_page, "bytes of a page", self.page_bytes.into())?;
        let message = MESSAGE_BYTES_MIN..=MESSAGE_BYTES_MAX;
        require(message.contains(&self.message_bytes), "bytes of a message", self.message_bytes as u64)?;
        require((1..=WINDOW_MAX).contains(&window), "window", window.into())?;
        require((1..=TWINS_MAX).contains(&twins), "twins", twins.into())?;
        require((1..=FETCHES_MAX).contains(&fetches), "fetches", fetches.into())?;
        require(backoff_us > 0 && backoff_us <= backoff_max_us, "microseconds of back-off", backoff_us)?;
        self.log.check()
    }

    /// Returns all ranks.
    pub(crate) fn all_ranks(&self) -> impl Iterator<Item = Rank> + use<> {
        (0..self.ranks).filter_map(Rank::new)
    }

    /// Returns all other ranks.
    pub(crate) fn peers(&self) -> impl Iterator<Item = Rank> + use<> {
        let own = self.rank;
        self.all_ranks().filter(move |rank| *rank != own)
    }
}
