//! **tonic on every transport.** A gRPC server and its client, with the standard health service, which needs no compiler for protocols.
#![forbid(unsafe_code)]

use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};

use ddss_stream::{AsyncListener, AsyncStream, Transport, TransportPolicy};
use ddss_stream_examples::{Failed, PATIENCE, any, check, transports};
use hyper_util::rt::TokioIo;
use tokio::io::{self, AsyncRead, AsyncWrite, ReadBuf};
use tonic::transport::server::Connected;
use tonic::transport::{Endpoint, Server, Uri};
use tonic_health::ServingStatus;
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_client::HealthClient;

/// Calls over one stream.
const CALLS: usize = 200;

/// A stream for the server; it also records the transport of its last bytes.
struct Served(AsyncStream, Arc<Mutex<Transport>>);

impl Connected for Served {
    type ConnectInfo = ();

    fn connect_info(&self) {}
}

impl AsyncRead for Served {
    fn poll_read(mut self: Pin<&mut Self>, context: &mut Context<'_>, room: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(context, room)
    }
}

impl AsyncWrite for Served {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.0).poll_write(context, bytes);
        *self.1.lock().unwrap_or_else(PoisonError::into_inner) = self.0.transport();
        written
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(context)
    }
}

async fn call(policy: TransportPolicy) -> Result<Transport, Failed> {
    let listener = AsyncListener::bind(any(), policy)?;
    let address = listener.local_addr()?;
    let transport = Arc::new(Mutex::new(Transport::Tcp));
    let noted = Arc::clone(&transport);
    let (accepted, streams) = tokio::sync::mpsc::channel::<io::Result<Served>>(1);
    let acceptor = tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            if accepted.send(Ok(Served(stream, Arc::clone(&noted)))).await.is_err() {
                return;
            }
        }
    });
    let (reporter, service) = tonic_health::server::health_reporter();
    reporter.set_service_status("streams", ServingStatus::Serving).await;
    let streams = tokio_stream::wrappers::ReceiverStream::new(streams);
    let server = tokio::spawn(Server::builder().add_service(service).serve_with_incoming(streams));
    let connect =
        tower::service_fn(move |_: Uri| async move { AsyncStream::connect(address, &policy).await.map(TokioIo::new) });
    let channel = Endpoint::from_static("http://streams").connect_with_connector(connect).await?;
    let mut client = HealthClient::new(channel);
    for _ in 0..CALLS {
        let answer = client.check(HealthCheckRequest { service: "streams".to_owned() }).await?.into_inner();
        if answer.status != 1 {
            return Err(format!("status {} instead of SERVING", answer.status).into());
        }
    }
    drop(client);
    server.abort();
    acceptor.abort();
    let transport = *transport.lock().unwrap_or_else(PoisonError::into_inner);
    Ok(transport)
}

#[tokio::main]
async fn main() -> Result<(), Failed> {
    for (expected, policy) in transports() {
        let transport = tokio::time::timeout(PATIENCE, call(policy)).await??;
        check(expected, transport)?;
        println!("tonic: {CALLS} calls over {transport:?}");
    }
    Ok(())
}
