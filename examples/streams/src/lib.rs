//! Transports and HTTP requests that the three examples share.
#![forbid(unsafe_code)]

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use ddss_stream::wire::WireConfig;
use ddss_stream::{AsyncStream, Transport, TransportPolicy};
use http_body_util::{BodyExt, Full};
use hyper::Request;
use hyper::body::Bytes;
use hyper_util::rt::TokioIo;

/// Error of an example.
pub type Failed = Box<dyn std::error::Error + Send + Sync>;

/// Longest time of an example.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// Returns each transport, with the policy that chooses it.
#[must_use]
pub fn transports() -> [(Transport, TransportPolicy); 4] {
    [
        (Transport::Tcp, TransportPolicy::Tcp),
        (Transport::SameNode, TransportPolicy::Auto),
        (Transport::Wire, TransportPolicy::Wire(WireConfig::default())),
        (Transport::Wire, TransportPolicy::Wire(WireConfig::default().basic())),
    ]
}

/// Returns a free port of the loopback address.
#[must_use]
pub fn any() -> SocketAddr {
    (Ipv4Addr::LOCALHOST, 0).into()
}

/// Sends bodies of growing sizes to a service that returns them, all over one stream. Returns the transport at the end.
pub async fn post_bodies(address: SocketAddr, policy: TransportPolicy) -> Result<Transport, Failed> {
    let stream = AsyncStream::connect(address, &policy).await?;
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
    let connection = tokio::spawn(async move { connection.without_shutdown().await });
    for size in [1, 1_000, 70_000, 1, 2_000_000, 3] {
        let body: Vec<u8> = (0..size).map(|at: u32| (at.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
        let request = Request::post("/echo").header("host", "example").body(Full::new(Bytes::from(body.clone())))?;
        sender.ready().await?;
        let answer = sender.send_request(request).await?.into_body().collect().await?.to_bytes();
        if answer != body {
            return Err(format!("{} bytes came back for {size}", answer.len()).into());
        }
    }
    drop(sender);
    Ok(connection.await??.io.into_inner().transport())
}

/// Fails if the bytes did not travel as they should.
pub fn check(expected: Transport, found: Transport) -> Result<(), Failed> {
    if expected == found {
        Ok(())
    } else {
        Err(format!("the bytes went over {found:?} instead of {expected:?}").into())
    }
}
