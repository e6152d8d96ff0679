//! Large puts: parts that the home stores, and one commit. `memory.rs` is the handler of the parts' memory, `remote.rs` extends the
//! handler `Remote`; `home/upload_calls.rs` decides about them.

pub(crate) mod memory;
pub(crate) mod remote;
