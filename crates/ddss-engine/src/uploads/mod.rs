//! Large puts: parts that the home stores, and one commit. `at_home.rs` extends the handler `Home`, `remote.rs` the handler
//! `Remote`.

pub(crate) mod at_home;
pub(crate) mod remote;
