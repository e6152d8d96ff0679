//! What the tests with real processes share, and the rules of the house as functions.
//!
//! [`house`] reads the workspace and says what breaks its rules; `tests/tidy.rs` holds the rules themselves.
#![forbid(unsafe_code)]

pub mod house;
