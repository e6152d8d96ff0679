//! Authentication between processes that share a key: a handshake of two messages, then sealed messages.
//!
//! The crate performs no I/O: it makes and checks messages, and the caller carries them. Both messages of the handshake fit
//! into the private data of a connection of any fabric.
//!
//! - [`Initiator`] connects, [`respond`] accepts. Both have the same [`Key`] and the same [`Context`].
//! - Each side names itself with an [`Identity`]. It is believed only as far as the holders of the key are.
//! - A [`Channel`] seals and opens what follows: messages, or with [`FrameSealer`] and [`FrameOpener`] all bytes of a connection.
//!
//! ```
//! use ddss_auth::{Context, Initiator, respond};
//! let (key, context) = ([7; 32], Context { name: *b"one  queue", release: 1 });
//! let (initiator, first) = Initiator::begin(&key, &context, &[1; 6])?;
//! let mut answer = respond(&key, &context, &[2; 6], &first)?;
//! let (theirs, mut channel) = initiator.finish(&answer.message)?;
//! assert_eq!((answer.theirs, theirs), ([1; 6], [2; 6]));
//!
//! let (mut sealed, mut plain) = ([0; 32], [0; 32]);
//! let length = channel.seal(b"hello", &mut sealed).unwrap();
//! let length = answer.channel.open(&sealed[..length], &mut plain).unwrap();
//! assert_eq!(&plain[..length], b"hello");
//! # Ok::<(), ddss_auth::HandshakeError>(())
//! ```
#![forbid(unsafe_code)]

mod channel;
mod cipher;
mod frame;
mod handshake;

pub use channel::{Channel, SEAL_BYTES};
pub use frame::{FrameOpener, FrameSealer, SealError, TAG_BYTES, Tag};
pub use handshake::{
    Answer, Context, HELLO_BYTES, HandshakeError, IDENTITY_BYTES, Identity, Initiator, KEY_BYTES, Key, refusal, respond,
};
