//! The public interface of a crate, one line an item, read from rustdoc's JSON.
//!
//! The list is kept in the repository, so that a change of the interface is a change of a file that a reviewer sees. It
//! follows re-exports into other crates of the workspace, and reports each type of another package that a user must name.

mod crates;
mod list;
mod render;

pub use crates::{CrateDocs, Docs};
pub use list::{PublicApi, public_api};
