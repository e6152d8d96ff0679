//! Engines of data flow in virtual time, under one seed.
//!
//! `agenda` orders events in time. `queue` runs both ends of a queue over simulated connections, with processes that are
//! killed or stopped and connections that end. `files` runs readers and file servers of mirrored parts, `units`
//! workers that claim units of a table and renew their claims.

mod agenda;
mod figures;
mod files;
mod queue;
mod run;
mod scenario;
mod units;

pub use figures::{FigurePoint, river_figures};
pub use run::run_river;
pub use scenario::{RiverReport, RiverScenario};
