//! Repository lints over the tree, the code and the docs.

mod docs;
mod functions;
mod imports;
mod log_lines;
mod protocol;
mod publishing;
mod tree;
mod vocabulary;
