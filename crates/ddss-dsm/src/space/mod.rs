//! A space as one rank uses it.

mod options;
mod space;

pub use options::SpaceOptions;
pub use space::{Section, Space};
