//! A minimal HTTP/1.1 server: one request a connection, with limits on sizes and times. When there are too many connections
//! the oldest one ends, so that slow clients keep no other out.

use super::exposition::{NodeValues, exposition};
use super::health::{health, readiness};
use super::live::{EVENT_INTERVAL, EVENTS_MAX, FIRST_EVENT, Moment, PAGE, PAGE_POLICY, event};
use super::process::{ProcessSample, WatchedFolders};
use crate::start_error::StartError;
use crate::status::{RaftStatus, StatusPage};
use ddss_core::status::Status;
use std::collections::VecDeque;
use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::{Semaphore, oneshot};
use tokio::task::AbortHandle;
use tokio::time::MissedTickBehavior;

/// Concurrent connections; one more ends the oldest.
const CONNECTIONS_MAX: usize = 32;
/// Concurrent live pages.
const VIEWERS_MAX: usize = 8;
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
                let viewers = Arc::new(Semaphore::new(VIEWERS_MAX));
                let is_loopback = bound.ip().is_loopback();
                let reader = Arc::new(CachedReader { sources, last: Mutex::new(None), viewers, is_loopback });
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
    last: Mutex<Option<Arc<Reading>>>,
    /// Room for live pages.
    viewers: Arc<Semaphore>,
    /// True if only this machine reaches the server.
    is_loopback: bool,
}

/// All pages of the shards at one time.
#[derive(Debug)]
struct Reading {
    at: Instant,
    all: Vec<Status>,
    metrics: String,
}

impl Reading {
    fn moment(&self) -> Moment<'_> {
        Moment { at: self.at, all: &self.all }
    }
}

impl CachedReader {
    fn read(&self) -> Option<Arc<Reading>> {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(read) = last.as_ref().filter(|read| read.at.elapsed() < CACHE_MAX_AGE) {
            return Some(Arc::clone(read));
        }
        let MetricsSources { pages, raft, folders } = &self.sources;
        let all = pages.iter().map(|page| Status::decode(&page.copy())).collect::<Result<Vec<_>, _>>().ok()?;
        let node = NodeValues { process: ProcessSample::take(folders), raft: raft.as_ref().map(RaftStatus::read) };
        let metrics = exposition(&all, &node);
        let read = Arc::new(Reading { at: Instant::now(), all, metrics });
        *last = Some(Arc::clone(&read));
        Some(read)
    }

    /// Returns an event of the live page. `shows_names` is false if the request may be of another machine, or of a page of one.
    fn event(&self, older: &Reading, newer: &Reading, shows_names: bool) -> Option<String> {
        let memory_folder = shows_names.then_some(&*self.sources.folders.memory);
        event(&older.moment(), &newer.moment(), memory_folder).map(|event| event.to_string())
    }

    /// Returns the live page with what is now. Names come with the first event: they may hold markup.
    fn page(&self, read: &Reading) -> String {
        let first = self.event(read, read, false).unwrap_or_default();
        PAGE.replacen(FIRST_EVENT, &first, 1)
    }
}

async fn serve(listener: TcpListener, reader: Arc<CachedReader>) {
    let listener = match tokio::net::TcpListener::from_std(listener) {
        Ok(listener) => listener,
        Err(error) => return tracing::error!(%error, "cannot serve metrics"),
    };
    let mut connections: VecDeque<AbortHandle> = VecDeque::new();
    loop {
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            Err(error) => {
                tracing::debug!(%error, "cannot accept a metrics connection");
                tokio::time::sleep(ACCEPT_RETRY).await;
                continue;
            }
        };
        connections.retain(|connection| !connection.is_finished());
        if connections.len() >= CONNECTIONS_MAX {
            connections.pop_front().iter().for_each(AbortHandle::abort);
        }
        let reader = Arc::clone(&reader);
        let connection = tokio::spawn(async move {
            // A slow client loses its connection and may ask again. So does a browser whose events have ended.
            let _ = serve_connection(stream, reader).await;
        });
        connections.push_back(connection.abort_handle());
    }
}

/// Runs a step of a connection up to its deadline.
async fn in_time<T>(step: impl Future<Output = io::Result<T>>) -> io::Result<T> {
    tokio::time::timeout(CONNECTION_MAX, step).await?
}

async fn serve_connection(mut stream: TcpStream, reader: Arc<CachedReader>) -> io::Result<()> {
    let mut head = in_time(read_head(&mut stream)).await?;
    if let Head::Whole(request) = &head
        && let Some("/events") = target(request).filter(|_| request.starts_with(b"GET "))
    {
        let Ok(viewer) = Arc::clone(&reader.viewers).try_acquire_owned() else {
            head = Head::Crowded;
            return in_time(serve_answer(stream, head, &reader)).await;
        };
        let shows_names = reader.is_loopback && is_for_this_machine(request);
        // Other connections are short: they do not end this one.
        tokio::spawn(async move {
            // A browser asks again.
            let _ = tokio::time::timeout(EVENTS_MAX, send_events(&mut stream, &reader, shows_names)).await;
            drop(viewer);
        });
        return Ok(());
    }
    in_time(serve_answer(stream, head, &reader)).await
}

/// Sends an event a second until the browser is gone.
async fn send_events(stream: &mut TcpStream, reader: &CachedReader, shows_names: bool) -> io::Result<()> {
    let head =
        "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nCache-Control: no-store\r\nConnection: close\r\n\r\n";
    in_time(stream.write_all(head.as_bytes())).await?;
    let unreadable = || io::Error::other("the status page cannot be read");
    let mut older = reader.read().ok_or_else(unreadable)?;
    let mut pauses = tokio::time::interval(EVENT_INTERVAL);
    pauses.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        pauses.tick().await;
        let newer = reader.read().ok_or_else(unreadable)?;
        let event = reader.event(&older, &newer, shows_names).ok_or_else(unreadable)?;
        in_time(stream.write_all(format!("data: {event}\n\n").as_bytes())).await?;
        older = newer;
        // A browser says nothing more: whatever comes is the end of the stream.
        match tokio::time::timeout(EVENT_INTERVAL / 2, stream.read(&mut [0; 1])).await {
            Err(_) => {}
            Ok(ended) => return ended.map(drop),
        }
    }
}

async fn serve_answer(mut stream: TcpStream, head: Head, reader: &CachedReader) -> io::Result<()> {
    let answer = match head {
        Head::Whole(head) => answer(&head, reader),
        Head::TooLong => HttpAnswer::plain(431, "Request Header Fields Too Large", "the request is too long\n"),
        Head::Crowded => HttpAnswer::plain(503, "Service Unavailable", "too many live pages are open\n"),
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
    /// A live page more than there may be.
    Crowded,
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

/// Returns the target of a request without its query.
fn target(head: &[u8]) -> Option<&str> {
    let line = std::str::from_utf8(head.split(|&byte| byte == b'\r').next()?).ok()?;
    line.split(' ').nth(1)?.split('?').next()
}

/// Returns true if a browser asks this machine by an address or as `localhost`. A page of another site can make its own name
/// mean this machine, and would read what is shown here.
fn is_for_this_machine(head: &[u8]) -> bool {
    let text = String::from_utf8_lossy(head);
    let mut hosts = text.split("\r\n").filter_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.eq_ignore_ascii_case("host").then_some(value.trim())
    });
    let is_local = |host: &str| {
        let name = host.rsplit_once(':').map_or(host, |(name, _)| name);
        host.parse::<SocketAddr>().is_ok() || host.parse::<IpAddr>().is_ok() || name.eq_ignore_ascii_case("localhost")
    };
    hosts.next().is_none_or(is_local) && hosts.next().is_none()
}

enum Body {
    Page(String),
    Text(String),
    Metrics(Arc<Reading>),
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
            Body::Page(text) | Body::Text(text) => text,
            Body::Metrics(read) => &read.metrics,
        }
    }

    fn head(&self) -> String {
        let Self { code, reason, kind, .. } = self;
        let more = match (&self.body, code) {
            (Body::Page(_), _) => format!("Content-Security-Policy: {PAGE_POLICY}\r\n"),
            (_, 405) => "Allow: GET, HEAD\r\n".to_owned(),
            _ => String::new(),
        };
        let length = self.body().len();
        format!(
            "HTTP/1.1 {code} {reason}\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\n{more}Cache-Control: no-store\r\nConnection: close\r\n\r\n"
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
        ("/", Some(read)) => {
            let body = Body::Page(reader.page(&read));
            HttpAnswer { code: 200, reason: "OK", kind: "text/html; charset=utf-8", body, has_body: true }
        }
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
        _ => HttpAnswer::plain(404, "Not Found", "not found: use /, /metrics, /health or /ready\n"),
    };
    answer.has_body = method == "GET";
    answer
}
