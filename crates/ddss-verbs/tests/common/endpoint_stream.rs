//! A stream of the Sockets Direct Protocol over one connection of a fabric: its engine, and an endpoint that carries its messages.

use std::io::{self, Read, Write};
use std::net::SocketAddr;

use ddss_sdp::{Addresses, BasicStream, CopyLedger, Plan, StreamConfig, accept, connect, finish_connect};
use ddss_verbs::{Capabilities, Fabric};

use super::{Endpoint, WAIT_MAX};

/// Private buffers of a stream.
const BUFFERS: u16 = 16;

/// A blocking stream. A message of the fabric is a message of the protocol.
pub(crate) struct EndpointStream<F: Fabric> {
    endpoint: Endpoint<F>,
    stream: BasicStream,
    /// Bytes of a message.
    message_bytes: usize,
}

/// An adapter bounds no sender: credits do.
fn settings(capabilities: &Capabilities) -> (StreamConfig, Plan) {
    let bytes = capabilities.message_bytes_max as u32;
    let config = StreamConfig {
        buffers: BUFFERS,
        buffer_bytes: bytes,
        buffer_bytes_max: bytes,
        no_delay: true,
        ..StreamConfig::default()
    };
    (config, Plan::basic())
}

impl<F: Fabric> EndpointStream<F> {
    /// Connects. The hello is the private data of the connection, or the first message where that is too short, as it is on RoCE.
    pub(crate) fn connect(fabric: F, address: SocketAddr) -> io::Result<Self> {
        let capabilities = fabric.capabilities();
        let (config, plan) = settings(&capabilities);
        let addresses = Addresses { source: address.ip(), destination: address.ip(), port: address.port() };
        let hello = connect(&config, plan, addresses).map_err(io::Error::other)?;
        let fits = hello.len() <= capabilities.hello_bytes_max;
        let private: &[u8] = if fits { &hello } else { b"" };
        let (mut endpoint, mut answer) =
            Endpoint::connect(fabric, address, private, WAIT_MAX).map_err(io::Error::other)?;
        if !fits {
            endpoint.send(&hello, WAIT_MAX).map_err(io::Error::other)?;
            answer = endpoint.receive(WAIT_MAX).map_err(io::Error::other)?;
        }
        let terms = finish_connect(plan, &answer).map_err(io::Error::other)?;
        let stream = BasicStream::new(&config, &terms).map_err(io::Error::other)?;
        Ok(Self { endpoint, stream, message_bytes: capabilities.message_bytes_max })
    }

    /// Accepts the first peer of a fabric that listens.
    pub(crate) fn accept(fabric: F) -> io::Result<Self> {
        let capabilities = fabric.capabilities();
        let (config, plan) = settings(&capabilities);
        let mut terms = None;
        let judge = |hello: &[u8]| -> Result<Vec<u8>, Vec<u8>> {
            if hello.is_empty() {
                return Ok(Vec::new());
            }
            let (found, answer) = accept(&config, plan, hello).map_err(|error| error.to_string().into_bytes())?;
            terms = Some(found);
            Ok(answer.to_vec())
        };
        let mut endpoint = Endpoint::accept(fabric, WAIT_MAX, judge).map_err(io::Error::other)?;
        let terms = match terms {
            Some(terms) => terms,
            None => {
                let hello = endpoint.receive(WAIT_MAX).map_err(io::Error::other)?;
                let (terms, answer) = accept(&config, plan, &hello).map_err(io::Error::other)?;
                endpoint.send(&answer, WAIT_MAX).map_err(io::Error::other)?;
                terms
            }
        };
        let stream = BasicStream::new(&config, &terms).map_err(io::Error::other)?;
        Ok(Self { endpoint, stream, message_bytes: capabilities.message_bytes_max })
    }

    /// Returns the bytes that this side can have on their way to a peer that sends as many back, without a read in between.
    pub(crate) fn window_bytes(&self) -> usize {
        usize::from(BUFFERS) / 2 * (self.message_bytes - 16)
    }

    /// Closes the direction of this side.
    pub(crate) fn shutdown(&mut self) -> io::Result<()> {
        self.stream.shutdown();
        self.send_all()
    }

    /// Waits until the peer has closed the connection.
    pub(crate) fn wait_closed(&mut self) {
        while self.receive_one().is_ok() {}
    }

    pub(crate) fn ledger(&self) -> CopyLedger {
        self.stream.ledger()
    }

    /// Sends every message that may leave now.
    fn send_all(&mut self) -> io::Result<()> {
        while let Some(message) = self.stream.next_message(0) {
            let message = [message.head(), message.payload].concat();
            self.endpoint.send(&message, WAIT_MAX).map_err(io::Error::other)?;
        }
        Ok(())
    }

    fn receive_one(&mut self) -> io::Result<()> {
        let message = self.endpoint.receive(WAIT_MAX).map_err(io::Error::other)?;
        let buffer = self.stream.receive_buffer().map_err(io::Error::other)?;
        buffer.get_mut(..message.len()).ok_or(io::ErrorKind::InvalidData)?.copy_from_slice(&message);
        self.stream.received(message.len()).map_err(io::Error::other)
    }
}

impl<F: Fabric> Read for EndpointStream<F> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        loop {
            let read = self.stream.read(out).map_err(io::Error::other)?;
            // A read gives credits back.
            self.send_all()?;
            match read {
                Some(bytes) => return Ok(bytes),
                None => self.receive_one()?,
            }
        }
    }
}

impl<F: Fabric> Write for EndpointStream<F> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        loop {
            let written = self.stream.write(bytes).map_err(io::Error::other)?;
            self.send_all()?;
            if written > 0 {
                return Ok(written);
            }
            self.receive_one()?;
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        self.send_all()
    }
}
