//! A minimal HTTP/1.1 server: one request a connection, with limits on sizes and times.

use super::exposition::{NodeValues, exposition};
use super::health::{health, readiness};
use super::process::{ProcessSample, WatchedFolders};
use crate::start_error::StartError;
use crate::status::{RaftStatus, StatusPage};
use ddss_core::status::Status;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::{Semaphore, oneshot};

/// Concurrent connections; more are closed at once.
const CONNECTIONS_MAX: usize = 32;
/// Size limit of a request head.
const HEAD_BYTES_MAX: usize = 8 << 10;
/// Time limit of a connection.
const CONNECTION_MAX: Duration = Duration::from_secs(5);
/// Bytes behind a request that are discarded, so that the client does not see a connection reset.
const DRAIN_BYTES_MAX: usize = 64 << 10;
/// Time limit of that.
const DRAIN_MAX: Duration = Duration::from_millis(200);
/// Time for which a copy of the pages is reused: frequent requests cause no more work.
const CACHE_MAX_AGE: Duration = Duration::from_millis(200);
/// Pause after a failed accept (out of descriptors).
const ACCEPT_RETRY: Duration = Duration::from_millis(100);

/// Origins of all values.
#[derive(Debug)]
pub(crate) struct MetricsSources {
    /// Status pages of all shards.
    pub(crate) pages: Vec<StatusPage>,
    /// Progress of the Raft group, if this node belongs to a cluster.
    pub(crate) raft: Option<RaftStatus>,
    pub(crate) folders: WatchedFolders,
}

/// The running server. Dropping it ends the server.
#[derive(Debug)]
pub(crate) struct Metrics {
    address: SocketAddr,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Metrics {
    /// Starts to listen. On return requests are answered.
    pub(crate) fn start(address: SocketAddr, sources: MetricsSources) -> Result<Self, StartError> {
        let failed = |source| StartError::Listen { address, source };
        let listener = TcpListener::bind(address).map_err(failed)?;
        listener.set_nonblocking(true).map_err(failed)?;
        let bound = listener.local_addr().map_err(failed)?;
        if !bound.ip().is_loopback() {
            tracing::warn!(address = %bound, "the metrics address is not a loopback address: every host that reaches it can read this node's counters");
        }
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(failed)?;
        let (stop, stopped) = oneshot::channel::<()>();
        let body = move || {
            runtime.block_on(async {
                let reader = Arc::new(CachedReader { sources, last: Mutex::new(None) });
                tokio::select! {
                    () = serve(listener, reader) => {}
                    // An error means that the sender was dropped, which also stops the server.
                    _ = stopped => {}
                }
            });
            runtime.shutdown_timeout(Duration::from_millis(100));
        };
        let thread = std::thread::Builder::new().name("ddss-metrics".to_owned()).spawn(body).map_err(failed)?;
        tracing::info!(address = %bound, "metrics");
        Ok(Self { address: bound, stop: Some(stop), thread: Some(thread) })
    }

    /// Returns the bound address.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for Metrics {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // A panic in the thread has been reported where it happened.
            let _ = thread.join();
        }
    }
}

/// Cached copy of all shards' pages, for the next requests.
#[derive(Debug)]
struct CachedReader {
    sources: MetricsSources,
    last: Mutex<Option<(Instant, Arc<Read>)>>,
}

#[derive(Debug)]
struct Read {
    all: Vec<Status>,
    metrics: String,
}

impl CachedReader {
    fn read(&self) -> Option<Arc<Read>> {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, read)) = last.as_ref().filter(|(when, _)| when.elapsed() < CACHE_MAX_AGE) {
            return Some(Arc::clone(read));
        }
        let MetricsSources { pages, raft, folders } = &self.sources;
        let all = pages.iter().map(|page| Status::decode(&page.copy())).collect::<Result<Vec<_>, _>>().ok()?;
        let node = NodeValues { process: ProcessSample::take(folders), raft: raft.as_ref().map(RaftStatus::read) };
        let metrics = exposition(&all, &node);
        let read = Arc::new(Read { all, metrics });
        *last = Some((Instant::now(), Arc::clone(&read)));
        Some(read)
    }
}

async fn serve(listener: TcpListener, reader: Arc<CachedReader>) {
    let listener = match tokio::net::TcpListener::from_std(listener) {
        Ok(listener) => listener,
        Err(error) => return tracing::error!(%error, "cannot serve metrics"),
    };
    let room = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    loop {
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            Err(error) => {
                tracing::debug!(%error, "cannot accept a metrics connection");
                tokio::time::sleep(ACCEPT_RETRY).await;
                continue;
            }
        };
        let Ok(permit) = Arc::clone(&room).try_acquire_owned() else { continue };
        let reader = Arc::clone(&reader);
        tokio::spawn(async move {
            // A slow client loses its connection and may ask again.
            let _ = tokio::time::timeout(CONNECTION_MAX, serve_connection(stream, &reader)).await;
            drop(permit);
        });
    }
}

async fn serve_connection(mut stream: TcpStream, reader: &CachedReader) -> io::Result<()> {
    let answer = match read_head(&mut stream).await? {
        Head::Whole(head) => answer(&head, reader),
        Head::TooLong => HttpAnswer::plain(431, "Request Header Fields Too Large", "the request is too long\n"),
        Head::Ended => return Ok(()),
    };
    stream.write_all(answer.head().as_bytes()).await?;
    if answer.has_body {
        stream.write_all(answer.body().as_bytes()).await?;
    }
    stream.shutdown().await?;
    let _ = tokio::time::timeout(DRAIN_MAX, drain(&mut stream)).await;
    Ok(())
}

enum Head {
    Whole(Vec<u8>),
    TooLong,
    Ended,
}

/// Reads up to the empty line.
async fn read_head(stream: &mut TcpStream) -> io::Result<Head> {
    let mut head = Vec::with_capacity(1024);
    let mut part = [0; 1024];
    loop {
        match stream.read(&mut part).await? {
            0 => return Ok(Head::Ended),
            length => head.extend_from_slice(&part[..length]),
        }
        if let Some(end) = head.windows(4).position(|four| four == b"\r\n\r\n") {
            head.truncate(end);
            return Ok(Head::Whole(head));
        }
        if head.len() > HEAD_BYTES_MAX {
            return Ok(Head::TooLong);
        }
    }
}

async fn drain(stream: &mut TcpStream) -> io::Result<()> {
    let (mut part, mut drained) = ([0; 4096], 0);
    while drained < DRAIN_BYTES_MAX {
        match stream.read(&mut part).await? {
            0 => return Ok(()),
            length => drained += length,
        }
    }
    Ok(())
}

enum Body {
    Text(String),
    Metrics(Arc<Read>),
}

struct HttpAnswer {
    code: u16,
    reason: &'static str,
    kind: &'static str,
    body: Body,
    has_body: bool,
}

impl HttpAnswer {
    fn plain(code: u16, reason: &'static str, text: &str) -> Self {
        let kind = "text/plain; charset=utf-8";
        Self { code, reason, kind, body: Body::Text(text.to_owned()), has_body: true }
    }

    fn verdict(is_good: bool, text: String) -> Self {
        let (code, reason) = if is_good { (200, "OK") } else { (503, "Service Unavailable") };
        Self { code, reason, kind: "application/json", body: Body::Text(text), has_body: true }
    }

    fn body(&self) -> &str {
        match &self.body {
            Body::Text(text) => text,
            Body::Metrics(read) => &read.metrics,
        }
    }

    fn head(&self) -> String {
        let Self { code, reason, kind, .. } = self;
        let allow = if *code == 405 { "Allow: GET, HEAD\r\n" } else { "" };
        let length = self.body().len();
        format!(
            "HTTP/1.1 {code} {reason}\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\n{allow}Cache-Control: no-store\r\nConnection: close\r\n\r\n"
        )
    }
}

/// Answers a request. Only its first line counts.
fn answer(head: &[u8], reader: &CachedReader) -> HttpAnswer {
    let malformed = || HttpAnswer::plain(400, "Bad Request", "malformed HTTP/1.1 request\n");
    let line = head.split(|&byte| byte == b'\r').next().unwrap_or_default();
    let Some(line) = std::str::from_utf8(line).ok().filter(|line| line.bytes().all(|byte| matches!(byte, b' '..=b'~')))
    else {
        return malformed();
    };
    let mut words = line.split(' ');
    let (Some(method), Some(target), Some("HTTP/1.1" | "HTTP/1.0"), None) =
        (words.next(), words.next(), words.next(), words.next())
    else {
        return malformed();
    };
    if method != "GET" && method != "HEAD" {
        return HttpAnswer::plain(405, "Method Not Allowed", "use GET or HEAD\n");
    }
    let path = target.split('?').next().unwrap_or_default();
    let known = matches!(path, "/" | "/metrics" | "/health" | "/ready");
    let read = if known { reader.read() } else { None };
    let mut answer = match (path, read) {
        ("/", _) => HttpAnswer::plain(200, "OK", "ddssd: /metrics /health /ready\n"),
        ("/metrics", Some(read)) => HttpAnswer {
            code: 200,
            reason: "OK",
            kind: "text/plain; version=0.0.4; charset=utf-8",
            body: Body::Metrics(read),
            has_body: true,
        },
        ("/health", Some(read)) => {
            let verdict = health(&read.all);
            HttpAnswer::verdict(verdict.is_good, verdict.text)
        }
        ("/ready", Some(read)) => {
            let verdict = readiness(&read.all);
            HttpAnswer::verdict(verdict.is_good, verdict.text)
        }
        (_, None) if known => HttpAnswer::plain(500, "Internal Server Error", "the status page cannot be read\n"),
        _ => HttpAnswer::plain(404, "Not Found", "not found: use /metrics, /health or /ready\n"),
    };
    answer.has_body = method == "GET";
    answer
}
