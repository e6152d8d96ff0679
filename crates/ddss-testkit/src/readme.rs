//! Only for `cargo test`, which compiles what the pages show: a reader's first lines must not be the ones that fail.

#[doc = include_str!("../../../README.md")]
mod readme {}

#[doc = include_str!("../../../docs/book/src/concepts/models.md")]
mod models {}

#[doc = include_str!("../../../docs/book/src/tutorial.md")]
mod tutorial {}
