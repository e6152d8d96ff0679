//! Start of a stream on the wire: one start frame in each direction, with the hello and its answer.

use std::io;
use std::net::TcpStream;
use std::time::Instant;

use ddss_sdp::{Addresses, Framing, Plan, Terms};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv, send};

use super::config::WireConfig;
use super::engine::Engine;
use super::error::refused;
use super::start::StartFrame;

/// Start of one end. It takes no byte behind the peer's start frame.
///
/// ```text
/// connecting: send request -> receive reply -> done
/// accepting:  receive request -> send reply -> done
/// ```
pub(super) struct Negotiation {
    config: WireConfig,
    is_acceptor: bool,
    outgoing: Vec<u8>,
    sent: usize,
    incoming: Vec<u8>,
    agreed: Option<(Terms, StartFrame)>,
    deadline: Instant,
}

/// Result of a step.
pub(super) enum Step {
    /// The peer has to move first.
    Wait,
    /// Both sides agree.
    Done(Engine),
}

impl Negotiation {
    /// Begins the start of the connecting side.
    pub(super) fn connect(tcp: &TcpStream, config: &WireConfig) -> io::Result<Self> {
        let (own, peer) = (tcp.local_addr()?, tcp.peer_addr()?);
        let addresses = Addresses { source: own.ip(), destination: peer.ip(), port: own.port() };
        let hello = ddss_sdp::connect(&config.stream, config.plan, addresses).map_err(refused)?;
        let outgoing = StartFrame::of(config, false, hello.to_vec()).encode();
        Ok(Self { outgoing, ..Self::accept(config, false) })
    }

    /// Begins the start of the accepting side, or of a side whose request is not known yet.
    pub(super) fn accept(config: &WireConfig, is_acceptor: bool) -> Self {
        Self {
            config: *config,
            is_acceptor,
            outgoing: Vec::new(),
            sent: 0,
            incoming: Vec::new(),
            agreed: None,
            deadline: Instant::now() + config.handshake_max,
        }
    }

    pub(super) fn wanted_plan(&self) -> Plan {
        self.config.plan
    }

    pub(super) fn deadline(&self) -> Instant {
        self.deadline
    }

    pub(super) fn has_unsent(&self) -> bool {
        self.sent < self.outgoing.len()
    }

    /// Sends and receives what is possible.
    pub(super) fn step(&mut self, tcp: &TcpStream) -> io::Result<Step> {
        loop {
            if !self.send(tcp)? {
                return self.wait();
            }
            if let Some((terms, peer)) = &self.agreed {
                return Ok(Step::Done(self.engine(terms, peer)?));
            }
            let Some(frame) = self.receive(tcp)? else { return self.wait() };
            let private = &frame.private;
            let terms = if self.is_acceptor {
                let (terms, answer) =
                    ddss_sdp::accept(&self.config.stream, self.config.plan, private).map_err(refused)?;
                self.outgoing = StartFrame::of(&self.config, true, answer.to_vec()).encode();
                terms
            } else {
                ddss_sdp::finish_connect(self.config.plan, private).map_err(refused)?
            };
            self.agreed = Some((terms, frame));
        }
    }

    fn wait(&self) -> io::Result<Step> {
        if Instant::now() < self.deadline {
            return Ok(Step::Wait);
        }
        Err(io::Error::new(
            io::ErrorKind::TimedOut,
            "the peer did not answer the hello in time: is it a stream on the wire?",
        ))
    }

    /// Returns true once everything was sent.
    fn send(&mut self, tcp: &TcpStream) -> io::Result<bool> {
        while self.has_unsent() {
            match send(tcp, &self.outgoing[self.sent..], SendFlags::DONTWAIT | SendFlags::NOSIGNAL) {
                Ok(bytes) => self.sent += bytes,
                Err(Errno::AGAIN) => return Ok(false),
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(true)
    }

    /// Returns the peer's start frame once it is there.
    fn receive(&mut self, tcp: &TcpStream) -> io::Result<Option<StartFrame>> {
        loop {
            let is_reply = !self.is_acceptor;
            let needed = StartFrame::bytes(&self.incoming, is_reply)?;
            let known = self.incoming.len();
            if known == needed {
                return StartFrame::decode(&self.incoming, is_reply).map(Some);
            }
            self.incoming.resize(needed, 0);
            let result = recv(tcp, &mut self.incoming[known..], RecvFlags::DONTWAIT);
            self.incoming.truncate(known + result.map_or(0, |(bytes, _)| bytes));
            match result {
                Ok((0, _)) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(_) | Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return Ok(None),
                Err(error) => return Err(error.into()),
            }
        }
    }

    fn engine(&self, terms: &Terms, peer: &StartFrame) -> io::Result<Engine> {
        let checksum =
            (self.config.checksums || peer.checksums).then_some(crc32c::crc32c_append as ddss_sdp::frame::Checksum);
        let outbound = Framing { markers: peer.markers, checksum };
        let inbound = Framing { markers: self.config.markers, checksum };
        Engine::new(&self.config.stream, self.config.batching, terms, outbound, inbound).map_err(refused)
    }
}
