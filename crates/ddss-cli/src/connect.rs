//! The way to the daemon, and the command that makes a segment.

use crate::arguments::{AllocateOptions, Named, Place};
use crate::error::CommandError;
use ddss::{Client, Segment, Spec};
use serde_json::json;
use std::time::Instant;

pub(crate) fn connect(place: &Place) -> Result<Client, CommandError> {
    let builder = match &place.dir {
        Some(folder) => Client::builder().folder(folder),
        None => Client::builder(),
    };
    Ok(builder.channels(1).connect()?)
}

pub(crate) fn open(named: &Named) -> Result<Segment, CommandError> {
    Ok(connect(&named.place)?.open(&named.name)?)
}

fn describe(segment: &Segment, json: bool) {
    let (name, bytes, home) = (segment.name(), segment.bytes(), segment.id().home());
    if json {
        println!("{}", json!({ "name": name, "bytes": bytes, "home": home.0, "id": segment.id().to_bits() }));
    } else {
        println!("{name}: {bytes} bytes at {home}, {}", segment.id());
    }
}

pub(crate) fn ping(place: &Place, json: bool) -> Result<(), CommandError> {
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

pub(crate) fn allocate(wanted: &AllocateOptions, json: bool) -> Result<(), CommandError> {
    let mut spec = Spec::new(wanted.bytes);
    (spec.model, spec.mode) = (wanted.model, wanted.mode);
    spec.storage = wanted.storage;
    (spec.placement, spec.history, spec.copies) = (wanted.home, wanted.history, wanted.copies);
    let segment = connect(&wanted.named.place)?.allocate(&wanted.named.name, spec)?;
    describe(&segment, json);
    Ok(())
}
