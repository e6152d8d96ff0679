//! Typed regions of a space.
//!
//! `directory` is where the ranks agree on regions: pages of the space itself behind those of the application, under a lock.

mod directory;
mod region;

pub(crate) use directory::DIRECTORY_PAGES;
pub use region::Region;
