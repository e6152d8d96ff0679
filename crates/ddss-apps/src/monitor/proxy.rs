//! A proxy that sends each request to the web server with the least load.

use std::collections::HashMap;
use std::io::{self, Write};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use ddss::Client;

use super::publish::Watcher;
use super::web::{Door, Load, get, prepared, take_front};
use crate::Error;

/// A web server as the proxy sees it.
#[derive(Debug)]
struct Server {
    address: SocketAddr,
    /// Active requests of the server, as last published.
    active: AtomicU64,
}

#[derive(Debug)]
struct Servers {
    all: Vec<Server>,
    /// Round-robin position among servers of equal load.
    turn: AtomicUsize,
    over: AtomicBool,
    /// Readings of all loads.
    readings: AtomicU64,
}

impl Servers {
    fn pick(&self) -> SocketAddr {
        let turn = self.turn.fetch_add(1, Ordering::Relaxed);
        let from = |index| &self.all[(turn + index) % self.all.len()];
        let free = (0..self.all.len()).map(from).min_by_key(|server| server.active.load(Ordering::Relaxed));
        free.expect("a proxy has servers").address
    }
}

/// A running proxy, which ends when this value is dropped.
#[derive(Debug)]
pub struct Proxy {
    door: Door,
    servers: Arc<Servers>,
    watching: Option<JoinHandle<()>>,
}

impl Proxy {
    /// Starts a proxy for the servers with these instance names. It reads their loads at an interval, or never.
    pub fn start(
        address: IpAddr,
        client: &Client,
        servers: &[(String, SocketAddr)],
        every: Option<Duration>,
    ) -> Result<Proxy, Error> {
        let all = servers.iter().map(|&(_, address)| Server { address, active: AtomicU64::new(0) }).collect();
        let (turn, over) = (AtomicUsize::new(0), AtomicBool::new(false));
        let shared = Arc::new(Servers { all, turn, over, readings: AtomicU64::new(0) });
        let watching = match every {
            Some(every) => {
                let mut watcher = Watcher::<Load>::new(client, "web");
                watcher.discover()?;
                let (shared, names) =
                    (Arc::clone(&shared), servers.iter().map(|(name, _)| name.clone()).collect::<Vec<_>>());
                Some(thread::spawn(move || watch(&mut watcher, &shared, &names, every)))
            }
            None => None,
        };
        let door = Door::open(address, {
            let shared = Arc::clone(&shared);
            move |stream| forward(stream, &shared)
        })?;
        Ok(Proxy { door, servers: shared, watching })
    }

    /// Returns the address on which the proxy listens.
    pub fn address(&self) -> SocketAddr {
        self.door.address
    }

    /// Returns the number of reads of all loads.
    pub fn readings(&self) -> u64 {
        self.servers.readings.load(Ordering::Relaxed)
    }
}

fn watch(watcher: &mut Watcher<Load>, servers: &Servers, names: &[String], every: Duration) {
    while !servers.over.load(Ordering::Acquire) {
        let begin = Instant::now();
        // If the node does not answer, the last known loads stay.
        for reading in watcher.read(Duration::ZERO).unwrap_or_default() {
            if let Some(index) = names.iter().position(|name| *name == reading.instance) {
                servers.all[index].active.store(reading.value.active, Ordering::Relaxed);
            }
        }
        servers.readings.fetch_add(1, Ordering::Relaxed);
        thread::sleep(every.saturating_sub(begin.elapsed()));
    }
}

fn forward(stream: TcpStream, servers: &Servers) -> io::Result<()> {
    let (mut stream, mut connections, mut body) = (prepared(stream)?, HashMap::new(), Vec::new());
    while take_front(&mut stream)?.is_some() {
        let server = servers.pick();
        let connection = match connections.remove(&server) {
            Some(connection) => connection,
            None => prepared(TcpStream::connect(server)?)?,
        };
        let connection = connections.entry(server).or_insert(connection);
        get(connection, &mut body)?;
        let mut answer = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", body.len()).into_bytes();
        answer.extend_from_slice(&body);
        stream.get_mut().write_all(&answer)?;
    }
    Ok(())
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.servers.over.store(true, Ordering::Release);
        if let Some(watching) = self.watching.take() {
            drop(watching.join());
        }
    }
}
