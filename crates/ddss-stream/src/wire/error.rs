//! Errors of the protocol as errors of a stream.

use std::io;

use ddss_sdp::SdpError;

/// Returns the error that the program sees.
pub(super) fn refused(error: SdpError) -> io::Error {
    let kind = match error {
        SdpError::Reset => io::ErrorKind::ConnectionReset,
        SdpError::WriteClosed => io::ErrorKind::BrokenPipe,
        _ => io::ErrorKind::InvalidData,
    };
    io::Error::new(kind, error)
}
