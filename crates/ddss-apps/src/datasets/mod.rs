//! Data that the applications work on.

pub mod geonames;
