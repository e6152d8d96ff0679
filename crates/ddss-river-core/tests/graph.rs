//! Graphs: what runs, and what is refused with the names of its modules.
#![allow(clippy::unwrap_used, reason = "a test ends where something is not as it should be")]

use ddss_river_core::limits::{ADDRESSED_MAX, INSTANCES_MAX, MODULE_NAME_BYTES_MAX, MODULES_MAX};
use ddss_river_core::{Each, EdgeKind, FlowGraph, GraphError, Life, MemberReport, ModuleState, Resume, Site, owner_of};

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
fn a_cycle_is_refused_and_its_modules_are_named() {
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
    // Each of its modules waits until the other one has ended.
    let through_a_list = graph(2, &[(0, 1, EdgeKind::Queue), (1, 0, EdgeKind::Units)]);
    assert!(matches!(through_a_list.check(), Err(GraphError::Cycle(_))));
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

// If this failed, `ddss river dot` would show another graph, or end at bytes of another release.
#[test]
fn bytes_of_a_graph_round_trip_and_damaged_ones_are_refused() {
    let mut all = graph(3, &[(0, 1, EdgeKind::ByKey), (1, 2, EdgeKind::Units), (0, 2, EdgeKind::AllToAll)]);
    let list = all.place("list", Each::Outside).unwrap();
    let counted = all.place("counted", Each::Count(300)).unwrap();
    all.attach(list, counted, EdgeKind::Units).unwrap();
    all.set_holds_data(counted).unwrap();
    let bytes = all.encode();
    assert_eq!(FlowGraph::decode(&bytes), Ok(all.clone()));
    assert_eq!(FlowGraph::decode(&[&bytes[..], &[0; 9]].concat()), Ok(all));
    for length in 0..bytes.len() {
        assert!(FlowGraph::decode(&bytes[..length]).is_err(), "{length} bytes");
    }
    for index in 0..bytes.len() {
        for value in [0, 1, 0x7f, 0xff] {
            let mut damaged = bytes.clone();
            damaged[index] = value;
            // Whatever it says, it ends.
            let _ = FlowGraph::decode(&damaged).map(|graph| graph.hash());
        }
    }
}

#[test]
fn a_list_of_work_is_only_at_the_beginning_of_an_edge_of_units() {
    let of = |from: Each, to: Each, kind| {
        let mut graph = FlowGraph::default();
        let (a, b) = (graph.place("a", from).unwrap(), graph.place("b", to).unwrap());
        graph.attach(a, b, kind).unwrap();
        graph.check()
    };
    assert_eq!(of(Each::Outside, Each::Node, EdgeKind::Units), Ok(()));
    let refused = Err(GraphError::Outside("a".to_owned(), "b".to_owned()));
    assert_eq!(of(Each::Outside, Each::Node, EdgeKind::Queue), refused);
    assert_eq!(of(Each::Node, Each::Outside, EdgeKind::Units), refused);
}

/// Sites of three members on two nodes.
const SITES: [Site; 3] = [Site { node: 1, cores: 3 }, Site { node: 2, cores: 2 }, Site { node: 1, cores: 3 }];

// If this failed, a part of a module would run nowhere, or twice.
#[test]
fn instances_are_distributed_over_members_and_numbered_through() {
    let placements = [Each::Flow, Each::Node, Each::Core, Each::Member, Each::Count(7)];
    let mut graph = FlowGraph::default();
    let modules: Vec<_> =
        placements.iter().enumerate().map(|(at, each)| graph.place(&at.to_string(), *each).unwrap()).collect();
    let plan = graph.plan(&SITES).unwrap();
    let counts: Vec<[u16; 3]> =
        modules.iter().map(|module| [0, 1, 2].map(|member| plan.count(*module, member))).collect();
    assert_eq!(counts, [[1, 0, 0], [0, 1, 1], [2, 2, 1], [1, 1, 1], [2, 3, 2]]);
    assert_eq!(modules.iter().map(|module| plan.total(*module)).collect::<Vec<_>>(), [1, 2, 5, 3, 7]);
    assert_eq!([0, 1, 2].map(|member| plan.first(modules[4], member)), [0, 2, 5]);
    assert_eq!(plan.count(modules[0], 3), 0, "a member that joins later is not in the plan");
}

#[test]
fn plans_that_cannot_run_are_refused_with_the_modules() {
    let of = |from: Each, to: Each, kind| {
        let mut graph = FlowGraph::default();
        let (a, b) = (graph.place("a", from).unwrap(), graph.place("b", to).unwrap());
        graph.attach(a, b, kind).unwrap();
        graph.plan(&SITES).map(drop)
    };
    assert_eq!(of(Each::Core, Each::Count(5), EdgeKind::OneToOne), Ok(()));
    let (from, to) = ("a".to_owned(), "b".to_owned());
    let unequal = GraphError::Unequal { from, from_count: 2, to, to_count: 3 };
    assert_eq!(of(Each::Node, Each::Member, EdgeKind::OneToOne), Err(unequal));
    let none = GraphError::Instances("b".to_owned(), 0, INSTANCES_MAX);
    assert_eq!(of(Each::Node, Each::Count(0), EdgeKind::Queue), Err(none));
    let many = GraphError::Instances("b".to_owned(), 65, ADDRESSED_MAX);
    assert_eq!(of(Each::Node, Each::Count(65), EdgeKind::ByKey), Err(many));
    assert_eq!(of(Each::Node, Each::Count(65), EdgeKind::Queue), Ok(()));
}

#[test]
fn keys_have_owners_that_never_change_and_all_have_some() {
    let owners: Vec<u16> = (0..1000_u32).map(|key| owner_of(&key.to_le_bytes(), 7)).collect();
    for owner in 0..7 {
        assert!(owners.iter().filter(|found| **found == owner).count() > 100, "{owner}");
    }
    assert_eq!([b"a", b"b", b"c"].map(|key| owner_of(key, 1000)), [19, 38, 778]);
}

/// Reports of members: place, life, and states of the modules, as letters.
fn reports(members: &[(u16, Life, &str)]) -> Vec<MemberReport> {
    let state = |letter| match letter {
        'r' => ModuleState::Running,
        'd' => ModuleState::Done,
        _ => ModuleState::Idle,
    };
    let report = |&(place, life, states): &(u16, Life, &str)| MemberReport {
        place: place % 10,
        run: place.into(),
        life,
        modules: states.chars().map(state).collect(),
    };
    members.iter().map(report).collect()
}

/// Progress of a flow of a source `a`, a worker `b` and a sink `c` in members 0 and 1.
fn progress(members: &[(u16, Life, &str)], is_fail_stop: bool) -> (Vec<bool>, Option<(usize, u16)>, Vec<usize>) {
    let mut graph = FlowGraph::default();
    let [a, b, c] = [("a", Each::Member), ("b", Each::Member), ("c", Each::Flow)]
        .map(|(name, each)| graph.place(name, each).unwrap());
    graph.attach(a, b, EdgeKind::Queue).unwrap();
    graph.attach(b, c, EdgeKind::Queue).unwrap();
    let plan = graph.plan(&[Site { node: 1, cores: 1 }; 2]).unwrap();
    let found = graph.progress(&plan, &[(0, 0), (1, 1)], &reports(members), &[], is_fail_stop);
    let orphaned = found.orphaned.iter().map(|module| module.index()).collect();
    (found.ended, found.lost.map(|(module, place)| (module.index(), place)), orphaned)
}

// If this failed, a death would forge the end of a flow, or hold it up for ever.
#[test]
fn a_module_ends_when_no_living_member_has_to_end_it() {
    use Life::{Alive, Dead, Left};
    let on = |members: &[(u16, Life, &str)]| progress(members, false);
    // A founder that has not started yet is waited for.
    assert_eq!(on(&[(0, Alive, "ddd"), (1, Alive, "d-")]), (vec![true, false, true], None, vec![]));
    assert_eq!(on(&[(0, Alive, "ddd"), (1, Alive, "drr")]), (vec![true, false, false], None, vec![]));
    // A lost worker is replaced: what it has not acknowledged is with the other one.
    assert_eq!(on(&[(0, Alive, "drr"), (1, Dead, "dr-")]), (vec![true, false, false], None, vec![]));
    assert_eq!(on(&[(0, Alive, "ddd"), (1, Dead, "dr-")]), (vec![true; 3], None, vec![]));
    // A lost source is not: nobody knows what it would have put.
    assert_eq!(on(&[(0, Alive, "ddr"), (1, Dead, "rr-")]).1, Some((0, 1)));
    assert_eq!(on(&[(0, Alive, "ddr"), (1, Left, "rr-")]).1, Some((0, 1)));
    // The only sink is lost: another member has to run it.
    assert_eq!(on(&[(0, Dead, "ddr"), (1, Alive, "dd-")]), (vec![true, true, false], None, vec![2]));
    // A process in the place of a dead one keeps what that one has done, and runs what it runs itself.
    assert_eq!(on(&[(0, Alive, "drr"), (11, Alive, "d--")]), (vec![true, false, false], None, vec![]));
    assert_eq!(on(&[(0, Alive, "ddr"), (11, Alive, "dr-")]), (vec![true, false, false], None, vec![]));
    assert_eq!(on(&[(0, Alive, "ddr"), (11, Alive, "---")]).1, Some((0, 1)));
    // Others may have joined in other places.
    assert_eq!(on(&[(0, Alive, "ddd"), (1, Dead, "dr-"), (2, Alive, "-r-")]).0, [true, false, true]);
    assert_eq!(progress(&[(0, Alive, "ddd"), (1, Dead, "dr-")], true).1, Some((1, 1)), "fail-stop");
    assert_eq!(progress(&[(0, Alive, "ddd"), (1, Dead, "dd-")], true).1, None, "it had nothing to do");
}

// If this failed, a process that joins would send to an instance that does not exist, and the flow would never end.
#[test]
fn a_module_with_a_receiver_for_each_instance_is_not_replaceable() {
    let of = |output| {
        let mut graph = FlowGraph::default();
        let [list, a, b] = [("list", Each::Outside), ("a", Each::Member), ("b", Each::Member)]
            .map(|(name, each)| graph.place(name, each).unwrap());
        graph.attach(list, a, EdgeKind::Units).unwrap();
        graph.attach(a, b, output).unwrap();
        graph.is_replaceable(a)
    };
    assert!([EdgeKind::Queue, EdgeKind::Units, EdgeKind::ByKey, EdgeKind::AllToAll].into_iter().all(of));
    assert!(!of(EdgeKind::OneToOne));
}

/// Returns the finished modules and the kept lists of another attempt, as letters and numbers.
fn resume(placements: &[Each], edges: &[(usize, usize, EdgeKind)], ended: &[usize]) -> (String, Vec<u32>) {
    let mut graph = FlowGraph::default();
    let ids: Vec<_> = (b'a'..)
        .zip(placements)
        .map(|(name, each)| graph.place(&char::from(name).to_string(), *each).unwrap())
        .collect();
    for (from, to, kind) in edges {
        graph.attach(ids[*from], ids[*to], *kind).unwrap();
    }
    let ended: Vec<bool> = (0..placements.len()).map(|module| ended.contains(&module)).collect();
    let Resume { finished, kept } = graph.resume(&ended);
    let letters = (b'a'..).zip(finished).filter_map(|(letter, finished)| finished.then_some(char::from(letter)));
    (letters.collect(), kept.iter().map(|edge| edge.0).collect())
}

// If this failed, another attempt would repeat what is done, lose it, or wait for a module that does not run again.
#[test]
fn another_attempt_repeats_what_no_list_has() {
    use EdgeKind::{Queue, Units};
    let (of, list, none) = ([Each::Flow; 4], Each::Outside, String::new);
    // A source fills a list: it is finished, unless it was lost half way. Then its list begins again.
    assert_eq!(resume(&of[..2], &[(0, 1, Units)], &[0]), ("a".to_owned(), vec![0]));
    assert_eq!(resume(&of[..2], &[(0, 1, Units)], &[]), (none(), vec![]));
    // What is in front of a finished module has nobody to put to, and need not run again either.
    let chain = [(0, 1, Queue), (1, 2, Units)];
    assert_eq!(resume(&of[..3], &chain, &[0, 1]), ("ab".to_owned(), vec![1]));
    assert_eq!(resume(&of[..3], &chain, &[0]), (none(), vec![]));
    // A message of a queue is with the module behind it alone.
    assert_eq!(resume(&of[..3], &[(0, 1, Units), (1, 2, Queue)], &[0, 1]), ("a".to_owned(), vec![0]));
    assert_eq!(resume(&of[..2], &[(0, 1, Queue)], &[0, 1]), (none(), vec![]), "results without a list");
    // A source that runs again for one module puts again into the list of another one, which has to begin again.
    let fork = [(0, 1, Queue), (0, 2, Units), (2, 3, Units)];
    assert_eq!(resume(&of, &fork, &[0, 2]), (none(), vec![]));
    assert_eq!(resume(&of, &fork, &[]), (none(), vec![]));
    // Done units of a list outside are not repeated: their results stay, also behind a queue.
    let outside = [list, Each::Member, Each::Member, Each::Member];
    assert_eq!(resume(&outside, &[(0, 1, Units), (1, 2, Queue), (2, 3, Units)], &[]), (none(), vec![0, 2]));
    assert_eq!(
        resume(&outside, &[(0, 1, Units), (1, 2, Units), (2, 3, Units)], &[0, 1]),
        ("b".to_owned(), vec![0, 1, 2])
    );
}
