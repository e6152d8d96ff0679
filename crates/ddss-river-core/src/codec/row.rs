//! Bytes of a unit's row.

use super::error::MessageError;
use super::fields::{Reader, Writer};
use crate::limits::{RESULT_BYTES_MAX, UNIT_ROW_BYTES};
use crate::model::{UnitRow, UnitState, WorkerId};

/// Returns the bytes of a row, without its result.
#[must_use]
pub fn encode_row(row: &UnitRow) -> [u8; UNIT_ROW_BYTES] {
    let (state, worker) = match row.state {
        UnitState::Open => (0, WorkerId(0)),
        UnitState::Claimed(worker) => (1, worker),
        UnitState::Done(worker) => (2, worker),
        UnitState::Failed => (3, WorkerId(0)),
    };
    let mut bytes = Vec::with_capacity(UNIT_ROW_BYTES);
    let mut writer = Writer(&mut bytes);
    writer.byte(state);
    writer.byte(row.strikes);
    writer.half(row.claims);
    writer.word(worker.0);
    writer.half(row.result_bytes);
    bytes.resize(UNIT_ROW_BYTES, 0);
    let mut row = [0; UNIT_ROW_BYTES];
    row.copy_from_slice(&bytes);
    row
}

/// Reads a row. Its result follows.
///
/// # Errors
/// The first field that no member writes.
pub fn decode_row(bytes: &[u8]) -> Result<UnitRow, MessageError> {
    let mut reader = Reader(bytes);
    let (state, strikes, claims) = (reader.byte()?, reader.byte()?, reader.half()?);
    let (worker, result_bytes) = (WorkerId(reader.word()?), reader.half()?);
    reader.padding::<{ UNIT_ROW_BYTES - 10 }>()?;
    let state = match state {
        0 => UnitState::Open,
        1 => UnitState::Claimed(worker),
        2 => UnitState::Done(worker),
        3 => UnitState::Failed,
        other => return Err(MessageError::Field("unit state", other.into())),
    };
    if usize::from(result_bytes) > RESULT_BYTES_MAX {
        return Err(MessageError::Field("result bytes", result_bytes.into()));
    }
    Ok(UnitRow { state, claims, strikes, result_bytes })
}
