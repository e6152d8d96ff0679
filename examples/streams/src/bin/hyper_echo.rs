//! **hyper on every transport.** Client and server of HTTP/1 take an `AsyncStream` where they would take a TCP stream.
#![forbid(unsafe_code)]

use std::convert::Infallible;

use ddss_stream::AsyncListener;
use ddss_stream_examples::{Failed, PATIENCE, any, check, post_bodies, transports};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;

#[tokio::main]
async fn main() -> Result<(), Failed> {
    for (expected, policy) in transports() {
        let listener = AsyncListener::bind(any(), policy)?;
        let address = listener.local_addr()?;
        let server = tokio::spawn(async move {
            let (stream, _) = listener.accept().await?;
            let echo = service_fn(|request: Request<Incoming>| async {
                Ok::<_, Infallible>(Response::new(request.into_body()))
            });
            hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), echo).await?;
            Ok::<(), Failed>(())
        });
        let transport = tokio::time::timeout(PATIENCE, post_bodies(address, policy)).await??;
        tokio::time::timeout(PATIENCE, server).await???;
        check(expected, transport)?;
        println!("hyper: 6 requests over {transport:?}");
    }
    Ok(())
}
