//! Writes without a copy: the peer reads memory that the call has borrowed.

use std::io::{self, Write};
use std::net::{Shutdown, TcpStream};
use std::time::{Duration, Instant};

use ddss_sdp::limits::ADVERTISEMENT_MS;

use super::error::refused;
use super::state::{Lent, WireState, is_gone};
use super::stream::WireStream;
use crate::limits::{WIRE_ADVERTISED_MAX, WIRE_ZERO_COPY_MIN};

/// Memory that a call advertises.
struct SourceCall<'a> {
    memory: &'a [u8],
    is_advertised: bool,
    is_withdrawn: bool,
    /// Bytes that had left when the stream last looked.
    served: u64,
    withdraw_at: Instant,
}

impl WireStream {
    /// Writes all bytes; the peer reads large ones in place, out of the memory of this call. Returns the number of those.
    ///
    /// The plan of both sides has to be that of [`WireConfig::zero_copy`](super::WireConfig::zero_copy), and the peer has to wait in a read with
    /// at least 32 KiB of room. Otherwise, or if the peer reads nothing for a second, the bytes go through the buffers as with
    /// [`Write::write_all`].
    ///
    /// # Errors
    /// The stream is non-blocking, the connection is gone, or the write timeout has passed. After an error the stream is at its end: the
    /// peer may still hold an advertisement of memory that is no longer borrowed.
    ///
    /// ```
    /// use std::io::Read;
    /// use std::net::TcpListener;
    ///
    /// use ddss_stream::wire::{WireConfig, WireStream};
    ///
    /// let config = WireConfig::default().zero_copy();
    /// let listener = TcpListener::bind("127.0.0.1:0")?;
    /// let address = listener.local_addr()?;
    /// let other = std::thread::spawn(move || -> std::io::Result<Vec<u8>> {
    ///     let mut stream = WireStream::accept(listener.accept()?.0, &config)?;
    ///     let mut bytes = vec![0; 1 << 20];
    ///     stream.read_exact(&mut bytes)?;
    ///     Ok(bytes)
    /// });
    /// let stream = WireStream::connect(address, &config)?;
    /// let bytes = vec![7; 1 << 20];
    /// assert_eq!(stream.write_zero_copy(&bytes)?, bytes.len());
    /// assert_eq!(stream.ledger().send_copied, 0);
    /// assert_eq!(other.join().expect("the thread ends")?, bytes);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn write_zero_copy(&self, bytes: &[u8]) -> io::Result<usize> {
        let mut in_place = 0;
        while bytes.len() - in_place >= WIRE_ZERO_COPY_MIN {
            let rest = &bytes[in_place..];
            let memory = &rest[..rest.len().min(WIRE_ADVERTISED_MAX)];
            let read = self.advertise(memory)?;
            in_place += read;
            if read < memory.len() {
                break;
            }
        }
        (&*self).write_all(&bytes[in_place..])?;
        Ok(in_place)
    }

    /// Advertises memory and serves it until the peer has all of it, or wants the rest through the buffers. Returns what it has.
    fn advertise(&self, memory: &[u8]) -> io::Result<usize> {
        let mut call =
            SourceCall { memory, is_advertised: false, is_withdrawn: false, served: 0, withdraw_at: Instant::now() };
        let result = self.repeat(|state| state.write_max, |state, tcp| state.try_advertise(tcp, &mut call));
        if let Err(error) = &result
            && call.is_advertised
        {
            self.with(|state| state.fail(error));
            let _ = self.tcp.shutdown(Shutdown::Both);
        }
        result
    }
}

impl WireState {
    /// Moves an advertisement on. `None`: the peer has to move first.
    fn try_advertise(&mut self, tcp: &TcpStream, call: &mut SourceCall<'_>) -> io::Result<Option<usize>> {
        if self.is_nonblocking {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "a write without a copy waits for the peer: clear the non-blocking mode",
            ));
        }
        loop {
            let Some(engine) = self.open(tcp)? else { return Ok(None) };
            if !call.is_advertised {
                match engine.advertise(call.memory.len() as u32).map_err(refused)? {
                    None => return Ok(Some(0)),
                    Some(is_advertised) => call.is_advertised = is_advertised,
                }
                (call.served, call.withdraw_at) = (engine.served(), withdrawal());
            } else if let Some(outcome) = engine.take_outcome() {
                call.is_advertised = false;
                self.has_moved = true;
                return Ok(Some(outcome.sent as usize));
            }
            let engine = self.open(tcp)?;
            if let Some(engine) = engine
                && call.is_advertised
            {
                if engine.served() != call.served {
                    (call.served, call.withdraw_at) = (engine.served(), withdrawal());
                } else if !call.is_withdrawn && Instant::now() >= call.withdraw_at {
                    call.is_withdrawn = true;
                    engine.withdraw();
                }
            }
            if self.has_ended {
                return Err(io::ErrorKind::BrokenPipe.into());
            }
            let has_moved = match self.send(tcp, call.is_advertised.then_some(call.memory)) {
                Ok(has_sent) => self.receive(tcp, None)? || has_sent,
                // The peer is gone, and may have said before that it has everything.
                Err(error) if is_gone(&error) => {
                    while self.receive(tcp, None)? {}
                    self.has_ended = true;
                    true
                }
                Err(error) => return Err(error),
            };
            if !has_moved && !self.has_ended {
                let at = (!call.is_withdrawn).then_some(call.withdraw_at);
                self.lent = if call.is_advertised { Lent::Source(at) } else { Lent::Nothing };
                return Ok(None);
            }
        }
    }
}

/// Returns the time at which an advertisement without progress is withdrawn.
fn withdrawal() -> Instant {
    Instant::now() + Duration::from_millis(ADVERTISEMENT_MS)
}
