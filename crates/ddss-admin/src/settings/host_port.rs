//! Address of a node to join: an IP address, or a host name that is resolved at each attempt.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::net::SocketAddr;
use std::str::FromStr;

/// A host name or IP address, and a port.
///
/// ```
/// let address: ddss_admin::HostPort = "node-1.example:7400".parse()?;
/// assert_eq!(address.to_string(), "node-1.example:7400");
/// assert!("[::1]:7400".parse::<ddss_admin::HostPort>().is_ok() && "::1:7400".parse::<ddss_admin::HostPort>().is_err());
/// # Ok::<(), String>(())
/// ```
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct HostPort {
    host: String,
    port: u16,
}

impl HostPort {
    /// Longest host name (RFC 1035).
    const HOST_BYTES_MAX: usize = 253;

    /// Returns the host name or the IP address.
    pub fn host(&self) -> &str {
        &self.host
    }

    /// Returns the port.
    pub fn port(&self) -> u16 {
        self.port
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

as_text!(HostPort);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invalid_address_is_refused_without_lookup() {
        // If this failed, a typo would be reported as an unreachable network.
        for good in ["127.0.0.1:7400", "[::1]:7400", "localhost:1", "node-1.rack_2.example:65535"] {
            assert_eq!(good.parse::<HostPort>().unwrap().to_string(), good);
        }
        let long = format!("{}:1", "x".repeat(254));
        for wrong in ["", "host", ":7400", "host:", "host:0", "host:70000", "::1:7400", "a b:1", "http://a:1", &long] {
            assert!(wrong.parse::<HostPort>().is_err(), "{wrong:?}");
        }
    }
}
