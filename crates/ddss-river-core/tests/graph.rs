//! Graphs: what runs, and what is refused with the names of its modules.
#![allow(clippy::unwrap_used, reason = "a test ends where something is not as it should be")]

use ddss_river_core::limits::{MODULE_NAME_BYTES_MAX, MODULES_MAX};
use ddss_river_core::{Each, EdgeKind, FlowGraph, GraphError};

/// Returns a graph of modules `a`, `b` … with these edges.
fn graph(modules: usize, edges: &[(usize, usize, EdgeKind)]) -> FlowGraph {
    let mut graph = FlowGraph::default();
    let ids: Vec<_> =
        (b'a'..).take(modules).map(|name| graph.place(&char::from(name).to_string(), Each::Node).unwrap()).collect();
    for (from, to, kind) in edges {
        graph.attach(ids[*from], ids[*to], *kind).unwrap();
    }
    graph
}

#[test]
fn a_graph_without_cycles_runs() {
    use EdgeKind::{AllToAll, ByKey, OneToOne, Queue};
    let diamond = [(0, 1, Queue), (0, 2, ByKey), (1, 3, AllToAll), (2, 3, OneToOne)];
    assert_eq!(graph(4, &diamond).check(), Ok(()));
}

// If this failed, the modules of a cycle could wait for one another for ever.
#[test]
fn a_bounded_cycle_is_refused_and_its_modules_are_named() {
    let edges = [(0, 1, EdgeKind::Queue), (1, 2, EdgeKind::ByKey), (2, 3, EdgeKind::Queue), (3, 1, EdgeKind::Queue)];
    let names = ["b", "c", "d", "b"].map(str::to_owned);
    let Err(GraphError::Cycle(found)) = graph(5, &[&edges[..], &[(3, 4, EdgeKind::Queue)]].concat()).check() else {
        panic!("a cycle runs")
    };
    // The walk may begin at any of its modules.
    assert_eq!(found.first(), found.last());
    let start = names.iter().position(|name| *name == found[0]).unwrap();
    let turned: Vec<_> = (0..4).map(|at| names[(start + at) % 3].clone()).collect();
    assert_eq!(found, turned);
    assert!(matches!(graph(1, &[(0, 0, EdgeKind::Queue)]).check(), Err(GraphError::Cycle(_))));
}

#[test]
fn a_cycle_through_a_unit_queue_runs() {
    assert_eq!(graph(2, &[(0, 1, EdgeKind::Queue), (1, 0, EdgeKind::Units)]).check(), Ok(()));
}

#[test]
fn an_unattached_module_is_refused() {
    assert_eq!(graph(3, &[(0, 1, EdgeKind::Queue)]).check(), Err(GraphError::Unattached("c".to_owned())));
    assert_eq!(graph(0, &[]).check(), Err(GraphError::Empty));
}

// If this failed, members with different programs would join one flow.
#[test]
fn graphs_that_differ_have_different_hashes() {
    let one = graph(2, &[(0, 1, EdgeKind::Queue)]);
    assert_eq!(one.compare(graph(2, &[(0, 1, EdgeKind::Queue)]).hash()), Ok(()));
    let mut named = FlowGraph::default();
    let (a, b) = (named.place("a", Each::Node).unwrap(), named.place("c", Each::Node).unwrap());
    named.attach(a, b, EdgeKind::Queue).unwrap();
    let mut cores = FlowGraph::default();
    let (a, b) = (cores.place("a", Each::Node).unwrap(), cores.place("b", Each::Core).unwrap());
    cores.attach(a, b, EdgeKind::Queue).unwrap();
    let others = [graph(2, &[(1, 0, EdgeKind::Queue)]), graph(2, &[(0, 1, EdgeKind::ByKey)]), named, cores];
    for other in others {
        let different = GraphError::Different { flow: other.hash(), own: one.hash() };
        assert_eq!(one.compare(other.hash()), Err(different), "{other:?}");
    }
}

// If this failed, members of two releases could not compare their graphs.
#[test]
fn the_hash_of_a_graph_never_changes() {
    assert_eq!(graph(2, &[(0, 1, EdgeKind::Queue)]).hash(), 0xad0e_df99_b865_dad5);
}

#[test]
fn names_and_edges_outside_their_limits_are_refused() {
    let mut graph = FlowGraph::default();
    let a = graph.place("a", Each::Flow).unwrap();
    assert_eq!(graph.place("a", Each::Node), Err(GraphError::Duplicate("a".to_owned())));
    for name in [String::new(), "x".repeat(MODULE_NAME_BYTES_MAX + 1)] {
        assert_eq!(graph.place(&name, Each::Node), Err(GraphError::Name(name, MODULE_NAME_BYTES_MAX)));
    }
    for number in 1..MODULES_MAX {
        graph.place(&number.to_string(), Each::Node).unwrap();
    }
    assert_eq!(graph.place("one more", Each::Node), Err(GraphError::Full("modules", MODULES_MAX)));
    graph.attach(a, a, EdgeKind::Units).unwrap();
    assert!(matches!(graph.attach(a, a, EdgeKind::Queue), Err(GraphError::Attached(..))));
    let mut other = FlowGraph::default();
    assert_eq!(other.attach(a, a, EdgeKind::Queue), Err(GraphError::Unknown(0)));
}
