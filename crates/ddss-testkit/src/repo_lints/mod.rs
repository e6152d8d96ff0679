//! Lints over the whole repository. Each reads the workspace and returns a list of complaints.
//!
//! The rules (which dependency, which file, how many lines) are in `tests/tests/lints/tree.rs`. The functions here take
//! a rule as argument and are tested on planted text, so that each rule is known to fail when it is broken.

mod client_crate;
mod figures;
mod file_sizes;
mod import_circles;
mod links;
mod manifests;
mod member_dependencies;
mod method_circles;
mod pages;
mod sources;
mod tokens;
mod wording;

pub use client_crate::{c_libraries, dependency_tree};
pub use figures::{Runnable, command_complaints, figure_complaints};
pub use file_sizes::{function_lengths, long_file, mod_file_complaints};
pub use import_circles::{folder_circles, import_circles};
pub use links::{link_complaints, word_count};
pub use manifests::{manifest_complaints, version_complaints};
pub use member_dependencies::{
    MemberDependency, MemberRule, PermittedDependencies, member_dependencies, refused_dependencies,
};
pub use method_circles::method_circles;
pub use pages::page_complaints;
pub use sources::{Source, sources, workspace_root};
pub use tokens::{forbids_unsafe, identifier_lines, lock_lines, unsafe_lines};
pub use wording::{foreign_sources, machine_words};
