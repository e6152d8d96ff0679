//! What the benches wrote, as figures that people can look at.
//!
//! [`Rows`] reads what any bench wrote, [`figures`] says what is drawn of it and what the paper has beside it, and the
//! page, the pictures and the data come out of that. Nothing here measures.

mod chart;
mod data;
pub mod figures;
mod machine;
mod markdown;
mod page;
mod paper;
mod picture;
mod readme;
mod rows;
mod run;
mod svg;
mod units;

pub use chart::draw;
pub use data::{to_csv, to_json};
pub use machine::Machine;
pub use markdown::markdown;
pub use page::page;
pub use picture::{Bar, Bars, Beside, Curve, Curves, Mark, Panel, Part, Picture, Scale};
pub use readme::{Said, readme};
pub use rows::{Entry, RowError, Rows};
pub use run::{BENCHES, Ran, run};
