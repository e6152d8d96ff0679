//! Compares user-space iWARP with the bare sockets that it uses, in one run.
//!
//! Two threads on two cores. Blocks of bare round trips and blocks of remote operations take turns on the same
//! loopback; each line is the median of the blocks' ratios. Throughput is measured in two ways: `batch` posts 32
//! operations and waits for all of them, as the benchmark `fabric` does; `window` posts one for each completion. The
//! bare sockets do the same with the same sizes, the same congestion control as the fabric and the same ranges of
//! memory.
//!
//! `cargo run --release -p ddss-verbs --example fabric_ratio [-- [--plain] [--shared] [--paced] [BYTES]]`: without
//! CRC; from memory that other processes may write, too; with the system's congestion control for the bare sockets;
//! one size only.
#![allow(clippy::print_stdout, clippy::unwrap_used, reason = "a program that prints what it measured")]

use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use ddss_verbs::{
    Event, Events, Fabric, Iwarp, IwarpConfig, LocalRange, PeerId, RegionId, RemoteRange, Rights, Trust, Work,
};
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};
use rustix::thread::{CpuSet, sched_setaffinity};

const MEMORY: u64 = 8 << 20;
const FABRIC: u64 = 0;
const STOP: u64 = u64::MAX;
const BLOCKS: usize = 15;
const OUTSTANDING: u64 = 32;

/// Mode of the server: 0 the fabric, `STOP`, or the size of a bare answer.
static MODE: AtomicU64 = AtomicU64::new(FABRIC);
static SEEN: AtomicU64 = AtomicU64::new(FABRIC);

fn mode(mode: u64) {
    MODE.store(mode, Ordering::SeqCst);
    while SEEN.load(Ordering::SeqCst) != mode {
        std::hint::spin_loop();
    }
}

fn pin(core: usize) {
    let mut set = CpuSet::new();
    set.set(core % std::thread::available_parallelism().unwrap().get());
    sched_setaffinity(None, &set).unwrap();
    // Niceness has no effect across sessions; this does, where it is permitted.
    let _ = std::fs::write("/proc/self/autogroup", "-20");
}

/// Sets the socket options of the fabric, except for `--paced`.
fn tune(bare: &TcpStream) {
    bare.set_nodelay(true).unwrap();
    bare.set_nonblocking(true).unwrap();
    if !std::env::args().any(|arg| arg == "--paced") {
        rustix::net::sockopt::set_tcp_congestion(bare, "reno").unwrap();
    }
}

fn memory() -> OwnedFd {
    let fd = memfd_create("ratio", MemfdFlags::ALLOW_SEALING | MemfdFlags::CLOEXEC).unwrap();
    ftruncate(&fd, MEMORY).unwrap();
    fcntl_add_seals(&fd, SealFlags::SHRINK).unwrap();
    fd
}

fn serve(listener: TcpListener, config: IwarpConfig, hello: std::sync::mpsc::Sender<std::net::SocketAddr>) {
    pin(1);
    let mut fabric = Iwarp::new(config).unwrap();
    let fd = memory();
    // The guarantee of a daemon's segments.
    let trust = if std::env::args().any(|arg| arg == "--shared") { Trust::Sealed } else { Trust::Exclusive };
    let region = fabric.register(fd.as_fd(), trust, 0, MEMORY).unwrap();
    hello.send(fabric.listen("127.0.0.1:0".parse().unwrap()).unwrap()).unwrap();
    let (mut bare, _) = listener.accept().unwrap();
    tune(&bare);
    let mut events = Events::new();
    let answer = vec![1_u8; MEMORY as usize];
    let mut requests = vec![0_u8; 1 << 16];
    let (mut pending_bytes, mut odd, mut at) = (0_u64, 0, 0);
    loop {
        let mode = MODE.load(Ordering::Relaxed);
        SEEN.store(mode, Ordering::SeqCst);
        match mode {
            FABRIC => {
                for _ in 0..64 {
                    fabric.poll(&mut events);
                    for event in events.iter() {
                        if let Event::ConnectRequest { peer, .. } = event {
                            let rights = Rights::READ.union(Rights::WRITE).union(Rights::ATOMIC);
                            let window = fabric.expose(peer, region, 0, MEMORY, rights).unwrap();
                            fabric.accept(peer, &window.key.to_le_bytes()).unwrap();
                        }
                    }
                    events.clear();
                }
            }
            STOP => return,
            size => {
                if let Ok(count) = bare.read(&mut requests) {
                    odd += count as u64;
                    pending_bytes += odd / 8 * size;
                    odd %= 8;
                }
                // From the same range of memory as the fabric's answers.
                let range = size * 32;
                at %= range;
                let end = range.min(at + pending_bytes);
                if pending_bytes > 0
                    && let Ok(count) = bare.write(&answer[at as usize..end as usize])
                {
                    pending_bytes -= count as u64;
                    at = (at + count as u64) % range;
                }
            }
        }
    }
}

struct Client {
    fabric: Iwarp,
    peer: PeerId,
    region: RegionId,
    key: u32,
    bare: TcpStream,
    events: Events,
    buffer: Vec<u8>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Read,
    Write,
    Add,
}

impl Client {
    fn connect(config: IwarpConfig, bare: TcpStream, address: std::net::SocketAddr) -> Self {
        let mut fabric = Iwarp::new(config).unwrap();
        let region = fabric.register(memory().as_fd(), Trust::Sealed, 0, MEMORY).unwrap();
        let peer = fabric.connect(address, b"").unwrap();
        tune(&bare);
        let mut events = Events::new();
        let mut key = None;
        while key.is_none() {
            fabric.poll(&mut events);
            for event in events.iter() {
                match event {
                    Event::Connected { hello, .. } => key = Some(u32::from_le_bytes(hello.try_into().unwrap())),
                    other => panic!("{other:?}"),
                }
            }
            events.clear();
        }
        Self { fabric, peer, region, key: key.unwrap(), bare, events, buffer: vec![0; MEMORY as usize] }
    }

    fn work(&self, kind: Kind, bytes: u64, tag: u64) -> Work<'static> {
        let at = tag % 32 * bytes;
        let local = LocalRange { region: self.region, offset: at, bytes };
        let (peer, remote) = (self.peer, RemoteRange { key: self.key, address: at });
        match kind {
            Kind::Read => Work::Read { peer, tag, local, remote },
            Kind::Write => Work::Write { peer, tag, local, remote },
            Kind::Add => Work::FetchAdd { peer, tag, remote, add: 1 },
        }
    }

    /// Runs operations one at a time, and records the latency of each.
    fn ping(&mut self, kind: Kind, bytes: u64, count: usize, times: &mut Vec<u64>) {
        for tag in 0..count as u64 {
            let start = Instant::now();
            let work = self.work(kind, bytes, tag);
            self.fabric.post(&[work]).unwrap();
            while self.fabric.poll(&mut self.events) == 0 {}
            times.push(start.elapsed().as_nanos() as u64);
            self.events.clear();
        }
    }

    fn bare_ping(&mut self, bytes: usize, count: usize, times: &mut Vec<u64>) {
        for _ in 0..count {
            let start = Instant::now();
            assert_eq!(self.bare.write(&[0; 8]).unwrap(), 8);
            let mut left = bytes;
            while left > 0 {
                left -= self.bare_read(0, self.buffer.len());
            }
            times.push(start.elapsed().as_nanos() as u64);
        }
    }

    fn bare_read(&mut self, from: usize, to: usize) -> usize {
        match self.bare.read(&mut self.buffer[from..to]) {
            Ok(count) => count,
            Err(error) if error.kind() == ErrorKind::WouldBlock => 0,
            Err(error) => panic!("{error}"),
        }
    }

    /// Keeps 32 operations in flight; returns operations per second over `span`.
    fn flood(&mut self, kind: Kind, bytes: u64, batches: bool, span: Duration) -> f64 {
        let (mut tag, mut done) = (0, 0_u64);
        let start = Instant::now();
        let mut batch = Vec::with_capacity(OUTSTANDING as usize);
        loop {
            let over = start.elapsed() >= span;
            if !over {
                batch.clear();
                while tag - done < OUTSTANDING && (!batches || tag == done || !batch.is_empty()) {
                    batch.push(self.work(kind, bytes, tag));
                    tag += 1;
                }
                self.fabric.post(&batch).unwrap();
            } else if tag == done {
                return done as f64 / start.elapsed().as_secs_f64();
            }
            done += self.fabric.poll(&mut self.events) as u64;
            self.events.clear();
        }
    }

    fn bare_flood(&mut self, bytes: usize, batches: bool, span: Duration) -> f64 {
        let outstanding = OUTSTANDING as usize;
        let (mut sent, mut received) = (0, 0);
        let start = Instant::now();
        let requests = [0; 8 * 64];
        loop {
            let over = start.elapsed() >= span;
            let under_way = sent - received / bytes;
            if !over && under_way < outstanding && (!batches || under_way == 0) {
                let count = outstanding - under_way;
                assert_eq!(self.bare.write(&requests[..8 * count]).unwrap(), 8 * count);
                sent += count;
            } else if over && under_way == 0 {
                return sent as f64 / start.elapsed().as_secs_f64();
            }
            received += self.bare_read(received % (bytes * 32), bytes * 32);
        }
    }
}

fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn p50(times: &mut [u64]) -> f64 {
    times.sort_unstable();
    times[times.len() / 2] as f64 / 1000.0
}

fn main() {
    let mut config = IwarpConfig::default();
    config.crc = !std::env::args().any(|arg| arg == "--plain");
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let bare = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (sender, receiver) = std::sync::mpsc::channel();
    let served = config.clone();
    let server = std::thread::spawn(move || serve(listener, served, sender));
    pin(0);
    let mut client = Client::connect(config.clone(), bare, receiver.recv().unwrap());
    println!("crc {}", config.crc);
    let only: Option<u64> = std::env::args().filter_map(|arg| arg.parse().ok()).next();
    for (name, kind, bytes) in
        [("read", Kind::Read, 8), ("read", Kind::Read, 4096), ("read", Kind::Read, 65536), ("fetch_add", Kind::Add, 8)]
    {
        if only.is_some_and(|only| only != bytes) {
            continue;
        }
        let (mut ratios, mut ours, mut theirs) = (vec![], vec![], vec![]);
        for block in 0..BLOCKS + 1 {
            let (mut a, mut b) = (vec![], vec![]);
            mode(bytes);
            client.bare_ping(bytes as usize, 1500, &mut a);
            mode(FABRIC);
            client.ping(kind, bytes, 1500, &mut b);
            if block > 0 {
                let (a, b) = (p50(&mut a), p50(&mut b));
                ratios.push(b / a);
                theirs.push(a);
                ours.push(b);
            }
        }
        let (a, b, ratio) = (median(&mut theirs), median(&mut ours), median(&mut ratios));
        println!("{name:>10} {bytes:>7} B   1 outstanding  bare {a:7.2} us  iwarp {b:7.2} us  x {ratio:.3}");
    }
    for (name, kind, bytes) in [
        ("read", Kind::Read, 8),
        ("write", Kind::Write, 8),
        ("fetch_add", Kind::Add, 8),
        ("read", Kind::Read, 8192),
        ("read", Kind::Read, 65536),
        ("read", Kind::Read, 262_144),
    ] {
        if only.is_some_and(|only| only != bytes) {
            continue;
        }
        for batches in [true, false] {
            let (mut ratios, mut ours, mut theirs) = (vec![], vec![], vec![]);
            let span = Duration::from_millis(30);
            for block in 0..BLOCKS + 1 {
                mode(bytes);
                let a = client.bare_flood(bytes as usize, batches, span);
                mode(FABRIC);
                let b = client.flood(kind, bytes, batches, span);
                if block > 0 {
                    ratios.push(b / a);
                    theirs.push(a);
                    ours.push(b);
                }
            }
            let (a, b, ratio) = (median(&mut theirs), median(&mut ours), median(&mut ratios));
            let way = if batches { "batch" } else { "window" };
            println!("{name:>10} {bytes:>7} B  32 {way:>6}  bare {a:9.0} /s  iwarp {b:9.0} /s  x {ratio:.3}");
        }
    }
    MODE.store(STOP, Ordering::SeqCst);
    server.join().unwrap();
}
