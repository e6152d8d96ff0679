//! The least that a neighbour notices of somebody who asks a node without end: a thread that does nothing but answer a cache line
//! and a socket, on the core on which the daemon is otherwise.

use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};

use rustix::thread::{CpuSet, sched_setaffinity};

/// What the socket's other end asks for.
#[derive(Clone, Copy)]
pub(crate) struct Asks {
    /// Its name in the rows.
    pub(crate) name: &'static str,
    /// Bytes of an answer.
    answer_bytes: usize,
    /// Questions that are under way.
    outstanding: usize,
}

/// As `lies::asks_without_end` and `lies::reads_without_end` do.
pub(crate) const ASKS: [Asks; 2] = [
    Asks { name: "bare::asks_without_end", answer_bytes: 64, outstanding: 64 },
    Asks { name: "bare::reads_without_end", answer_bytes: 32 << 10, outstanding: 16 },
];
const QUESTION_BYTES: usize = 64;

/// Odd: a question; even: an answer.
#[repr(align(128))]
struct Line(AtomicU64);

/// The thread that answers, and the line by which it is asked.
pub(crate) struct Hub {
    line: Arc<Line>,
    /// Somebody is at the door: it is looked at only then, since a look is a system call.
    knocks: Arc<AtomicBool>,
    over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
    listener: TcpListener,
}

impl Hub {
    /// Starts it on that core.
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
            // Where that fails the rows say so: they are worse.
            let _ = sched_setaffinity(None, &one);
            serve(&asked.0, &door, &knocked, &ends);
        });
        Ok(Hub { line, knocks, over, thread: Some(thread), listener })
    }

    /// A call of the neighbour.
    pub(crate) fn call(&self) {
        let question = self.line.0.load(Ordering::Relaxed) + 1;
        self.line.0.store(question, Ordering::Release);
        while self.line.0.load(Ordering::Acquire) == question {
            std::hint::spin_loop();
        }
    }

    /// Somebody asks by the socket until he is dropped.
    pub(crate) fn besiege(&self, asks: Asks) -> std::io::Result<Asker> {
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
        Ok(Asker { over, thread: Some(thread) })
    }
}

impl Drop for Hub {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        let _ended = self.thread.take().map(JoinHandle::join);
    }
}

/// Who asks by the socket.
pub(crate) struct Asker {
    over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Drop for Asker {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        let _ended = self.thread.take().map(JoinHandle::join);
    }
}

/// Looks at the line and at the socket in turn, and answers what it finds.
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
    /// How much of `output` is still to be sent.
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

    /// Takes what is there and answers it: a system call or two.
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
        // No more than one answer of 32 KiB in one go: the line waits as well.
        let most = self.left_bytes.min((32 << 10).max(self.answer_bytes));
        match self.socket.write(&self.output[..most]) {
            Ok(count) => self.left_bytes -= count,
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
        Ok(())
    }
}
