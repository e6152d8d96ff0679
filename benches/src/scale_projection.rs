//! Projection beyond two cores: one home against spread data on up to a hundred nodes, simulated by `ddss-sim` with
//! step costs measured here.

use std::fmt::Write as _;

use ddss_sim::{Costs, Load, simulate_load};

use crate::harness::CONTRACT;
use crate::report::Rows;

/// Nodes of each run.
const NODES: [usize; 8] = [2, 4, 8, 16, 32, 64, 80, 100];
/// Clients on each.
const CLIENTS: usize = 4;
/// Gets of each client.
const GETS: u64 = 100;
const SEED: u64 = 1;

/// Computes step costs from these rows, with a description. `None` if a row is missing.
pub fn calibrated(rows: &Rows) -> Option<(Costs, String)> {
    let null = rows.one("ipc", "ddss", "null", 8, "shm/auto/t1")?.p50_us;
    let bare = rows.one("fabric", "raw", "pingpong", 8, "tcp-lo/spin/t1")?.p50_us;
    // This row is of the placement in which own daemon and home share a core, which is saturated.
    let many = rows
        .of("get")
        .find(|entry| (&*entry.op, entry.size, &*entry.mode, entry.outstanding) == ("get", 8, "tcp-lo/rcq/t1", 32));
    let both_us = 1e6 / many?.ops_per_s;
    let ns = |us: f64| (us * 1e3).round().max(1.0) as u64;
    let costs =
        Costs { client_ns: ns(null), own_ns: ns(both_us / 2.0), home_ns: ns(both_us / 2.0), hop_ns: ns(bare / 2.0) };
    let Costs { client_ns, own_ns, home_ns, hop_ns } = costs;
    let words = format!(
        "a client takes {client_ns} ns for its call (null under Auto), each of the two daemons {own_ns} ns for a get ({} ns both; \
         both on one core with 32 gets under way, half each), a hop {hop_ns} ns on average (half of a bare TCP ping-pong); \
         {CLIENTS} clients on each node but the first",
        own_ns + home_ns
    );
    Some((costs, words))
}

/// Rows of the simulation, like those of a bench; `None` if there is nothing to calibrate it with.
pub fn simulate(rows: &Rows) -> Option<String> {
    let (costs, words) = calibrated(rows)?;
    let mut text = format!("{CONTRACT},home_busy,notes\n");
    for (op, spread) in [("get-one-home", false), ("get-spread", true)] {
        for nodes in NODES {
            let scaled = simulate_load(SEED, costs, Load { nodes, clients: CLIENTS, spread, gets: GETS });
            let quantile = |part: f64| {
                let index = (scaled.times_ns.len() as f64 * part) as usize;
                scaled.times_ns.get(index.min(scaled.times_ns.len() - 1)).map_or(0.0, |ns| *ns as f64 / 1e3)
            };
            let (all, rate, busiest) = ((nodes - 1) * CLIENTS, scaled.gets_per_s, scaled.busiest);
            let label = format!("ddss,{op},8,simulated-n{nodes}/auto/t{all},1");
            // Writing into a `String` does not fail.
            let _infallible = writeln!(
                text,
                "{label},{:.4},{:.4},{rate:.0},{busiest:.4},{}",
                quantile(0.5),
                quantile(0.99),
                words.replace(',', ";")
            );
        }
    }
    Some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    // If this failed, the simulated figure would use invented costs.
    #[test]
    fn step_costs_are_read_from_their_rows() {
        let rows = |bench, lines: &[&str]| Rows::parse(bench, &format!("{CONTRACT}\n{}\n", lines.join("\n"))).unwrap();
        let mut all = rows("ipc", &["ddss,null,8,shm/auto/t1,1,0.4,1,1"]);
        all.add(rows("fabric", &["raw,pingpong,8,tcp-lo/spin/t1,1,9,10,1"]));
        assert_eq!(calibrated(&all), None);
        all.add(rows("get", &["ddss,get,8,tcp-lo/rcq/t1,32,40,50,500000"]));
        let (costs, _) = calibrated(&all).unwrap();
        assert_eq!(costs, Costs { client_ns: 400, own_ns: 1000, home_ns: 1000, hop_ns: 4500 });
        let simulated = Rows::parse("shape", &simulate(&all).unwrap()).unwrap();
        assert_eq!(simulated.0.len(), 2 * NODES.len());
        let of = |op: &str, nodes: usize| {
            let mode = format!("simulated-n{nodes}/auto/t{}", (nodes - 1) * CLIENTS);
            simulated.one("shape", "ddss", op, 8, &mode).unwrap().ops_per_s
        };
        assert!(of("get-spread", 100) > 20.0 * of("get-spread", 2));
        assert!(of("get-one-home", 100) < 3.0 * of("get-one-home", 8));
    }
}
