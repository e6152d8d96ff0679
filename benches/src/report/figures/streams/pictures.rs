//! The pictures of the paper about streams.

use super::{cache, programs, speed};
use crate::report::picture::{Paper, Picture};
use crate::report::rows::Rows;

/// Figures 2, 3 and 4.
pub(crate) fn streams(rows: &Rows) -> [Picture; 3] {
    [speed::two(rows), cache::three(rows), programs::four(rows)].map(|picture| Picture { paper: Paper::Sdp, ..picture })
}
