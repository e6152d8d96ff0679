//! A web server with one file, and its HTTP client.

use std::io::{self, BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use ddss::Client;
use zerocopy::{FromBytes, Immutable, IntoBytes};

use super::publish::Publisher;
use crate::Error;

/// Bytes of the file.
pub const FILE_BYTES: usize = 16 << 10;
/// Timeout of either side.
const WORD_MAX: Duration = Duration::from_secs(20);
/// Maximum bytes of a request or of the head of an answer.
const FRONT_BYTES_MAX: u64 = 4096;

/// Load that a web server publishes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable)]
#[repr(C)]
pub struct Load {
    /// Requests in flight.
    pub active: u64,
    /// Requests that were answered.
    pub served: u64,
}

#[derive(Debug, Default)]
struct Counters {
    active: AtomicU64,
    served: AtomicU64,
    over: AtomicBool,
}

/// A thread that accepts connections, and ends when this is dropped.
#[derive(Debug)]
pub(crate) struct Door {
    pub(crate) address: SocketAddr,
    over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Door {
    /// Starts a thread for each accepted connection.
    pub(crate) fn open(
        address: IpAddr,
        serve: impl Fn(TcpStream) -> io::Result<()> + Clone + Send + 'static,
    ) -> Result<Door, Error> {
        let what = format!("listening at {address}");
        let listener = TcpListener::bind((address, 0)).map_err(Error::system(&*what))?;
        let address = listener.local_addr().map_err(Error::system(what))?;
        let over = Arc::new(AtomicBool::new(false));
        let thread = thread::spawn({
            let over = Arc::clone(&over);
            move || {
                while let Ok((stream, _)) = listener.accept() {
                    if over.load(Ordering::Acquire) {
                        break;
                    }
                    let serve = serve.clone();
                    // Such a thread ends with its connection; an error concerns only the client that broke the
                    // connection.
                    thread::spawn(move || drop(serve(stream)));
                }
            }
        });
        Ok(Door { address, over, thread: Some(thread) })
    }
}

impl Drop for Door {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Release);
        let woken = TcpStream::connect_timeout(&self.address, WORD_MAX);
        if let (Some(thread), true) = (self.thread.take(), woken.is_ok()) {
            // The panic hook has reported a panic of the thread.
            drop(thread.join());
        }
    }
}

/// A web server with a file of 16 KiB. It publishes its load.
#[derive(Debug)]
pub struct WebServer {
    door: Door,
    counters: Arc<Counters>,
    publishing: Option<JoinHandle<()>>,
}

impl WebServer {
    /// Starts a web server that publishes its load at an interval, as a client of its own node.
    pub fn start(address: IpAddr, client: &Client, instance: &str, every: Duration) -> Result<WebServer, Error> {
        let counters = Arc::new(Counters::default());
        let publisher = Publisher::start(client, "web", instance, &Load::default())?;
        let publishing = thread::spawn({
            let counters = Arc::clone(&counters);
            move || {
                while !counters.over.load(Ordering::Acquire) {
                    let load = Load {
                        active: counters.active.load(Ordering::Relaxed),
                        served: counters.served.load(Ordering::Relaxed),
                    };
                    // The node may have ended: then no client reads the load either.
                    drop(publisher.publish(&load));
                    thread::sleep(every);
                }
            }
        });
        let file: Arc<[u8]> = (0..FILE_BYTES).map(|index| index as u8).collect();
        let door = Door::open(address, {
            let counters = Arc::clone(&counters);
            move |stream| serve(stream, &file, &counters)
        })?;
        Ok(WebServer { door, counters, publishing: Some(publishing) })
    }

    /// Returns the address on which the server listens.
    pub fn address(&self) -> SocketAddr {
        self.door.address
    }

    /// Returns the number of requests that it answered.
    pub fn served(&self) -> u64 {
        self.counters.served.load(Ordering::Relaxed)
    }
}

impl Drop for WebServer {
    fn drop(&mut self) {
        self.counters.over.store(true, Ordering::Release);
        if let Some(publishing) = self.publishing.take() {
            drop(publishing.join());
        }
    }
}

/// Reads a request, or the head of an answer, from a connection; `None` at its end.
pub(crate) fn take_front(stream: &mut BufReader<TcpStream>) -> io::Result<Option<String>> {
    let mut front = String::new();
    let mut limited = stream.take(FRONT_BYTES_MAX);
    while !front.ends_with("\r\n\r\n") {
        if limited.read_line(&mut front)? == 0 {
            return if front.is_empty() { Ok(None) } else { Err(ErrorKind::UnexpectedEof.into()) };
        }
    }
    Ok(Some(front))
}

pub(crate) fn prepared(stream: TcpStream) -> io::Result<BufReader<TcpStream>> {
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(WORD_MAX))?;
    Ok(BufReader::with_capacity(32 << 10, stream))
}

fn serve(stream: TcpStream, file: &[u8], counters: &Counters) -> io::Result<()> {
    let mut stream = prepared(stream)?;
    while take_front(&mut stream)?.is_some() {
        counters.active.fetch_add(1, Ordering::Relaxed);
        let mut answer = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", file.len()).into_bytes();
        answer.extend_from_slice(file);
        let written = stream.get_mut().write_all(&answer);
        counters.active.fetch_sub(1, Ordering::Relaxed);
        written?;
        counters.served.fetch_add(1, Ordering::Relaxed);
    }
    Ok(())
}

/// Requests the file over a persistent connection, and stores it in `body`.
pub fn get(stream: &mut BufReader<TcpStream>, body: &mut Vec<u8>) -> io::Result<()> {
    stream.get_mut().write_all(b"GET /file HTTP/1.1\r\nHost: farm\r\n\r\n")?;
    let front = take_front(stream)?.ok_or(ErrorKind::UnexpectedEof)?;
    let length = front.lines().find_map(|line| line.strip_prefix("Content-Length: "));
    let length: usize = length.and_then(|length| length.parse().ok()).ok_or(ErrorKind::InvalidData)?;
    if length > FILE_BYTES {
        return Err(ErrorKind::InvalidData.into());
    }
    body.resize(length, 0);
    stream.read_exact(body)
}
