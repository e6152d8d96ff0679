//! Error codes of a terminate message: layer, type, code.

use std::fmt;

/// A protocol violation, in the terms of RFC 5040, 5041, 5044, 6581 and 7306.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct TerminateCode {
    /// Layer: 0 RDMAP, 1 DDP, 2 MPA.
    pub layer: u8,
    /// Type of error within the layer.
    pub kind: u8,
    /// Code within the type.
    pub code: u8,
}

macro_rules! faults {
    ($($(#[$doc:meta])* $name:ident = $layer:literal, $kind:literal, $code:literal, $text:literal;)*) => {
        impl TerminateCode {
            $($(#[$doc])* pub const $name: TerminateCode = TerminateCode { layer: $layer, kind: $kind, code: $code };)*

            /// Returns the text of a known code.
            #[must_use]
            pub fn text(self) -> Option<&'static str> {
                match (self.layer, self.kind, self.code) {
                    $(($layer, $kind, $code) => Some($text),)*
                    _ => None,
                }
            }
        }
    };
}

faults! {
    /// RDMAP: a local failure that the peer did not cause.
    RDMAP_CATASTROPHIC = 0, 0, 0x00, "local catastrophic error";
    /// RDMAP: unknown key.
    RDMAP_KEY = 0, 1, 0x00, "invalid key";
    /// RDMAP: outside the window.
    RDMAP_BOUNDS = 0, 1, 0x01, "base or bounds violation";
    /// RDMAP: the window does not allow the access.
    RDMAP_RIGHTS = 0, 1, 0x02, "access rights violation";
    /// RDMAP: the key belongs to another connection.
    RDMAP_KEY_STREAM = 0, 1, 0x03, "key not associated with this stream";
    /// RDMAP: the address wraps around.
    RDMAP_WRAP = 0, 1, 0x04, "address wraps";
    /// RDMAP: access violation; an adapter reports no detail.
    RDMAP_PROTECTION = 0, 1, 0xff, "protection error";
    /// RDMAP: the key cannot be invalidated.
    RDMAP_INVALIDATE = 0, 1, 0x09, "key cannot be invalidated";
    /// RDMAP: wrong version.
    RDMAP_VERSION = 0, 2, 0x05, "invalid rdmap version";
    /// RDMAP: an opcode that is unknown or out of place.
    RDMAP_OPCODE = 0, 2, 0x06, "unexpected opcode";
    /// RDMAP: the stream cannot continue.
    RDMAP_STREAM = 0, 2, 0x07, "catastrophic error, localized to the stream";
    /// RDMAP: an unaligned atomic, or another error without a code.
    RDMAP_UNSPECIFIED = 0, 2, 0xff, "unspecified error";
    /// DDP: a local failure that the peer did not cause.
    DDP_CATASTROPHIC = 1, 0, 0x00, "local catastrophic error";
    /// DDP, tagged: unknown key.
    DDP_KEY = 1, 1, 0x00, "invalid key";
    /// DDP, tagged: outside the window.
    DDP_BOUNDS = 1, 1, 0x01, "base or bounds violation";
    /// DDP, tagged: the key belongs to another connection.
    DDP_KEY_STREAM = 1, 1, 0x02, "key not associated with this stream";
    /// DDP, tagged: the address wraps around.
    DDP_WRAP = 1, 1, 0x03, "address wraps";
    /// DDP, tagged: wrong version.
    DDP_TAGGED_VERSION = 1, 1, 0x04, "invalid ddp version";
    /// DDP, untagged: unknown queue.
    DDP_QUEUE = 1, 2, 0x01, "invalid queue number";
    /// DDP, untagged: more messages than buffers.
    DDP_NO_BUFFER = 1, 2, 0x02, "no buffer available";
    /// DDP, untagged: message number out of order.
    DDP_SEQUENCE = 1, 2, 0x03, "message sequence number out of range";
    /// DDP, untagged: the offset does not continue the message.
    DDP_OFFSET = 1, 2, 0x04, "invalid message offset";
    /// DDP, untagged: longer than the buffer.
    DDP_TOO_LONG = 1, 2, 0x05, "message too long for the buffer";
    /// DDP, untagged: wrong version.
    DDP_UNTAGGED_VERSION = 1, 2, 0x06, "invalid ddp version";
    /// MPA: the connection is lost.
    MPA_LOST = 2, 0, 0x01, "connection lost";
    /// MPA: wrong checksum, or wrong tag of a sealed frame.
    MPA_CRC = 2, 0, 0x02, "crc or tag mismatch";
    /// MPA: a marker and a length that do not match, or a frame that is too short.
    MPA_FRAME = 2, 0, 0x03, "marker and length mismatch";
    /// MPA: invalid start frame.
    MPA_START = 2, 0, 0x04, "invalid start frame";
    /// MPA: fewer inbound reads than the other side needs.
    MPA_IRD = 2, 0, 0x06, "insufficient inbound reads";
    /// MPA: no common ready-to-receive message.
    MPA_RTR = 2, 0, 0x07, "no matching ready-to-receive option";
}

impl fmt::Display for TerminateCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let layer = match self.layer {
            0 => "rdmap",
            1 => "ddp",
            2 => "mpa",
            _ => "unknown layer",
        };
        let text = self.text().unwrap_or("unknown error");
        write!(f, "{layer}: {text} ({}/{}/{:#04x})", self.layer, self.kind, self.code)
    }
}

impl fmt::Debug for TerminateCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
