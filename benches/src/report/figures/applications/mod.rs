//! Table 1 and Figures 5 and 6: applications.

mod panels;
mod pictures;
mod rows;
mod values;

pub(crate) use pictures::applications;
