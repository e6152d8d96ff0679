//! Readers of the workspace, each of which answers with a list of complaints.
//!
//! The rules (which arrow, which file, how many lines) stand in `tests/tests/lints/tree.rs`. What stands here knows how to
//! look, takes the rule as an argument, and is itself tested on planted text: a rule that nothing can break
//! keeps nothing.

mod client_crate;
mod dependency_arrows;
mod figures;
mod file_sizes;
mod links;
mod manifests;
mod pages;
mod sources;
mod tokens;
mod wording;

pub use client_crate::{c_libraries, tree};
pub use dependency_arrows::{Arrow, LeansOn, Room, arrows, refused};
pub use figures::{Runnable, command_complaints, figure_complaints};
pub use file_sizes::{long_file, mod_file_complaints};
pub use links::{link_complaints, word_count};
pub use manifests::{manifest_complaints, version_complaints};
pub use pages::page_complaints;
pub use sources::{Source, sources, workspace_root};
pub use tokens::{forbids_unsafe, lock_lines, unsafe_lines};
pub use wording::{foreign_sources, machine_words};
