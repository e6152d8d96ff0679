//! Repository lints: the tree, the code and the docs keep their own rules.

mod docs;
mod log_lines;
mod protocol;
mod tree;
