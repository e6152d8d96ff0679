//! Address of a node to join: an IP address, or a host name that is resolved at each attempt.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;
use std::time::Duration;

/// A host name or IP address, and a port.
///
/// ```
/// let address: ddssd::HostPort = "node-1.example:7400".parse()?;
/// assert_eq!(address.to_string(), "node-1.example:7400");
/// assert!("[::1]:7400".parse::<ddssd::HostPort>().is_ok() && "::1:7400".parse::<ddssd::HostPort>().is_err());
/// # Ok::<(), String>(())
/// ```
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct HostPort {
    host: String,
    port: u16,
}

impl HostPort {
    /// Addresses of one name that are tried.
    const ADDRESSES_MAX: usize = 16;
    /// Longest host name (RFC 1035).
    const HOST_BYTES_MAX: usize = 253;

    /// Resolves the current addresses.
    pub(crate) async fn resolve(&self, limit: Duration) -> io::Result<Vec<SocketAddr>> {
        if let Ok(ip) = self.host.parse::<IpAddr>() {
            return Ok(vec![SocketAddr::new(ip, self.port)]);
        }
        let late =
            |_| io::Error::new(io::ErrorKind::TimedOut, format!("no answer of the name service within {limit:?}"));
        let found = tokio::time::timeout(limit, tokio::net::lookup_host((self.host.as_str(), self.port)));
        let found: Vec<_> = found.await.map_err(late)??.take(Self::ADDRESSES_MAX).collect();
        if found.is_empty() {
            Err(io::Error::new(io::ErrorKind::NotFound, "the name has no address"))
        } else {
            Ok(found)
        }
    }
}

impl From<SocketAddr> for HostPort {
    fn from(address: SocketAddr) -> Self {
        Self { host: address.ip().to_string(), port: address.port() }
    }
}

impl FromStr for HostPort {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if let Ok(address) = text.parse::<SocketAddr>() {
            return Ok(address.into());
        }
        let wrong = || format!("{text:?} is no address: give HOST:PORT, IP:PORT or [IPV6]:PORT");
        let (host, port) = text.rsplit_once(':').ok_or_else(wrong)?;
        let good = |letter: u8| letter.is_ascii_alphanumeric() || b"-._".contains(&letter);
        if host.is_empty() || host.len() > Self::HOST_BYTES_MAX || !host.bytes().all(good) {
            return Err(wrong());
        }
        let port = port.parse().ok().filter(|&port| port != 0).ok_or_else(wrong)?;
        Ok(Self { host: host.to_owned(), port })
    }
}

impl fmt::Display for HostPort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { host, port } = self;
        if host.contains(':') { write!(f, "[{host}]:{port}") } else { write!(f, "{host}:{port}") }
    }
}

impl TryFrom<String> for HostPort {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl From<HostPort> for String {
    fn from(address: HostPort) -> String {
        address.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invalid_address_is_refused_without_lookup() {
        // If this broke, a typo would be reported as an unreachable network.
        for good in ["127.0.0.1:7400", "[::1]:7400", "localhost:1", "node-1.rack_2.example:65535"] {
            assert_eq!(good.parse::<HostPort>().unwrap().to_string(), good);
        }
        let long = format!("{}:1", "x".repeat(254));
        for wrong in ["", "host", ":7400", "host:", "host:0", "host:70000", "::1:7400", "a b:1", "http://a:1", &long] {
            assert!(wrong.parse::<HostPort>().is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn names_are_resolved_and_addresses_are_not() {
        // If this broke, a node could be joined by its address only, or not without a name service.
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let find = |text: &str| runtime.block_on(text.parse::<HostPort>().unwrap().resolve(Duration::from_secs(20)));
        assert_eq!(find("127.0.0.9:7").unwrap(), ["127.0.0.9:7".parse().unwrap()]);
        assert!(find("localhost:7").unwrap().iter().all(|address| address.ip().is_loopback() && address.port() == 7));
    }
}
