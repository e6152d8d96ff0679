//! Messages without payload that wait to be sent. Each kind waits at most once, so the set needs no queue.

use crate::codec::Body;

/// Messages that wait, in the order in which they leave.
#[derive(Default)]
pub(crate) struct PendingMessages {
    pub(crate) abort: bool,
    /// Bytes of completed reads of which the peer has not been notified.
    pub(crate) read_completed: u32,
    pub(crate) send_sm: bool,
    pub(crate) source_cancel: bool,
    pub(crate) sink_cancel_ack: bool,
    pub(crate) receive_buffer: Option<u32>,
    pub(crate) receive_buffer_ack: Option<u32>,
    pub(crate) disconnect: bool,
}

impl PendingMessages {
    /// Returns the next message. A half close waits until `is_data_sent`, a withdrawal until the advertisement left.
    pub(crate) fn peek(&self, is_data_sent: bool, is_advertised: bool) -> Option<Body> {
        if self.abort {
            return Some(Body::AbortConn);
        }
        if self.read_completed > 0 {
            return Some(Body::RdmaRdCompl(self.read_completed));
        }
        if self.send_sm {
            return Some(Body::SendSm);
        }
        if self.source_cancel && is_advertised {
            return Some(Body::SrcAvailCancel);
        }
        if self.sink_cancel_ack {
            return Some(Body::SinkAvailCancelAck);
        }
        if let Some(bytes) = self.receive_buffer {
            return Some(Body::ChRcvBuf(bytes));
        }
        if let Some(bytes) = self.receive_buffer_ack {
            return Some(Body::ChRcvBufAck(bytes));
        }
        (self.disconnect && is_data_sent).then_some(Body::DisConn)
    }

    /// Removes a message that [`peek`](Self::peek) returned.
    pub(crate) fn remove(&mut self, body: Body) {
        match body {
            Body::AbortConn => self.abort = false,
            Body::RdmaRdCompl(_) => self.read_completed = 0,
            Body::SendSm => self.send_sm = false,
            Body::SrcAvailCancel => self.source_cancel = false,
            Body::SinkAvailCancelAck => self.sink_cancel_ack = false,
            Body::ChRcvBuf(_) => self.receive_buffer = None,
            Body::ChRcvBufAck(_) => self.receive_buffer_ack = None,
            Body::DisConn => self.disconnect = false,
            _ => unreachable!("only messages without payload wait here"),
        }
    }
}
