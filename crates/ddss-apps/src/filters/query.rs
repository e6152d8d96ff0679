//! Queries and answers as bytes.

use crate::Error;

/// Kind of a query: the parameters that travel in front of its units.
pub trait Query: Sized {
    /// Returns the parameters as bytes.
    fn to_bytes(&self) -> Vec<u8>;
    /// Reads the parameters, and refuses those that are out of range.
    fn from_bytes(bytes: &[u8]) -> Result<Self, Error>;
}

/// Splits bytes into `N` little-endian numbers and the rest.
pub(super) fn numbers<const N: usize>(bytes: &[u8]) -> Result<([u32; N], &[u8]), Error> {
    let too_short = || refused(format!("a unit of {} bytes", bytes.len()));
    let (head, rest) = bytes.split_at_checked(4 * N).ok_or_else(too_short)?;
    let mut numbers = [0; N];
    for (number, bytes) in numbers.iter_mut().zip(head.as_chunks().0) {
        *number = u32::from_le_bytes(*bytes);
    }
    Ok((numbers, rest))
}

/// Starts a body with numbers.
pub(super) fn start(body: &mut Vec<u8>, numbers: &[u32]) {
    body.clear();
    numbers.iter().for_each(|number| body.extend_from_slice(&number.to_le_bytes()));
}

/// Error of a query, a unit or a file that cannot be right.
pub(super) fn refused(answer: String) -> Error {
    Error::Protocol { server: "a filter", answer }
}
