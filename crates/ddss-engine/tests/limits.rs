//! Failures of an engine with a full table: they name the limit and its value.
#![allow(clippy::unwrap_used, reason = "a test ends where something is not as it should be")]

use ddss_core::limits::{AREAS_MAX, SEGMENTS_PER_NODE_DEFAULT};
use ddss_core::{
    ArenaRange, ChannelId, ClientId, Failure, Model, NodeId, OpenedSegment, Operation, Outcome, Principal, Request,
    RequestId, SegmentId, Shard, Spec,
};
use ddss_engine::{Action, Engine, EngineConfig, Now, Reply};
use std::collections::BTreeSet;

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
fn allocate(engine: &mut Engine, channel: ChannelId, name: &str, spec: &Spec) -> Result<OpenedSegment, Failure> {
    allocate_or_value(engine, channel, name, spec).map_err(|(failure, _)| failure)
}

/// Allocates a segment and returns the result; a failure with the value of the limit.
fn allocate_or_value(
    engine: &mut Engine,
    channel: ChannelId,
    name: &str,
    spec: &Spec,
) -> Result<OpenedSegment, (Failure, u64)> {
    let text = [&spec.encode()[..], name.as_bytes()].concat();
    let spec_and_name = ArenaRange { slot: 0, bytes: text.len() as u32 };
    engine.request(NOW, channel, &Request::new(RequestId(1), Operation::Allocate { spec_and_name }), &text);
    while let Some(action) = engine.next_action() {
        match action {
            Action::Format { record, .. } => engine.on_formatted(NOW, record.segment, true),
            Action::Reply(Reply { completion, .. }) => match completion.outcome {
                Outcome::Done => return Ok(OpenedSegment::decode(&completion.data)),
                Outcome::Failed(failure) | Outcome::Indeterminate(failure) => {
                    return Err((failure, completion.version.0));
                }
            },
            _ => {}
        }
    }
    panic!("{name} has no end");
}

/// Releases a segment.
fn release(engine: &mut Engine, channel: ChannelId, segment: SegmentId) {
    engine.request(NOW, channel, &Request::new(RequestId(2), Operation::Release { segment }), &[]);
    while let Some(action) = engine.next_action() {
        match action {
            Action::ZeroFill { at, bytes, .. } => drop(engine.on_cleared(at, bytes)),
            Action::Reply(Reply { completion, .. }) => assert_eq!(completion.outcome, Outcome::Done),
            _ => {}
        }
    }
}

// If this failed, an operator would add memory to a node that has the maximum number of segments, or two of many
// segments would be one.
#[test]
fn too_many_segments_error_names_the_limit_and_its_value() {
    const MANY: usize = 70_000;
    let mut engine = engine();
    let channel = attach(&mut engine, 1);
    let make = |engine: &mut Engine, index: usize| {
        allocate_or_value(engine, channel, &format!("segment-{index}"), &Spec::new(1)).map(|made| made.segment)
    };
    let first: Vec<SegmentId> = (0..SEGMENTS_PER_NODE_DEFAULT).map(|index| make(&mut engine, index).unwrap()).collect();
    let full = (Failure::SegmentsFull, SEGMENTS_PER_NODE_DEFAULT as u64);
    assert_eq!(make(&mut engine, SEGMENTS_PER_NODE_DEFAULT), Err(full), "the default");
    assert_eq!(make(&mut engine, 5), Err((Failure::AlreadyExists, 0)), "a name that exists is told as such");
    engine.set_segments_max(MANY);
    let more: Vec<SegmentId> =
        (SEGMENTS_PER_NODE_DEFAULT..MANY).map(|index| make(&mut engine, index).unwrap()).collect();
    assert_eq!(make(&mut engine, MANY), Err((Failure::SegmentsFull, MANY as u64)));
    let ids: BTreeSet<SegmentId> = first.iter().chain(&more).copied().collect();
    assert_eq!(ids.len(), MANY, "each segment has an id of its own");
    // A lower limit takes nothing away, and a released segment makes room only below it.
    engine.set_segments_max(MANY - 1);
    release(&mut engine, channel, more[0]);
    assert_eq!(make(&mut engine, MANY), Err((Failure::SegmentsFull, MANY as u64 - 1)));
    release(&mut engine, channel, first[0]);
    let again = make(&mut engine, MANY).unwrap();
    assert_eq!((again.index(), ids.contains(&again)), (more[0].index(), false), "the slot that is free for longest");
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
    assert_eq!(allocate(&mut engine, channel, "large", &temporal((64 << 10) + 1)).err(), Some(Failure::BadSize));
}
