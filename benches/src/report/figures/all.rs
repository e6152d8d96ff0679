//! List of all figures, in their order.

use super::{applications, cost, ipc, monitoring, nodes, open_loop, river, scaling, sizes, steps, streams};
use crate::report::picture::Picture;
use crate::report::rows::Rows;

/// Returns all figures, in the order of the page. A figure without rows has a text instead of panels.
pub fn figures(rows: &Rows) -> Vec<Picture> {
    let mut all =
        vec![ipc::three_a(rows), sizes::gets(rows), sizes::puts(rows), sizes::adapters(rows), sizes::words(rows)];
    all.extend([scaling::four_a(rows), scaling::price(rows), nodes::four_b(rows), steps::steps(rows)]);
    all.extend([cost::cost(rows), open_loop::open_loop(rows)]);
    all.extend(applications::applications(rows));
    all.push(monitoring::seven(rows));
    all.extend(streams::streams(rows));
    all.extend(river::river(rows));
    all
}
