//! Code blocks of the documentation pages, compiled by `cargo test`: the first lines that a reader tries must work.

#[doc = include_str!("../../../README.md")]
mod readme {}

#[doc = include_str!("../../../docs/book/src/concepts/models.md")]
mod models {}

#[doc = include_str!("../../../docs/book/src/tutorial.md")]
mod tutorial {}
