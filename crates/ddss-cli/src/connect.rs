//! Connection to the daemon, and the commands `ping` and `allocate`.

use crate::arguments::{AllocateOptions, DaemonOptions, SegmentOptions};
use crate::error::CommandError;
use ddss::{Client, Segment, Spec};
use serde_json::json;
use std::time::Instant;

/// Connects to the daemon in the directory that the arguments name.
pub(crate) fn connect(place: &DaemonOptions) -> Result<Client, CommandError> {
    let builder = match &place.dir {
        Some(folder) => Client::builder().folder(folder),
        None => Client::builder(),
    };
    Ok(builder.channels(1).connect()?)
}

/// Opens the segment that the arguments name.
pub(crate) fn open(named: &SegmentOptions) -> Result<Segment, CommandError> {
    Ok(connect(&named.place)?.open(&named.name)?)
}

/// Prints a segment that was allocated.
pub(crate) fn describe(segment: &Segment, json: bool) {
    let (name, bytes, home) = (segment.name(), segment.bytes(), segment.id().home());
    if json {
        println!("{}", json!({ "name": name, "bytes": bytes, "home": home.0, "id": segment.id().to_bits() }));
    } else {
        println!("{name}: {bytes} bytes at {home}, {}", segment.id());
    }
}

pub(crate) fn ping(place: &DaemonOptions, json: bool) -> Result<(), CommandError> {
    let client = connect(place)?;
    client.ping()?;
    let began = Instant::now();
    client.ping()?;
    let micros = began.elapsed().as_secs_f64() * 1e6;
    if json {
        println!("{}", json!({ "node": client.node().0, "round_trip_us": micros }));
    } else {
        println!("{} answered in {micros:.1} µs ({})", client.node(), client.strategy());
    }
    Ok(())
}

pub(crate) fn allocate(options: &AllocateOptions, json: bool) -> Result<(), CommandError> {
    let mut spec = Spec::new(options.bytes);
    (spec.model, spec.mode) = (options.model, options.mode);
    spec.storage = options.storage;
    spec.row_bytes = options.row.unwrap_or_default();
    (spec.placement, spec.history, spec.copies) = (options.home, options.history, options.copies);
    let segment = connect(&options.named.place)?.allocate(&options.named.name, spec)?;
    describe(&segment, json);
    Ok(())
}
