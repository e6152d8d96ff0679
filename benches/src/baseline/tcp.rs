//! Plain sockets: the minimal round trip between two nodes.
//!
//! A request has 8 bytes, a reply the requested number. With many outstanding, one system call sends all requests, and
//! the service answers all that it has read in one: the minimum for sockets.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::time::Duration;

use rustix::net::sockopt::set_tcp_congestion;

use crate::harness::VethPair;
use crate::harness::{Cores, Figure, RoundTrip, Service, Spinner, Turn};

/// Bytes of one request.
pub(super) const QUESTION_BYTES: usize = 8;
/// Maximum number of requests that the service reads in one system call.
const QUESTIONS_MAX: usize = 512;
/// Polls of the service in one turn.
const LOOKS_PER_TURN: u32 = 64;

/// Time limit of a blocking client.
const ANSWER_MAX: Duration = Duration::from_secs(20);

/// How both sides wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wait {
    /// Polls the socket.
    Spin,
    /// Blocks in the kernel.
    Block,
}

impl Wait {
    fn word(self) -> &'static str {
        match self {
            Wait::Spin => "spin",
            Wait::Block => "block",
        }
    }
}

struct PingPong {
    client: TcpStream,
    questions: Vec<u8>,
    answers: Vec<u8>,
    service: Service,
    wait: Wait,
    yields: bool,
}

/// Path of the bytes.
#[derive(Debug, Clone, Copy)]
pub enum Over<'a> {
    /// Loopback.
    Loopback,
    /// A cable between two namespaces.
    Cable(&'a VethPair),
}

impl Over<'_> {
    fn path(self) -> &'static str {
        match self {
            Over::Loopback => "tcp-lo",
            Over::Cable(_) => "tcp-veth",
        }
    }

    /// Connects, and returns the client's end and the server's.
    fn ends(self) -> io::Result<(TcpStream, TcpStream)> {
        let listen = |ip| TcpListener::bind((ip, 0));
        let (listener, client) = match self {
            Over::Loopback => {
                let listener = listen(IpAddr::V4(Ipv4Addr::LOCALHOST))?;
                let client = TcpStream::connect(listener.local_addr()?)?;
                (listener, client)
            }
            Over::Cable(cable) => {
                let listener = cable.at(2, || listen(cable.address(2)))?;
                let address = listener.local_addr()?;
                (listener, cable.at(1, || TcpStream::connect(address))?)
            }
        };
        Ok((client, listener.accept()?.0))
    }
}

/// Over loopback: requests of 8 bytes and replies of `size_bytes`, `outstanding` at a time.
pub fn tcp_ping_pong(cores: Cores, wait: Wait, size_bytes: usize, outstanding: usize) -> Figure {
    tcp_ping_pong_over(Over::Loopback, cores, wait, size_bytes, outstanding)
}

/// Requests of 8 bytes and replies of `size_bytes`, `outstanding` at a time.
pub fn tcp_ping_pong_over(over: Over<'_>, cores: Cores, wait: Wait, size_bytes: usize, outstanding: usize) -> Figure {
    assert!(outstanding <= QUESTIONS_MAX, "{outstanding} questions are more than the service takes");
    let (client, server) = connected(over, wait).expect("both ends are there");
    let yields = cores.is_shared();
    let mut answerer = Answerer::new(server, size_bytes, outstanding, yields);
    let service = Service::start(cores, move || answerer.turn());
    let questions = vec![1; QUESTION_BYTES * outstanding];
    let answers = vec![0; size_bytes * outstanding];
    let trip = PingPong { client, questions, answers, service, wait, yields };
    Figure::new("raw", "pingpong", size_bytes, format!("{}/{}/t1", over.path(), wait.word()), trip)
        .outstanding(outstanding)
}

impl RoundTrip for PingPong {
    fn once(&mut self) {
        write_all(&self.client, &self.questions, self.yields).expect("the service is there");
        let mut have = 0;
        let mut spinner = Spinner::new(self.yields);
        while have < self.answers.len() {
            match (&self.client).read(&mut self.answers[have..]) {
                Ok(0) => panic!("the service closed the connection"),
                Ok(count) => have += count,
                Err(error) if error.kind() == ErrorKind::WouldBlock && self.wait == Wait::Spin => spinner.again(),
                Err(error) => panic!("reading an answer: {error}"),
            }
        }
    }

    fn operations(&self) -> u64 {
        (self.questions.len() / QUESTION_BYTES) as u64
    }

    fn wake(&mut self) {
        self.service.wake();
    }

    fn rest(&mut self) {
        // A blocking thread is off its core already, and would see this only with the next request.
        if self.wait == Wait::Spin {
            self.service.rest();
        }
    }
}

impl Drop for PingPong {
    fn drop(&mut self) {
        // Ends the service, which may be blocked in the kernel. An error means that the socket is already closed.
        drop(self.client.shutdown(Shutdown::Both));
    }
}

/// The side of the service.
pub(super) struct Answerer {
    socket: TcpStream,
    input: Vec<u8>,
    /// Bytes of an incomplete request.
    rest_bytes: usize,
    answers: Vec<u8>,
    size_bytes: usize,
    yields: bool,
}

impl Answerer {
    pub(super) fn new(socket: TcpStream, size_bytes: usize, outstanding: usize, yields: bool) -> Answerer {
        let input = vec![0; QUESTION_BYTES * QUESTIONS_MAX];
        Answerer { socket, input, rest_bytes: 0, answers: vec![2; size_bytes * outstanding], size_bytes, yields }
    }

    pub(super) fn turn(&mut self) -> Turn {
        for _ in 0..LOOKS_PER_TURN {
            match self.socket.read(&mut self.input) {
                Ok(0) => return Turn::Over,
                Ok(count) => {
                    let bytes = self.rest_bytes + count;
                    self.rest_bytes = bytes % QUESTION_BYTES;
                    // The client never has more requests outstanding, because it waits for all replies before it sends
                    // again.
                    let answers = &self.answers[..bytes / QUESTION_BYTES * self.size_bytes];
                    if write_all(&self.socket, answers, self.yields).is_err() {
                        return Turn::Over;
                    }
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    if self.yields {
                        std::thread::yield_now();
                    }
                }
                Err(_) => return Turn::Over,
            }
        }
        Turn::Again
    }
}

struct Stream {
    client: TcpStream,
    block: Vec<u8>,
    service: Service,
    yields: bool,
}

/// Blocks of `size_bytes` one way, without replies.
pub fn tcp_stream(cores: Cores, size_bytes: usize) -> Figure {
    let (client, mut server) = connected(Over::Loopback, Wait::Spin).expect("loopback connects");
    let yields = cores.is_shared();
    let mut input = vec![0; size_bytes.max(1 << 20)];
    let service = Service::start(cores, move || {
        match server.read(&mut input) {
            Ok(0) => return Turn::Over,
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::WouldBlock && yields => std::thread::yield_now(),
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            Err(_) => return Turn::Over,
        }
        Turn::Again
    });
    let trip = Stream { client, block: vec![3; size_bytes], service, yields };
    Figure::new("raw", "stream", size_bytes, "tcp-lo/spin/t1", trip)
}

impl RoundTrip for Stream {
    fn once(&mut self) {
        write_all(&self.client, &self.block, self.yields).expect("the service is there");
    }

    fn wake(&mut self) {
        self.service.wake();
    }

    fn rest(&mut self) {
        self.service.rest();
    }
}

/// Returns the two ends of a connection without Nagle's delay.
pub(super) fn connected(over: Over<'_>, wait: Wait) -> io::Result<(TcpStream, TcpStream)> {
    let (client, server) = over.ends()?;
    for socket in [&client, &server] {
        socket.set_nodelay(true)?;
        socket.set_nonblocking(wait == Wait::Spin)?;
        // bbr, the default on many servers, paces its output: a third of the rate for large replies here. The fabric
        // uses reno, too. Without either of these the default stays.
        let _unpaced = ["reno", "cubic"].iter().any(|name| set_tcp_congestion(socket, name).is_ok());
    }
    client.set_read_timeout(Some(ANSWER_MAX))?;
    Ok((client, server))
}

pub(super) fn write_all(mut socket: &TcpStream, mut bytes: &[u8], yields: bool) -> io::Result<()> {
    let mut spinner = Spinner::new(yields);
    while !bytes.is_empty() {
        match socket.write(bytes) {
            Ok(count) => bytes = &bytes[count..],
            Err(error) if error.kind() == ErrorKind::WouldBlock => spinner.again(),
            Err(error) => return Err(error),
        }
    }
    Ok(())
}
