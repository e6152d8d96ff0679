//! One run of one bench.

use std::ffi::OsString;
use std::io::{self, Write};
use std::time::{Duration, Instant};

use super::compare::{Compared, compare};
use super::core_distance::{Distance, PATIENCE};
use super::cores::come_first;
use super::measure::Meter;
use super::report::Report;
use super::{Cores, Figure, Options, Plan, Row, StandaloneResult, pin};

/// Ratio up to which two medians of a short measurement count as equal.
const NOISE: f64 = 1.05;

/// One run of one bench: pins the calling thread, measures families of figures, prints their rows.
pub struct Bench {
    /// Placement of client and service.
    pub cores: Cores,
    /// Options of the command line.
    pub options: Options,
    plan: Plan,
    meter: Meter,
    distance: Distance,
    /// Remaining part of [`PATIENCE`], if separate cores were requested.
    patience: Duration,
    report: Report,
}

impl Bench {
    /// Reads the command line, takes the client's core, and prints the header of the rows.
    pub fn start(name: &str, arguments: impl Iterator<Item = OsString>) -> Bench {
        let options = Options::parse(arguments);
        let cores = Cores::of_this_machine();
        pin(cores.client).expect("the core is one of those that this process may use");
        report_progress(&format!("{name}: client on core {}, service on core {}", cores.client, cores.service));
        if cores.is_shared() {
            report_progress("only one core is there: both sides take turns on it, and every wait yields");
        }
        if !come_first() {
            report_progress("/proc/self/autogroup takes no -20: other sessions come as first as this one");
        }
        report_progress(&format!("reading the clock takes {} ns, and every lap holds one reading", clock_ns()));
        for argument in &options.ignored {
            report_progress(&format!("ignoring {argument}"));
        }
        let plan = options.plan();
        if !options.bench {
            report_progress("not run by cargo bench: everything runs once, and the numbers mean nothing");
        }
        let report = Report::start(options.csv_file(name).as_deref()).expect("the rows can be written");
        let mut distance = Distance::between(cores, options.line_min_ns.map(|least| f64::from(least) / 1000.0));
        let mut patience = Duration::ZERO;
        if let Some(least) = options.line_min_ns {
            patience = PATIENCE;
            let seconds = PATIENCE.as_secs();
            report_progress(&format!(
                "measuring while a line takes {least} ns at least, and up to {seconds} s in vain; after that rows are marked NEAR"
            ));
        }
        report_progress(&format!("a line takes {:.2} us from core to core and back", distance.start(&mut patience)));
        Bench { cores, options, plan, meter: Meter::new(), distance, patience, report }
    }

    /// Measures `limit` and its figures in turns, and prints their rows, the limit's first. Measures nothing if
    /// `--only` names none of them.
    pub fn family(&mut self, mut limit: Figure, mut figures: Vec<Figure>) {
        let wanted = self.options.wants(&limit.label());
        figures.retain(|figure| self.options.wants(&figure.label()));
        if !wanted && figures.is_empty() {
            return;
        }
        let slice = self.plan.slice;
        let measure = |figure: &mut Figure, time| {
            if time != slice {
                return (self.meter.measure(figure, time), true);
            }
            let label = figure.label();
            self.distance.around(Some(&label), || self.meter.measure(figure, time))
        };
        let mut compared = compare(self.plan, &mut self.patience, &mut limit, &mut figures, measure);
        let own = compared.pop().expect("the limit is the last");
        let rows = std::iter::once(Row::new(&limit, &own, true))
            .chain(figures.iter().zip(&compared).map(|(figure, compared)| Row::new(figure, compared, false)));
        let rows: Vec<Row> = rows.collect();
        for row in rows {
            self.report(row);
        }
    }

    /// Reports to the reader that a measurement is skipped, and why.
    pub fn skip(&self, what: &str, why: &str) {
        ddss_testkit::skipped(what, why);
    }

    /// Sets the amount of measurement from here on.
    pub fn set_plan(&mut self, plan: Plan) {
        if self.options.bench {
            self.plan = plan;
        }
    }

    /// Returns the candidate with the lowest median beside `limit`, and a note. The measurement is short, so a later
    /// candidate wins only by more than noise.
    pub fn quickest(&mut self, mut limit: Figure, candidates: Vec<(&str, Figure)>) -> (usize, String) {
        let (names, mut figures): (Vec<&str>, Vec<Figure>) = candidates.into_iter().unzip();
        let plan = self.plan.for_a_choice();
        let measure = |figure: &mut Figure, time| self.distance.around(None, || self.meter.measure(figure, time));
        let compared = compare(plan, &mut self.patience, &mut limit, &mut figures, measure);
        let ratios: Vec<f64> = compared.iter().map(Compared::ratio).collect();
        let best = (1..names.len()).fold(0, |best, next| if ratios[next] * NOISE < ratios[best] { next } else { best });
        let others = (0..names.len()).filter(|&index| index != best);
        let others: Vec<String> =
            others.map(|index| format!("{}: {:.1} x", names[index], ratios[index] / ratios[best])).collect();
        (best, format!("{} ({})", names[best], others.join(", ")))
    }

    /// Measures something that runs by itself for the time that it is given, between two probes of `limit`, and
    /// prints its row. `label` is the first five columns.
    pub fn by_itself(
        &mut self,
        limit: &mut Figure,
        label: &str,
        time: Duration,
        run: impl FnOnce(Duration) -> StandaloneResult,
    ) {
        if !self.options.wants(label) {
            return;
        }
        self.distance.probe(label);
        let before = self.meter.measure(limit, self.plan.probe);
        let StandaloneResult { sample, more, mut notes } = run(time);
        let after = self.meter.measure(limit, self.plan.probe);
        self.distance.probe(label);
        let compared = Compared::of(before, sample, &after);
        if compared.is_noisy() {
            notes.push("NOISY: the limit moved meanwhile".to_owned());
        }
        self.report(Row { more, ..Row::of(label, &compared, notes) });
    }

    /// Prints a row of something that was measured elsewhere.
    pub fn row(&mut self, row: Row) {
        if self.options.wants(&row.label) {
            self.report.row(row).expect("the rows can be written");
        }
    }

    /// Prints a row that was measured elsewhere, with the core distance during its measurement.
    fn report(&mut self, mut row: Row) {
        if let Some(beside) = self.distance.beside(&row.label) {
            row.more.line_us = Some(beside.median_us);
            row.notes.extend(self.distance.note(beside));
        }
        self.report.row(row).expect("the rows can be written");
    }

    /// Prints the table for people.
    pub fn finish(self) {
        self.report.finish().expect("the table can be written");
    }
}

fn report_progress(what: &str) {
    // Notes are a courtesy: a closed standard error is no reason to stop.
    drop(writeln!(io::stderr().lock(), "# {what}"));
}

fn clock_ns() -> u128 {
    const READINGS: u128 = 10_000;
    let begin = Instant::now();
    let mut last = begin;
    for _ in 0..READINGS {
        last = Instant::now();
    }
    (last - begin).as_nanos() / READINGS
}
