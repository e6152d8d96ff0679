//! A bare server as a baseline for attacks that send requests endlessly.
//!
//! A thread on the daemon's core does nothing but answer a cache line and a socket.

use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};

use rustix::thread::{CpuSet, sched_setaffinity};

/// Request on the socket.
#[derive(Clone, Copy)]
pub(crate) struct RequestLoad {
    /// Returns its name in the rows.
    pub(crate) name: &'static str,
    /// Bytes of an answer.
    answer_bytes: usize,
    /// Requests in flight.
    outstanding: usize,
}

/// Loads that match the attacks `member_requests::requests_without_end` and `reads_without_end`.
pub(crate) const REQUEST_LOADS: [RequestLoad; 2] = [
    RequestLoad { name: "bare_baseline::requests_without_end", answer_bytes: 64, outstanding: 64 },
    RequestLoad { name: "bare_baseline::reads_without_end", answer_bytes: 32 << 10, outstanding: 16 },
];
const QUESTION_BYTES: usize = 64;

/// The cache line: an odd number is a request, an even one a reply.
#[repr(align(128))]
struct Line(AtomicU64);

/// The server thread, and its cache line.
pub(crate) struct Hub {
    line: Arc<Line>,
    /// Set when a connection is pending. The thread accepts only then, because `accept` is a system call.
    knocks: Arc<AtomicBool>,
    over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
    listener: TcpListener,
}

impl Hub {
    /// Starts the server thread on this core.
    pub(crate) fn start(core: usize) -> std::io::Result<Hub> {
        let line = Arc::new(Line(AtomicU64::new(0)));
        let over = Arc::new(AtomicBool::new(false));
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let door = listener.try_clone()?;
        door.set_nonblocking(true)?;
        let knocks = Arc::new(AtomicBool::new(false));
        let (asked, knocked, ends) = (Arc::clone(&line), Arc::clone(&knocks), Arc::clone(&over));
        let thread = thread::spawn(move || {
            let mut one = CpuSet::new();
            one.set(core);
            // If the thread cannot be pinned, the latencies are higher.
            let _ = sched_setaffinity(None, &one);
            serve(&asked.0, &door, &knocked, &ends);
        });
        Ok(Hub { line, knocks, over, thread: Some(thread), listener })
    }

    /// Makes one call of the legitimate client.
    pub(crate) fn call(&self) {
        let question = self.line.0.load(Ordering::Relaxed) + 1;
        self.line.0.store(question, Ordering::Release);
        while self.line.0.load(Ordering::Acquire) == question {
            std::hint::spin_loop();
        }
    }

    /// A client that sends requests on the socket until it is dropped.
    pub(crate) fn start_client(&self, asks: RequestLoad) -> std::io::Result<LoadClient> {
        let mut socket = TcpStream::connect(self.listener.local_addr()?)?;
        socket.set_nodelay(true)?;
        socket.write_all(&(asks.answer_bytes as u64).to_le_bytes())?;
        self.knocks.store(true, Ordering::Relaxed);
        let over = Arc::new(AtomicBool::new(false));
        let ends = Arc::clone(&over);
        let thread = thread::spawn(move || {
            let questions = vec![1; QUESTION_BYTES * asks.outstanding];
            let mut answers = vec![0; asks.answer_bytes * asks.outstanding];
            while !ends.load(Ordering::Relaxed)
                && socket.write_all(&questions).and_then(|()| socket.read_exact(&mut answers)).is_ok()
            {}
        });
        Ok(LoadClient { over, thread: Some(thread) })
    }
}

impl Drop for Hub {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        let _ended = self.thread.take().map(JoinHandle::join);
    }
}

/// Sends requests on the socket.
pub(crate) struct LoadClient {
    over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Drop for LoadClient {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        let _ended = self.thread.take().map(JoinHandle::join);
    }
}

/// Polls the cache line and the sockets in turn, and answers the requests.
fn serve(line: &AtomicU64, door: &TcpListener, knocks: &AtomicBool, over: &AtomicBool) {
    let mut guest: Option<Guest> = None;
    while !over.load(Ordering::Relaxed) {
        let question = line.load(Ordering::Acquire);
        if question % 2 == 1 {
            line.store(question + 1, Ordering::Release);
        }
        guest = match guest {
            Some(mut asker) => asker.answer().is_ok().then_some(asker),
            None if knocks.swap(false, Ordering::Relaxed) => {
                door.accept().ok().and_then(|(socket, _)| Guest::welcome(socket).ok())
            }
            None => None,
        };
    }
}

struct Guest {
    socket: TcpStream,
    answer_bytes: usize,
    input: Vec<u8>,
    rest_bytes: usize,
    output: Vec<u8>,
    /// Bytes of `output` that are still to be sent.
    left_bytes: usize,
}

impl Guest {
    fn welcome(mut socket: TcpStream) -> std::io::Result<Guest> {
        socket.set_nonblocking(false)?;
        socket.set_nodelay(true)?;
        let mut word = [0; 8];
        socket.read_exact(&mut word)?;
        socket.set_nonblocking(true)?;
        let answer_bytes = u64::from_le_bytes(word) as usize;
        let output = vec![2; answer_bytes * 64];
        Ok(Guest { socket, answer_bytes, input: vec![0; QUESTION_BYTES * 64], rest_bytes: 0, output, left_bytes: 0 })
    }

    /// Reads the pending requests and answers them, in one or two system calls.
    fn answer(&mut self) -> std::io::Result<()> {
        if self.left_bytes == 0 {
            let count = match self.socket.read(&mut self.input) {
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Ok(count) => count,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error),
            };
            let bytes = self.rest_bytes + count;
            self.rest_bytes = bytes % QUESTION_BYTES;
            self.left_bytes = bytes / QUESTION_BYTES * self.answer_bytes;
        }
        // At most one answer of 32 KiB at a time, because the cache line waits meanwhile.
        let most = self.left_bytes.min((32 << 10).max(self.answer_bytes));
        match self.socket.write(&self.output[..most]) {
            Ok(count) => self.left_bytes -= count,
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
        Ok(())
    }
}
