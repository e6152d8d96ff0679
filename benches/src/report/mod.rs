//! The report: figures drawn from the rows of the benches.
//!
//! [`Rows`] reads the rows, [`figures`] selects what is drawn and adds the paper's numbers, and the page, the pictures
//! and the data are rendered from that. Only `run` measures, by starting the benches.

mod data;
mod draw;
mod drawn;
pub mod figures;
mod machine;
mod markdown;
mod paper;
mod picture;
mod readme;
mod rows;
mod run;
mod units;

pub use data::{to_csv, to_json};
pub use draw::draw;
pub use drawn::Drawn;
pub use machine::Machine;
pub use markdown::{PAGES, markdown};
pub use picture::{
    Bar, Bars, Curve, Curves, Mark, Panel, Paper, PaperValue, Part, Picture, Scale, Style, Table, TableRow,
};
pub use readme::{ReadmeInputs, readme};
pub use rows::{Entry, RowError, Rows};
pub use run::{BENCHES, BenchRun, run};
