//! Handshake of a connection: the start frames and the ready-to-receive message.

use std::net::SocketAddr;
use std::sync::Arc;

use super::context::{ConnectionError, Context, PeerRequest};
use super::{Connection, Stage};
use crate::events::CloseReason;
use crate::id::PeerId;
use crate::iwarp::config::{IwarpConfig, Revision};
use crate::iwarp::mpa::{NegotiatedTerms, ReadyMessage, StartError, StartFrame, StartKind};
use crate::iwarp::send_queue::Integrity;
use crate::limits::HELLO_BYTES_MAX;
use crate::memory::RegionTable;
use crate::sealing::Sealing;
use crate::terminate_code::TerminateCode;

impl Connection {
    /// Creates the connecting side, with its request in the send queue.
    pub(crate) fn connecting(
        id: PeerId,
        address: SocketAddr,
        config: Arc<IwarpConfig>,
        seed: u32,
        hello: &[u8],
        is_sealed: bool,
    ) -> Self {
        let config = if is_sealed { sealed_config(&config) } else { config };
        let mut connection = Self::new(id, address, Stage::AwaitReply, config, seed);
        connection.is_sealed = is_sealed;
        let mut frame = Vec::new();
        NegotiatedTerms::request(&connection.config, hello).encode(StartKind::Request, &mut frame);
        connection.send_queue.append_raw(&frame);
        connection
    }

    /// Creates the accepting side.
    pub(crate) fn accepting(id: PeerId, address: SocketAddr, config: Arc<IwarpConfig>, seed: u32) -> Self {
        Self::new(id, address, Stage::AwaitRequest, config, seed)
    }

    /// Accepts the peer's request. False if there is none.
    pub(crate) fn accept(&mut self, hello: &[u8]) -> Result<bool, TerminateCode> {
        if self.stage != Stage::AwaitAccept {
            return Ok(false);
        }
        let Some(asked) = self.peer_request else { return Ok(false) };
        let start = StartFrame {
            markers: asked.markers,
            crc: asked.crc,
            reject: false,
            revision: asked.revision,
            enhanced: asked.enhanced,
            private: &[],
        };
        if self.sealing.is_some() {
            self.config = sealed_config(&self.config);
        }
        let (reply, terms) = NegotiatedTerms::negotiate(&self.config, &start, hello)?;
        if self.sealing.is_some() {
            check_sealed_terms(&terms)?;
        }
        let mut frame = Vec::new();
        reply.encode(StartKind::Reply, &mut frame);
        self.send_queue.append_raw(&frame);
        let integrity = match self.sealing.take() {
            Some(sealing) => self.begin_sealed(sealing),
            None => Integrity::of_crc(terms.crc),
        };
        self.send_queue.begin(integrity, terms.markers_out);
        self.terms = terms;
        self.stage = Stage::AwaitFirstFrame;
        // Without a ready-to-receive message nothing shows when the peer is connected, so it counts as connected now.
        self.has_unreported_connect = terms.ready.is_none();
        Ok(true)
    }

    /// Seals the connection: an accepting side before it accepts, a connecting one after the reply. False in another stage.
    pub(crate) fn seal(&mut self, sealing: Sealing, memory: &RegionTable) -> bool {
        match self.stage {
            Stage::AwaitAccept => self.sealing = Some(sealing),
            Stage::AwaitKeys => {
                let integrity = self.begin_sealed(sealing);
                self.send_queue.begin(integrity, false);
                self.stage = Stage::Open;
                self.connected = true;
                self.send_ready(memory);
            }
            _ => return false,
        }
        true
    }

    fn begin_sealed(&mut self, Sealing { seal, open }: Sealing) -> Integrity {
        self.is_sealed = true;
        self.arriving.open = Some(open);
        Integrity::Sealed(seal)
    }

    /// Rejects the peer's request; the caller then closes the connection. False if there is no request.
    pub(crate) fn reject(&mut self, reason: &[u8]) -> bool {
        if self.stage != Stage::AwaitAccept {
            return false;
        }
        let Some(asked) = self.peer_request.take() else { return false };
        self.encode_reject(asked.revision, reason);
        true
    }

    fn encode_reject(&mut self, revision: u8, reason: &[u8]) {
        let mut frame = Vec::new();
        NegotiatedTerms::reject(revision, reason).encode(StartKind::Reply, &mut frame);
        self.send_queue.append_raw(&frame);
    }

    /// Processes the request, on the accepting side. Returns the bytes used.
    pub(super) fn receive_request(
        &mut self,
        bytes: &[u8],
        cx: &mut Context<'_>,
    ) -> Result<Option<usize>, ConnectionError> {
        let (start, used) = match StartFrame::parse(bytes, StartKind::Request) {
            Ok(Some(whole)) => whole,
            Ok(None) => return Ok(None),
            Err(error) => {
                // A peer with the right key gets an answer; a foreign protocol does not.
                if error != StartError::Key {
                    self.encode_reject(2, b"");
                }
                return Err(ConnectionError::Close(CloseReason::ProtocolViolation(TerminateCode::MPA_START)));
            }
        };
        if start.private.len() > HELLO_BYTES_MAX {
            self.encode_reject(start.revision, b"");
            return Err(ConnectionError::Close(CloseReason::ProtocolViolation(TerminateCode::MPA_START)));
        }
        let StartFrame { markers, crc, revision, enhanced, .. } = start;
        self.peer_request = Some(PeerRequest { markers, crc, revision, enhanced });
        self.stage = Stage::AwaitAccept;
        cx.events.push_connect_request(self.id, self.address, start.private);
        Ok(Some(used))
    }

    /// Processes the reply, on the connecting side. Returns the bytes used.
    pub(super) fn receive_reply(
        &mut self,
        bytes: &[u8],
        cx: &mut Context<'_>,
    ) -> Result<Option<usize>, ConnectionError> {
        let start = StartFrame::parse(bytes, StartKind::Reply);
        let Some((start, used)) =
            start.map_err(|_| ConnectionError::Close(CloseReason::ProtocolViolation(TerminateCode::MPA_START)))?
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
            return Err(ConnectionError::Close(CloseReason::ProtocolViolation(TerminateCode::MPA_START)));
        }
        let agreed = NegotiatedTerms::from_reply(&self.config, &start);
        if self.is_sealed {
            self.terms = agreed?;
            check_sealed_terms(&self.terms)?;
            self.stage = Stage::AwaitKeys;
            cx.events.push_connected(self.id, start.private);
            return Ok(Some(used));
        }
        self.send_queue.begin(Integrity::of_crc(self.config.crc || start.crc), start.markers);
        self.stage = Stage::Open;
        self.terms = agreed?;
        self.connected = true;
        self.send_ready(cx.memory);
        cx.events.push_connected(self.id, start.private);
        Ok(Some(used))
    }

    /// Sends the ready-to-receive message, an operation of length zero, when both sides may send first.
    fn send_ready(&mut self, memory: &RegionTable) {
        match self.terms.ready {
            Some(ReadyMessage::Write) => self.send_empty_write(memory),
            Some(ReadyMessage::Read) => self.send_empty_read(memory),
            Some(ReadyMessage::Send) | None => {}
        }
    }

    /// Processes the first frame on the accepting side, which may send from now on. The owner receives *connected*
    /// before the content of the frame.
    pub(super) fn receive_first_frame(&mut self, cx: &mut Context<'_>) {
        self.stage = Stage::Open;
        self.report_connected(cx);
    }

    /// Reports *connected* to the owner of the accepting side, once.
    pub(super) fn report_connected(&mut self, cx: &mut Context<'_>) {
        self.has_unreported_connect = false;
        if !self.connected {
            self.connected = true;
            cx.events.push_connected(self.id, &[]);
        }
    }
}

/// Returns the configuration of a sealed connection: tags replace the CRC, and both sides may send first.
fn sealed_config(config: &IwarpConfig) -> Arc<IwarpConfig> {
    Arc::new(IwarpConfig { crc: false, markers: false, revision: Revision::Two, ..config.clone() })
}

/// Checks what both sides agreed on for a sealed connection. Its first frame proves the key of the connecting side.
fn check_sealed_terms(terms: &NegotiatedTerms) -> Result<(), TerminateCode> {
    if terms.crc || terms.markers_out {
        return Err(TerminateCode::MPA_START);
    }
    terms.ready.map(|_| ()).ok_or(TerminateCode::MPA_RTR)
}
