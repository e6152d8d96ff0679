//! Reads from the memory of a peer: one advertisement at a time in each direction (combined mode).
//!
//! ```text
//! sender    none → queued → sent → completed (RdmaRdCompl for all bytes) | refused (SendSm) → none
//! receiver  none → offered (SrcAvail) → reading → offered (RdmaRdCompl) … → none
//!           offered → none (SendSm: declined, or withdrawn by SrcAvailCancel)
//! ```
//!
//! If the advertisements of both sides cross, each side that notices withdraws its own.

use crate::codec::Advertisement;
use crate::engine::pending::PendingMessages;
use crate::error::SdpError;

/// Advertised memory of the peer that has not been read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Source {
    /// Bytes that can still be read.
    pub len: u32,
    /// Key of the memory.
    pub rkey: u32,
    /// Address of the first byte that can still be read.
    pub vaddr: u64,
}

/// Result of an advertisement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ZeroCopyOutcome {
    /// Bytes that the peer has, those in the message included.
    pub sent: u32,
    /// Bytes at the end that have to be written through the buffers.
    pub rest: u32,
}

/// Memory that this side advertised.
#[derive(Clone, Copy)]
struct Advertised {
    len: u32,
    sent: u32,
    /// Number of the message once it left.
    mseq: Option<u32>,
    is_refused: bool,
}

/// Memory that the peer advertised.
#[derive(Clone, Copy)]
struct Offered {
    source: Source,
    /// Bytes that the caller reads now.
    reading: u32,
    is_withdrawn: bool,
}

/// Advertisements of both directions.
#[derive(Default)]
pub(crate) struct ZeroCopy {
    ours: Option<Advertised>,
    theirs: Option<Offered>,
}

impl ZeroCopy {
    /// Returns true if data of this side has to wait for an advertisement of this side.
    pub(crate) fn blocks_data(&self) -> bool {
        self.ours.is_some()
    }

    /// Returns true if the peer's advertisement left no room for data of the peer.
    pub(crate) fn forbids_data(&self) -> bool {
        self.theirs.is_some()
    }

    /// Returns true if the advertisement of this side has left.
    pub(crate) fn is_advertised(&self) -> bool {
        self.ours.is_some_and(|ours| ours.mseq.is_some())
    }

    pub(crate) fn advertise(&mut self, len: u32, inline: u32) {
        self.ours = Some(Advertised { len, sent: inline, mseq: None, is_refused: false });
    }

    pub(crate) fn advertised(&mut self, mseq: u32) {
        if let Some(ours) = &mut self.ours {
            ours.mseq = Some(mseq);
        }
    }

    /// Takes the result of the advertisement of this side, once there is one.
    pub(crate) fn take_outcome(&mut self, pending: &mut PendingMessages) -> Option<ZeroCopyOutcome> {
        let ours = self.ours?;
        if !ours.is_refused && ours.sent < ours.len {
            return None;
        }
        self.ours = None;
        pending.source_cancel = false;
        Some(ZeroCopyOutcome { sent: ours.sent, rest: ours.len - ours.sent })
    }

    /// Handles SendSm. A refusal of an earlier advertisement has no effect.
    pub(crate) fn refused(&mut self, mseq_ack: u32) {
        if let Some(ours) = &mut self.ours
            && ours.is_covered_by(mseq_ack)
        {
            ours.is_refused = true;
        }
    }

    /// Handles RdmaRdCompl. A completion of an earlier advertisement has no effect.
    pub(crate) fn completed(&mut self, bytes: u32, mseq_ack: u32) -> Result<(), SdpError> {
        let Some(ours) = &mut self.ours else { return Ok(()) };
        if ours.is_covered_by(mseq_ack) {
            if bytes > ours.len - ours.sent || ours.is_refused {
                return Err(SdpError::AdvertisedBytes(bytes));
            }
            ours.sent += bytes;
        }
        Ok(())
    }

    /// Handles SrcAvail with `inline` bytes behind it.
    pub(crate) fn offered(
        &mut self,
        memory: Advertisement,
        inline: u32,
        pending: &mut PendingMessages,
    ) -> Result<(), SdpError> {
        if memory.len == 0 || inline > memory.len || memory.vaddr.checked_add(u64::from(memory.len)).is_none() {
            return Err(SdpError::AdvertisedBytes(memory.len));
        }
        // The advertisements cross, and this side has noticed.
        pending.source_cancel |= self.ours.is_some();
        if inline < memory.len {
            let vaddr = memory.vaddr + u64::from(inline);
            let source = Source { len: memory.len - inline, rkey: memory.rkey, vaddr };
            self.theirs = Some(Offered { source, reading: 0, is_withdrawn: false });
        }
        Ok(())
    }

    /// Handles SrcAvailCancel. A read in progress is completed first.
    pub(crate) fn withdrawn(&mut self, pending: &mut PendingMessages) {
        if let Some(theirs) = &mut self.theirs {
            theirs.is_withdrawn = true;
            self.decline(pending);
        }
    }

    /// Returns the memory that can be read. `None` while a read is in progress.
    pub(crate) fn source(&self) -> Option<Source> {
        self.theirs.filter(|theirs| theirs.reading == 0).map(|theirs| theirs.source)
    }

    /// Begins to read the first `bytes` of the source.
    pub(crate) fn begin_read(&mut self, bytes: u32) -> Result<Source, SdpError> {
        match &mut self.theirs {
            Some(theirs) if theirs.reading == 0 && bytes > 0 && bytes <= theirs.source.len => {
                theirs.reading = bytes;
                Ok(Source { len: bytes, ..theirs.source })
            }
            _ => Err(SdpError::NoSource(bytes)),
        }
    }

    /// Ends the read in progress. `bytes` are in local memory, from the first one on.
    pub(crate) fn end_read(&mut self, bytes: u32, pending: &mut PendingMessages) -> Result<(), SdpError> {
        let Some(theirs) = self.theirs.as_mut().filter(|theirs| theirs.reading > 0 && bytes <= theirs.reading) else {
            return Err(SdpError::NoSource(bytes));
        };
        let is_short = bytes < theirs.reading;
        theirs.reading = 0;
        theirs.source.len -= bytes;
        theirs.source.vaddr += u64::from(bytes);
        pending.read_completed += bytes;
        if theirs.source.len == 0 {
            self.theirs = None;
        } else if is_short || theirs.is_withdrawn {
            self.decline(pending);
        }
        Ok(())
    }

    /// Requests the rest of the source through the buffers, unless a read is in progress.
    pub(crate) fn decline(&mut self, pending: &mut PendingMessages) {
        if self.source().is_some() {
            self.theirs = None;
            pending.send_sm = true;
        }
    }
}

impl Advertised {
    fn is_covered_by(&self, mseq_ack: u32) -> bool {
        // Message numbers wrap around: the distance decides.
        self.mseq.is_some_and(|mseq| mseq_ack.wrapping_sub(mseq) < 1 << 31)
    }
}
