//! Typed regions of a space.

mod region;

pub use region::Region;
