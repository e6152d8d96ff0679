//! A space as one rank uses it.
//!
//! `directory` is where the ranks agree on regions: pages of the space itself behind those of the application, under a lock.

mod directory;
mod launch;
mod options;
mod space;

pub(crate) use directory::{REGIONS_MAX, Record};
pub use launch::Launch;
pub use options::SpaceOptions;
pub use space::{Section, Space};
