//! **axum on every transport.** `axum::serve` takes any listener; this one accepts streams of `ddss-stream`.
#![forbid(unsafe_code)]

use std::io;
use std::net::SocketAddr;

use axum::Router;
use axum::body::Bytes;
use axum::extract::DefaultBodyLimit;
use axum::routing::post;
use ddss_stream::{AsyncListener, AsyncStream};
use ddss_stream_examples::{Failed, PATIENCE, any, check, post_bodies, transports};

struct Streams(AsyncListener);

impl axum::serve::Listener for Streams {
    type Io = AsyncStream;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (AsyncStream, SocketAddr) {
        loop {
            match self.0.accept().await {
                Ok(accepted) => return accepted,
                // As axum does for TCP: without a free descriptor, a later attempt may succeed.
                Err(_) => tokio::time::sleep(std::time::Duration::from_millis(100)).await,
            }
        }
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.0.local_addr()
    }
}

#[tokio::main]
async fn main() -> Result<(), Failed> {
    for (expected, policy) in transports() {
        let listener = Streams(AsyncListener::bind(any(), policy)?);
        let address = listener.0.local_addr()?;
        let routes =
            Router::new().route("/echo", post(|body: Bytes| async { body })).layer(DefaultBodyLimit::disable());
        let server = tokio::spawn(async move { axum::serve(listener, routes).await });
        let transport = tokio::time::timeout(PATIENCE, post_bodies(address, policy)).await??;
        server.abort();
        check(expected, transport)?;
        println!("axum: 6 requests over {transport:?}");
    }
    Ok(())
}
