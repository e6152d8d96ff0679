//! Place of a rank that `ddss dsm run` started.

use super::options::SpaceOptions;
use crate::error::SpaceError;
use crate::fault::PageFaults;
use ddss_dsm_core::{Ordering, Protocol, Stamps};
use std::env;
use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;

/// The space and the number of a rank that `ddss dsm run` started.
///
/// ```no_run
/// use ddss_dsm::{Launch, Space};
/// let launch = Launch::from_environment()?;
/// let client = ddss::Client::connect()?;
/// let space = Space::join(&client, &launch.space, launch.options(64 << 20))?;
/// println!("rank {} of {}", space.rank(), space.ranks());
/// # space.leave()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Launch {
    /// Name of the space.
    pub space: String,
    /// Number of this rank.
    pub rank: u16,
    /// Number of ranks.
    pub ranks: u16,
    listen: IpAddr,
    protocol: Protocol,
    ordering: Ordering,
    stamps: Stamps,
    trace: Option<PathBuf>,
    page_faults: Option<PageFaults>,
}

impl Launch {
    /// Reads what `ddss dsm run` tells its processes.
    ///
    /// # Errors
    /// The process was not started by it.
    pub fn from_environment() -> Result<Self, SpaceError> {
        let value = |name: &'static str| env::var(name).map_err(|_| SpaceError::NotLaunched(name));
        Self::of(value)
    }

    fn of(value: impl Fn(&'static str) -> Result<String, SpaceError>) -> Result<Self, SpaceError> {
        let number = |name| value(name)?.parse().map_err(|_| SpaceError::NotLaunched(name));
        let protocol = match value("DDSS_DSM_PROTOCOL").as_deref().unwrap_or("newgendsm") {
            "async" => Protocol::Async,
            "ardmar" => Protocol::Ardmar,
            "draw" => Protocol::Draw,
            "newgendsm" => Protocol::NewGenDsm,
            _ => return Err(SpaceError::NotLaunched("DDSS_DSM_PROTOCOL")),
        };
        let ordering = match value("DDSS_DSM_ORDERING").as_deref().unwrap_or("stamped") {
            "stamped" => Ordering::Stamped,
            "placed" => Ordering::Placed,
            _ => return Err(SpaceError::NotLaunched("DDSS_DSM_ORDERING")),
        };
        let stamps = match value("DDSS_DSM_STAMPS").as_deref().unwrap_or("home") {
            "home" => Stamps::PerHome,
            "page" => Stamps::PerPage,
            _ => return Err(SpaceError::NotLaunched("DDSS_DSM_STAMPS")),
        };
        let listen = match value("DDSS_DSM_LISTEN") {
            Ok(address) => address.parse().map_err(|_| SpaceError::NotLaunched("DDSS_DSM_LISTEN"))?,
            Err(_) => Ipv4Addr::LOCALHOST.into(),
        };
        let way = |name: String| PageFaults::named(&name).ok_or(SpaceError::NotLaunched("DDSS_DSM_PAGE_FAULTS"));
        let page_faults = value("DDSS_DSM_PAGE_FAULTS").ok().map(way).transpose()?;
        let (rank, ranks) = (number("DDSS_DSM_RANK")?, number("DDSS_DSM_RANKS")?);
        let trace = value("DDSS_DSM_TRACE").ok().map(PathBuf::from);
        let space = value("DDSS_DSM_SPACE")?;
        Ok(Self { space, rank, ranks, listen, protocol, ordering, stamps, trace, page_faults })
    }

    /// Returns the way of page faults that `ddss dsm run` was given.
    #[must_use]
    pub fn page_faults(&self) -> Option<PageFaults> {
        self.page_faults
    }

    /// Returns options for a space of so many bytes.
    pub fn options(&self, bytes: u64) -> SpaceOptions {
        let mut options = SpaceOptions::new(self.ranks, bytes).rank(self.rank).listen(self.listen);
        options.trace.clone_from(&self.trace);
        options.page_faults = self.page_faults;
        options.protocol(self.protocol, self.ordering, self.stamps)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_and_malformed_values_are_named() {
        // If this broke, a program that was started by hand would join as some rank, or fail without a next step.
        let of = |given: &'static [(&str, &str)]| {
            Launch::of(move |name| {
                let found = given.iter().find(|(given, _)| *given == name);
                found.map(|(_, value)| (*value).to_owned()).ok_or(SpaceError::NotLaunched(name))
            })
        };
        let all = &[("DDSS_DSM_SPACE", "heat"), ("DDSS_DSM_RANK", "2"), ("DDSS_DSM_RANKS", "4")];
        let launch = of(all).unwrap();
        assert_eq!((launch.space.as_str(), launch.rank, launch.ranks), ("heat", 2, 4));
        let defaults = (Protocol::NewGenDsm, Ordering::Stamped, Stamps::PerHome);
        assert_eq!((launch.protocol, launch.ordering, launch.stamps), defaults);
        assert_eq!(
            of(&all[..2]).unwrap_err().to_string(),
            "DDSS_DSM_RANKS is not set or unknown: start this program with `ddss dsm run -n 4 -- PROGRAM`"
        );
        assert!(of(&[("DDSS_DSM_RANK", "-1")]).is_err());
        assert!(of(&[("DDSS_DSM_LISTEN", "here")]).unwrap_err().to_string().starts_with("DDSS_DSM_LISTEN"));
        assert!(of(&[("DDSS_DSM_PROTOCOL", "lrc")]).unwrap_err().to_string().starts_with("DDSS_DSM_PROTOCOL"));
        assert!(of(&[("DDSS_DSM_PAGE_FAULTS", "magic")]).unwrap_err().to_string().starts_with("DDSS_DSM_PAGE_FAULTS"));
        assert!(of(&[("DDSS_DSM_STAMPS", "line")]).unwrap_err().to_string().starts_with("DDSS_DSM_STAMPS"));
    }
}
