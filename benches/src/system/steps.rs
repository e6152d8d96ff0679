//! Time of each step of a get, from the daemon's counters that `ddss trace` shows.

use std::thread;
use std::time::{Duration, Instant};

use ddss::{Segment, Strategy};
use ddss_core::status::{Kind, SampleRow, Step};
use ddss_ipc::read_status;

use super::Cluster;
use crate::harness::{Sample, StandaloneResult};

/// Time limit for a daemon to publish its counters.
const WRITTEN: Duration = Duration::from_millis(20);

/// A step with its times.
#[derive(Debug)]
pub struct Stepped {
    /// Name of the step in the rows.
    pub word: &'static str,
    /// Times of the step.
    pub alone: StandaloneResult,
}

/// Steps of gets of all of `segment`, traced by the client's own daemon while the client runs gets for that long. The
/// last step is the client's remaining time, outside the daemon's view.
pub fn stepped_gets(cluster: &Cluster, segment: &Segment, strategy: Strategy, time: Duration) -> Vec<Stepped> {
    cluster.wake();
    let mut bytes = vec![0; usize::try_from(segment.len()).expect("a segment of a bench is small")];
    let mut calls = Sample::empty();
    let begin = Instant::now();
    while begin.elapsed() < time {
        let asked = Instant::now();
        segment.get_into(0, &mut bytes).expect("the home is there");
        calls.record(asked.elapsed(), 1, 1);
    }
    thread::sleep(WRITTEN);
    let status = read_status(cluster.own().folder()).expect("the daemon of this bench shows its counters to it");
    cluster.rest();
    let id = segment.id();
    let followed = status.samples.iter().filter(|row| row.kind == Kind::Get && row.segment == Some(id));
    let followed: Vec<&SampleRow> = followed.collect();
    let steps = [("submit", Step::Submit), ("post", Step::Post), ("complete", Step::Complete), ("reply", Step::Reply)];
    let mut all: Vec<Stepped> = steps.into_iter().filter_map(|(word, step)| of(&followed, word, step)).collect();
    let total = of(&followed, "total", Step::Total);
    let seen = total.map_or(0.0, |total| total.alone.sample.quantile_us(0.5));
    let rest = Duration::from_secs_f64((calls.quantile_us(0.5) - seen).max(0.0) / 1e6);
    let mut back = Sample::empty();
    back.record(rest, 1, 1);
    let mut alone = StandaloneResult::new(back);
    alone.notes.push(format!(
        "the median of the client's {} calls under {strategy} ({:.3} µs) less that of the {} that were followed",
        calls.operations,
        calls.quantile_us(0.5),
        followed.len()
    ));
    all.push(Stepped { word: "return", alone });
    all
}

/// The times of one step, if any of these calls had it.
fn of(followed: &[&SampleRow], word: &'static str, step: Step) -> Option<Stepped> {
    let mut sample = Sample::empty();
    for ns in followed.iter().filter_map(|row| row.step_ns(step)) {
        sample.record(Duration::from_nanos(ns), 1, 1);
    }
    (sample.operations > 0).then(|| {
        let mut alone = StandaloneResult::new(sample);
        alone.notes.push(format!("of {} calls that the daemon followed", followed.len()));
        Stepped { word, alone }
    })
}
