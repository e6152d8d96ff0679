//! Transfers in both directions at the same time, by each way to move bytes: every byte arrives, and no end waits
//! forever.

use crate::Programs;
use crate::end::{End, FAULTS, MODES};

/// Bytes of each direction: many times the rings, so that both ends wait for space and for bytes.
const BYTES: u64 = 32 << 20;

/// Carries out `count` transfers. Returns a line with what was found.
pub(crate) fn run(programs: &Programs, count: u64, seed: u64) -> Result<String, String> {
    let mut bytes = 0;
    for number in 0..count {
        let ([mode, faults], seed) = ([number % MODES, number / MODES % FAULTS], seed << 32 | number);
        let of_mode = |error| format!("transfer {number}, mode {mode}, faults {faults}: {error}");
        let mut acceptor = End::start(programs, "accept", "0", [mode, faults], seed, BYTES)?;
        let port = acceptor.line("PORT").map_err(of_mode)?;
        let mut connector = End::start(programs, "connect", &port, [mode, faults], seed, BYTES)?;
        let ends = [acceptor.finish().map_err(of_mode)?, connector.finish().map_err(of_mode)?];
        let written = [connector.written(), acceptor.written()];
        if ends.map(|end| end.received) != written || !ends.iter().all(|end| end.is_shared) {
            return Err(of_mode(format!("{ends:?} of {written:?}")));
        }
        bytes += written[0] + written[1];
    }
    Ok(format!("transfers={count} bytes={bytes}"))
}
