//! Options of a space.

use super::directory::DIRECTORY_PAGES;
use crate::error::SpaceError;
use crate::fault::{DescribePage, FaultSettings, Faults, LostPage, LostPageCallback, PageFaults};
use crate::sys::{Frames, ViewAddress};
use ddss_dsm_core::{Config, LogShape, Ordering, Protocol, Rank, Stamps, Tuning};
use ddss_group::{Endpoint, Wake};
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// Deadline of a call at most: sums of deadlines are times.
const TIMEOUT_MAX: Duration = Duration::from_secs(30 * 24 * 3600);

/// Options of [`Space::join`](crate::Space::join). All ranks of a space need the same, except for their own number, address and
/// deadline.
#[derive(Clone, Debug)]
#[must_use]
pub struct SpaceOptions {
    pub(super) ranks: u16,
    pub(super) bytes: u64,
    pub(super) rank: Option<u16>,
    pub(super) endpoint: Endpoint,
    protocol: Protocol,
    ordering: Ordering,
    stamps: Stamps,
    /// Folder for the trace of this rank.
    pub(super) trace: Option<PathBuf>,
    pub(super) page_faults: Option<PageFaults>,
    view: ViewAddress,
    on_lost_page: LostPageCallback,
}

impl SpaceOptions {
    /// Bytes of a page.
    pub(super) const PAGE_BYTES: u32 = 4096;

    /// Creates options for a space of so many bytes that so many ranks share: NEWGENDSM, stamped, one stamp a home.
    pub fn new(ranks: u16, bytes: u64) -> Self {
        Self {
            ranks,
            bytes,
            rank: None,
            endpoint: Endpoint::default(),
            protocol: Protocol::NewGenDsm,
            ordering: Ordering::Stamped,
            stamps: Stamps::PerHome,
            trace: None,
            page_faults: None,
            view: ViewAddress::Any,
            on_lost_page: LostPageCallback::default(),
        }
    }

    /// Asks for a number. Default: the first that is free.
    pub fn rank(mut self, rank: u16) -> Self {
        self.rank = Some(rank);
        self
    }

    /// Sets the address at which the other ranks reach this one. Default: the loopback address, for ranks on one machine.
    pub fn listen(mut self, address: IpAddr) -> Self {
        self.endpoint.listen = address;
        self
    }

    /// Sets the deadline of each call, and of the wait for the other ranks. A call that passes it ends the space, for all
    /// ranks. Default: a minute. Longer ones than 30 days are as 30 days.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.endpoint.timeout = timeout.min(TIMEOUT_MAX);
        self
    }

    /// Sets the protocol, the ordering, and the kind of stamps.
    pub fn protocol(mut self, protocol: Protocol, ordering: Ordering, stamps: Stamps) -> Self {
        (self.protocol, self.ordering, self.stamps) = (protocol, ordering, stamps);
        self
    }

    /// Writes a trace of this rank's accesses into a folder, from which [`Races::find`](crate::Races::find) finds races. Reads are
    /// those of views, writes are changed bytes. Default: none. All ranks write one, or none.
    pub fn trace(mut self, folder: impl Into<PathBuf>) -> Self {
        self.trace = Some(folder.into());
        self
    }

    /// Lets this rank use regions without a call for each view, by [`cells`](crate::Region::cells) and
    /// [`in_place`](crate::Region::in_place): page faults fetch what it does not hold, and notice what it writes. Default: none. The
    /// other ranks need not do the same.
    pub fn page_faults(mut self, way: PageFaults) -> Self {
        self.page_faults = Some(way);
        self
    }

    /// Lets the pages be at this address, if this rank uses page faults. With one address on all ranks a pointer into a region means the
    /// same on each of them. Default: any address.
    pub fn address(mut self, address: usize) -> Self {
        self.view = ViewAddress::Fixed(address);
        self
    }

    /// Sets a function that is called when a thread waits at a page that this rank cannot have, because the space has ended.
    /// Default: it writes a message. The thread of the space calls it, so that it makes no call of the space; behind it, the
    /// thread at the page gets `SIGBUS`.
    pub fn on_lost_page(mut self, callback: impl Fn(&LostPage) + Send + Sync + 'static) -> Self {
        self.on_lost_page = LostPageCallback::new(callback);
        self
    }

    /// Returns the address of the mapping for page faults, if this rank uses them.
    pub(super) fn view_address(&self) -> Option<ViewAddress> {
        self.page_faults.map(|_| self.view)
    }

    /// Prepares the page faults of a rank, if it wants them.
    pub(super) fn faults(
        &self,
        (rank, frames, wake): (Rank, &Arc<Frames>, &Arc<Wake>),
        describe: DescribePage,
    ) -> Result<Option<Faults>, SpaceError> {
        let Some(way) = self.page_faults else { return Ok(None) };
        let (timeout, on_lost_page) = (self.endpoint.timeout, self.on_lost_page.clone());
        let settings = FaultSettings { rank, timeout, describe, on_lost_page };
        Faults::start(frames.clone(), wake.clone(), settings)
            .map_err(|error| SpaceError::PageFaults(way, error))
            .map(Some)
    }

    /// Returns the settings of the engine of a rank on a fabric with messages of so many bytes.
    pub(super) fn config(&self, rank: Rank, message_bytes: usize) -> Config {
        let pages = self.bytes.div_ceil(Self::PAGE_BYTES.into()).saturating_add(DIRECTORY_PAGES.into());
        Config {
            rank,
            ranks: self.ranks.into(),
            // More than a space may have is refused by the engine.
            pages: pages.try_into().unwrap_or(u32::MAX),
            page_bytes: Self::PAGE_BYTES,
            message_bytes,
            protocol: self.protocol,
            ordering: self.ordering,
            stamps: self.stamps,
            log: LogShape::default(),
            tuning: Tuning::default(),
        }
    }
}
