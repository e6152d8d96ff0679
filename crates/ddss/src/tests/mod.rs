//! Tests of the calls, blocking and asynchronous. The files of `api` are compiled twice, and hold none.

mod batch;
mod break_lock;
mod many_names;
mod maps;
mod metadata;
#[cfg(feature = "postcard")]
mod postcard_value;
mod row_lock;
mod segment;
mod table;
mod transfers;
mod typed;
mod vectored;
mod watch;
mod word;
