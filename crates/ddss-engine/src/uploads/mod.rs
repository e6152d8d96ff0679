//! Large puts: parts that the home stores, and one commit. `memory.rs` is the handler of the parts' memory, `at_home.rs` extends
//! the handler `Home`, `remote.rs` the handler `Remote`.

pub(crate) mod at_home;
pub(crate) mod memory;
pub(crate) mod remote;
