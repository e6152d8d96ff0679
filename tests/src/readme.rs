#![doc = include_str!("../../README.md")]
// Only for `cargo test`, which compiles what the README shows: a reader's first lines must not be the ones that fail.
