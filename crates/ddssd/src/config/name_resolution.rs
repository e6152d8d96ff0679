//! Resolution of the address of a node to join.

use ddss_admin::HostPort;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

/// Addresses of one name that are tried.
const ADDRESSES_MAX: usize = 16;

/// Resolves the current addresses of a host.
pub(crate) async fn resolve(place: &HostPort, limit: Duration) -> io::Result<Vec<SocketAddr>> {
    if let Ok(ip) = place.host().parse::<IpAddr>() {
        return Ok(vec![SocketAddr::new(ip, place.port())]);
    }
    let late = |_| io::Error::new(io::ErrorKind::TimedOut, format!("no answer of the name service within {limit:?}"));
    let found = tokio::time::timeout(limit, tokio::net::lookup_host((place.host(), place.port())));
    let found: Vec<_> = found.await.map_err(late)??.take(ADDRESSES_MAX).collect();
    if found.is_empty() { Err(io::Error::new(io::ErrorKind::NotFound, "the name has no address")) } else { Ok(found) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_resolved_and_addresses_are_not() {
        // If this broke, a node could be joined by its address only, or not without a name service.
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let find = |text: &str| runtime.block_on(resolve(&text.parse().unwrap(), Duration::from_secs(20)));
        assert_eq!(find("127.0.0.9:7").unwrap(), ["127.0.0.9:7".parse().unwrap()]);
        assert!(find("localhost:7").unwrap().iter().all(|address| address.ip().is_loopback() && address.port() == 7));
    }
}
