//! Streams and listeners for programs that use this crate directly.

#[cfg(feature = "tokio")]
mod asynchronous;
mod halves;
mod listener;
mod local;
mod policy;
#[allow(clippy::module_inception, reason = "the type that the folder is for")]
mod stream;
#[cfg(test)]
mod tests;

#[cfg(feature = "tokio")]
pub use asynchronous::{AsyncListener, AsyncStream};
pub use halves::{ReadHalf, WriteHalf};
pub use listener::Listener;
pub use policy::{Transport, TransportPolicy};
pub use stream::Stream;
