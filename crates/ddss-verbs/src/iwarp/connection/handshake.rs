//! Handshake of a connection: the start frames and the ready-to-receive message.

use std::net::SocketAddr;
use std::sync::Arc;

use ddss_core::limits::HELLO_BYTES_MAX;

use super::{Connection, ConnectionError, Context, Stage};
use crate::events::CloseReason;
use crate::fabric::PeerId;
use crate::iwarp::config::IwarpConfig;
use crate::iwarp::mpa::{Enhanced, NegotiatedTerms, Ready, Side, Start, StartError};
use crate::terminate_code::TerminateCode;

/// The peer's request, until the owner has answered.
#[derive(Clone, Copy, Debug)]
pub(super) struct PeerRequest {
    markers: bool,
    crc: bool,
    revision: u8,
    enhanced: Option<Enhanced>,
}

impl Connection {
    /// Creates the connecting side, with its request in the send queue.
    pub(crate) fn connecting(
        id: PeerId,
        address: SocketAddr,
        config: Arc<IwarpConfig>,
        seed: u32,
        hello: &[u8],
    ) -> Self {
        let mut connection = Self::new(id, address, Stage::Reply, config, seed);
        let mut frame = Vec::new();
        NegotiatedTerms::request(&connection.config, hello).encode(Side::Request, &mut frame);
        connection.outbox.raw(&frame);
        connection
    }

    /// Creates the accepting side.
    pub(crate) fn accepting(id: PeerId, address: SocketAddr, config: Arc<IwarpConfig>, seed: u32) -> Self {
        Self::new(id, address, Stage::Request, config, seed)
    }

    /// Accepts the peer's request. False if there is none.
    pub(crate) fn accept(&mut self, hello: &[u8]) -> Result<bool, TerminateCode> {
        if self.stage != Stage::Asked {
            return Ok(false);
        }
        let Some(asked) = self.asked else { return Ok(false) };
        let start = Start {
            markers: asked.markers,
            crc: asked.crc,
            reject: false,
            revision: asked.revision,
            enhanced: asked.enhanced,
            private: &[],
        };
        let (reply, terms) = NegotiatedTerms::answer(&self.config, &start, hello)?;
        let mut frame = Vec::new();
        reply.encode(Side::Reply, &mut frame);
        self.outbox.raw(&frame);
        self.outbox.begin(terms.crc, terms.markers_out);
        self.terms = terms;
        self.stage = Stage::First;
        // Without a ready-to-receive message nothing tells when the peer is there, so it counts as connected now.
        self.announce = terms.ready.is_none();
        Ok(true)
    }

    /// Rejects the peer's request; the caller then closes the connection. False if there is no request.
    pub(crate) fn reject(&mut self, reason: &[u8]) -> bool {
        if self.stage != Stage::Asked {
            return false;
        }
        let Some(asked) = self.asked.take() else { return false };
        self.refuse(asked.revision, reason);
        true
    }

    fn refuse(&mut self, revision: u8, reason: &[u8]) {
        let mut frame = Vec::new();
        NegotiatedTerms::refusal(revision, reason).encode(Side::Reply, &mut frame);
        self.outbox.raw(&frame);
    }

    /// Processes the request, on the accepting side. Returns the bytes used.
    pub(super) fn receive_request(
        &mut self,
        bytes: &[u8],
        cx: &mut Context<'_>,
    ) -> Result<Option<usize>, ConnectionError> {
        let (start, used) = match Start::parse(bytes, Side::Request) {
            Ok(Some(whole)) => whole,
            Ok(None) => return Ok(None),
            Err(error) => {
                // A peer with the right key gets an answer; a foreign protocol does not.
                if error != StartError::Key {
                    self.refuse(2, b"");
                }
                return Err(ConnectionError::Close(CloseReason::Broken(TerminateCode::MPA_START)));
            }
        };
        if start.private.len() > HELLO_BYTES_MAX {
            self.refuse(start.revision, b"");
            return Err(ConnectionError::Close(CloseReason::Broken(TerminateCode::MPA_START)));
        }
        let Start { markers, crc, revision, enhanced, .. } = start;
        self.asked = Some(PeerRequest { markers, crc, revision, enhanced });
        self.stage = Stage::Asked;
        cx.events.asked(self.id, self.address, start.private);
        Ok(Some(used))
    }

    /// Processes the reply, on the connecting side. Returns the bytes used.
    pub(super) fn receive_reply(
        &mut self,
        bytes: &[u8],
        cx: &mut Context<'_>,
    ) -> Result<Option<usize>, ConnectionError> {
        let start = Start::parse(bytes, Side::Reply);
        let Some((start, used)) =
            start.map_err(|_| ConnectionError::Close(CloseReason::Broken(TerminateCode::MPA_START)))?
        else {
            return Ok(None);
        };
        if start.reject {
            let reason = &start.private[..start.private.len().min(HELLO_BYTES_MAX)];
            self.end(CloseReason::Rejected, reason, false, None, cx);
            return Ok(Some(used));
        }
        let asked = NegotiatedTerms::request(&self.config, &[]);
        if start.private.len() > HELLO_BYTES_MAX || start.revision > asked.revision {
            return Err(ConnectionError::Close(CloseReason::Broken(TerminateCode::MPA_START)));
        }
        let agreed = NegotiatedTerms::agreed(&self.config, &start);
        self.outbox.begin(self.config.crc || start.crc, start.markers);
        self.stage = Stage::Open;
        self.terms = agreed?;
        self.connected = true;
        self.say_ready(cx);
        cx.events.connected(self.id, start.private);
        Ok(Some(used))
    }

    /// Sends the ready-to-receive message, an operation of length zero, when both sides may send first.
    fn say_ready(&mut self, cx: &mut Context<'_>) {
        match self.terms.ready {
            Some(Ready::Write) => self.send_empty_write(cx),
            Some(Ready::Read) => self.send_empty_read(cx),
            Some(Ready::Send) | None => {}
        }
    }

    /// Processes the first frame on the accepting side, which may send from now on. The owner receives *connected*
    /// before the content of the frame.
    pub(super) fn first_frame(&mut self, cx: &mut Context<'_>) {
        self.stage = Stage::Open;
        self.tell_connected(cx);
    }

    /// Reports *connected* to the owner of the accepting side, once.
    pub(super) fn tell_connected(&mut self, cx: &mut Context<'_>) {
        self.announce = false;
        if !self.connected {
            self.connected = true;
            cx.events.connected(self.id, &[]);
        }
    }
}
