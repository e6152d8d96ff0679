//! A web farm whose proxy reads the loads of its servers (Fig. 7).

use std::time::Duration;

use ddss_apps::monitor::{FILE_BYTES, Farm, FarmOptions, Progress, Watched};
use ddss_benches::harness::{Bench, ExtraColumns, Row, Sample};

use crate::testbed::{Testbed, report_progress};

/// Interval of the load readings.
const EVERY: Duration = Duration::from_millis(10);
/// Time that one point of a curve stands for.
const PIECE: Duration = Duration::from_millis(200);
/// Clients, each with one request in flight.
const CLIENTS: usize = 4;

/// Measures all sizes, with the progress thread on the proxy's core and on another one.
pub(crate) fn measure(bench: &mut Bench, testbed: &Testbed) {
    let (sizes, rounds, time): (&[usize], _, _) = match (bench.options.bench, bench.options.quick) {
        (false, _) => (&[2], 1, Duration::from_millis(50)),
        (true, true) => (&[4, 8], 2, Duration::from_millis(400)),
        (true, false) => (&[4, 8, 16, 32], 6, Duration::from_millis(400)),
    };
    for progress in [Progress::Shared, Progress::Own] {
        for &servers in sizes {
            let options =
                FarmOptions { servers, progress, proxy_core: testbed.cores.client, other_core: testbed.cores.service };
            match Farm::start(options) {
                Ok(farm) => one_farm(bench, &farm, options, rounds, time),
                Err(error) => report_progress(&format!("no farm of {servers} servers: {error}")),
            }
        }
    }
}

#[derive(Default)]
struct Seen {
    watched: Vec<Watched>,
}

impl Seen {
    fn sample(&self) -> Sample {
        let mut sample = Sample::empty();
        for watched in &self.watched {
            watched.responses.iter().for_each(|response| sample.record(response.took, 1, 1));
        }
        sample.elapsed = self.watched.iter().map(|watched| watched.elapsed).sum();
        sample
    }

    /// Measurements of each interval, with the millisecond of its beginning.
    fn over_time(&self) -> Vec<(u128, Sample)> {
        let mut pieces = Vec::new();
        let mut began = Duration::ZERO;
        for watched in &self.watched {
            let mut piece = Duration::ZERO;
            while piece < watched.elapsed {
                let within = |at: Duration| piece <= at && at < piece + PIECE;
                let mut sample = Sample::empty();
                let seen = watched.responses.iter().filter(|response| within(response.at));
                seen.for_each(|response| sample.record(response.took, 1, 1));
                sample.elapsed = PIECE;
                if sample.operations > 0 {
                    pieces.push(((began + piece).as_millis(), sample));
                }
                piece += PIECE;
            }
            began += watched.elapsed;
        }
        pieces
    }

    fn mean(&self, of: impl Fn(&Watched) -> f64) -> f64 {
        self.watched.iter().map(of).sum::<f64>() / self.watched.len() as f64
    }
}

fn one_farm(bench: &mut Bench, farm: &Farm, options: FarmOptions, rounds: usize, time: Duration) {
    let (mut first, mut with, mut second) = (Seen::default(), Seen::default(), Seen::default());
    for _ in 0..rounds {
        for (seen, every) in [(&mut first, None), (&mut with, Some(EVERY)), (&mut second, None)] {
            seen.watched.push(farm.watch(CLIENTS, every, time).expect("the farm serves"));
        }
    }
    // Ratio of two runs under equal conditions.
    let noise = second.sample().quantile_us(0.99) / first.sample().quantile_us(0.99);
    let without = Seen { watched: first.watched.into_iter().chain(second.watched).collect() };
    let (word, servers) = (options.progress.word(), options.servers);
    let label =
        |name: &str, watch: &str| format!("{name},monitor,{FILE_BYTES},web/{watch}-{word}/s{servers},{CLIENTS}");
    let (before, after) = (without.sample(), with.sample());
    let p99 = after.quantile_us(0.99) / before.quantile_us(0.99);
    let server_cpu = |seen: &Seen| 100.0 * seen.mean(|watched| watched.server_node_cpu);
    let own_cpu = |seen: &Seen| 100.0 * seen.mean(|watched| watched.proxy_node_cpu);
    let readings = with.mean(|watched| watched.readings as f64 / watched.elapsed.as_secs_f64());
    let note = format!(
        "{readings:.0} readings a second; on each server's node {:.2} % of a core more (of {:.2} %), on the proxy's {:.2} %",
        server_cpu(&with) - server_cpu(&without),
        server_cpu(&with),
        own_cpu(&with),
    );
    bench.row(row(label("none", "off"), &before, None, Vec::new()));
    bench.row(row(label("ddss", "watched"), &after, Some(&before), vec![note.clone()]));
    let mode = format!("web/watched-{word}/s{servers}");
    for (ms, sample) in with.over_time() {
        let label = format!("ddss,monitor,{FILE_BYTES},{mode}/ms{ms},{CLIENTS}");
        bench.row(row(label, &sample, Some(&before), Vec::new()));
    }
    report_progress(&format!(
        "{servers} servers, progress thread {word}: p99 {p99:.2} of that without readings ({noise:.2} between two runs without); {note}"
    ));
}

fn row(label: String, sample: &Sample, first: Option<&Sample>, notes: Vec<String>) -> Row {
    let (p50_us, p99_us) = (sample.quantile_us(0.5), sample.quantile_us(0.99));
    let ratio = first.map(|first| p50_us / first.quantile_us(0.5));
    let operations_per_s = sample.operations_per_s();
    let rate_ratio = first.map(|first| operations_per_s / first.operations_per_s());
    let (p999_us, more) = (sample.quantile_us(0.999), ExtraColumns::default());
    Row { label, p50_us, p99_us, operations_per_s, p999_us, ratio, rate_ratio, more, notes }
}
