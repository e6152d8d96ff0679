//! Failures of an engine with a full table: they name the limit and its value.
#![allow(clippy::unwrap_used, reason = "a test ends where something is not as it should be")]

use ddss_core::engine::{Action, Engine, EngineConfig, Now};
use ddss_core::limits::{AREAS_MAX, SEGMENTS_PER_NODE_MAX};
use ddss_core::{
    ArenaRange, ChannelId, ClientId, Failure, Model, NodeId, Operation, Outcome, Principal, Request, RequestId, Shard,
    Spec,
};

const NOW: Now = Now { steady_us: 1, wall_us: 1 };

/// A node with much more memory than the segments of a test take.
fn engine() -> Engine {
    Engine::new(&EngineConfig {
        node: NodeId(1),
        shard: Shard::ONLY,
        pool_bytes: 1 << 40,
        peers: Vec::new(),
        first_generation: 0,
        reads_overlap: true,
    })
}

/// Attaches the client of a user.
fn attach(engine: &mut Engine, user: u32) -> ChannelId {
    let client = ClientId { index: user, generation: 1 };
    engine.attach(client, Principal { uid: user, gid: user }, 1 << 20);
    ChannelId { client, index: 0 }
}

/// Allocates a segment and returns the result.
fn allocate(engine: &mut Engine, channel: ChannelId, name: &str, spec: &Spec) -> Result<(), Failure> {
    let text = [&spec.encode()[..], name.as_bytes()].concat();
    let spec_and_name = ArenaRange { slot: 0, bytes: text.len() as u32 };
    engine.request(NOW, channel, &Request::new(RequestId(1), Operation::Allocate { spec_and_name }), &text);
    while let Some(action) = engine.next_action() {
        match action {
            Action::Format { record, .. } => engine.formatted(NOW, record.segment, true),
            Action::Reply { completion, .. } => match completion.outcome {
                Outcome::Done => return Ok(()),
                Outcome::Failed(failure) | Outcome::Indeterminate(failure) => return Err(failure),
            },
            _ => {}
        }
    }
    panic!("{name} has no end");
}

// If this failed, an operator would add memory to a node that has the maximum number of segments.
#[test]
fn too_many_segments_error_names_the_limit() {
    let mut engine = engine();
    let channel = attach(&mut engine, 1);
    for index in 0..SEGMENTS_PER_NODE_MAX {
        allocate(&mut engine, channel, &format!("segment-{index}"), &Spec::new(1)).unwrap();
    }
    let refused = allocate(&mut engine, channel, "one-more", &Spec::new(1)).unwrap_err();
    assert!(refused.to_string().contains(&format!("{SEGMENTS_PER_NODE_MAX} segments")), "{refused}");
}

// If this failed, the same would happen with too many sets of readers.
#[test]
fn too_many_audiences_error_names_the_limit() {
    let mut engine = engine();
    let channels: Vec<ChannelId> = (1..=AREAS_MAX as u32).map(|user| attach(&mut engine, user)).collect();
    let mut made = channels.iter().map(|&channel| {
        let name = format!("of-{}", channel.client.index);
        allocate(&mut engine, channel, &name, &Spec::new(1))
    });
    let refused = made.find_map(Result::err).unwrap();
    // One area is the node's own.
    assert!(refused.to_string().contains(&format!("{} sets of readers", AREAS_MAX - 1)), "{refused}");
    drop(made);
    // A user with an area still gets more segments.
    allocate(&mut engine, channels[0], "another", &Spec::new(1)).unwrap();
}

// If this failed, a segment would be created whose gets all go to its home, without a hint to the user.
#[test]
fn temporal_segment_larger_than_cache_is_refused() {
    let mut engine = engine();
    let channel = attach(&mut engine, 1);
    let temporal = |bytes| Spec::new(bytes).model(Model::Temporal(1000));
    allocate(&mut engine, channel, "fits", &temporal(64 << 10)).unwrap();
    assert_eq!(allocate(&mut engine, channel, "large", &temporal((64 << 10) + 1)), Err(Failure::BadSize));
}
