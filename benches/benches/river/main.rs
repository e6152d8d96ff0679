//! Data flow around slow nodes, beside bare sockets and beside the paper about River.
//!
//! - `fig-N` with `virtual`: the engines in virtual time, exact. `size` is the number of slow disks or processors,
//!   `outstanding` the number of nodes, and `ops_per_s` the rate as a part of the peak.
//! - `fig-N` with `paced`: members of a real queue, whose disks and processors are clocks. It needs both cores at a few
//!   percent.
//! - `queue`: messages from one process to another, beside blocks over a bare socket. `client_cpu_us` counts both ends.
//! - `claim`: units that workers claim and finish.
//! - `redelivery`: from the kill of a consumer to the first message that another one gets in its place.
#![forbid(unsafe_code)]

mod paced;
mod queue;
mod redelivery;
mod units;

use ddss_benches::harness::{Bench, Row};
use ddss_sim::{FigurePoint, river_figures};

fn main() {
    if redelivery::run_as_consumer() {
        return;
    }
    let mut bench = Bench::start("river", std::env::args_os().skip(1));
    let virtual_points = river_figures();
    for point in &virtual_points {
        bench.row(row(point, "virtual", Vec::new()));
    }
    paced::measure(&mut bench, &virtual_points);
    queue::measure(&mut bench);
    units::measure(&mut bench);
    redelivery::measure(&mut bench);
    bench.finish();
}

fn label(point: &FigurePoint, level: &str) -> String {
    let FigurePoint { figure, series, slow, nodes, .. } = point;
    format!("fig-{figure},{series},{slow},{level},{nodes}")
}

fn row(point: &FigurePoint, level: &str, notes: Vec<String>) -> Row {
    Row::fraction(label(point, level), point.fraction, notes)
}
