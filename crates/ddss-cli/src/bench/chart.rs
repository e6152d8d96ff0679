//! SVG chart of the figures: a bar from the median to the 99th percentile of each call, on a logarithmic scale.

use super::row::Row;
use std::fmt::Write;

const LEFT: f64 = 220.0;
const WIDTH: f64 = 560.0;
const TOP: f64 = 64.0;
const LINE: f64 = 24.0;

/// A logarithmic scale, whose ends are powers of ten.
struct Scale {
    from: f64,
    to: f64,
}

impl Scale {
    fn over(times: impl Iterator<Item = f64>) -> Self {
        let (mut from, mut to) = (f64::INFINITY, f64::NEG_INFINITY);
        for time in times {
            let power = time.max(0.001).log10();
            (from, to) = (from.min(power.floor()), to.max(power.ceil()));
        }
        Self { from, to: to.max(from + 1.0) }
    }

    fn x(&self, us: f64) -> f64 {
        LEFT + WIDTH * (us.max(0.001).log10() - self.from) / (self.to - self.from)
    }

    fn powers(&self) -> impl Iterator<Item = i32> {
        self.from as i32..=self.to as i32
    }
}

/// Formats a power of ten of microseconds.
fn format_power(power: i32) -> String {
    match power {
        ..0 => format!("{} ns", 10_i64.pow((3 + power).max(0) as u32)),
        0..3 => format!("{} µs", 10_i64.pow(power as u32)),
        _ => format!("{} ms", 10_i64.pow(power as u32 - 3)),
    }
}

/// Returns the colour of a path. Each label names the path, too, for readers who cannot distinguish the colours.
fn colour(path: &str) -> &'static str {
    match path {
        "local" => "#2a9d8f",
        "daemon" => "#3a6ea5",
        _ => "#c8553d",
    }
}

/// Draws the chart as SVG.
pub(super) fn draw(rows: &[Row], baseline_us: f64) -> String {
    let times = rows.iter().flat_map(|row| [row.p50_us, row.p99_us]).chain([baseline_us]);
    let scale = Scale::over(times);
    let (height, end) = (TOP + LINE * rows.len() as f64 + 40.0, TOP + LINE * rows.len() as f64);
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {} {height}\" font-family=\"sans-serif\" font-size=\"13\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n\
         <text x=\"16\" y=\"26\" font-size=\"16\" font-weight=\"bold\">DDSS on this machine</text>\n\
         <text x=\"16\" y=\"46\" fill=\"#555\">from the median (dot) to the 99th percentile of each call</text>\n",
        LEFT + WIDTH + 40.0
    );
    let mut line = |words: std::fmt::Arguments<'_>| writeln!(svg, "{words}").expect("a string takes every word");
    for power in scale.powers() {
        let x = scale.x(10f64.powi(power));
        line(format_args!("<line x1=\"{x:.1}\" y1=\"{TOP}\" x2=\"{x:.1}\" y2=\"{end}\" stroke=\"#ddd\"/>"));
        let (y, words) = (end + 18.0, format_power(power));
        line(format_args!("<text x=\"{x:.1}\" y=\"{y}\" text-anchor=\"middle\" fill=\"#555\">{words}</text>"));
    }
    let x = scale.x(baseline_us);
    line(format_args!(
        "<line x1=\"{x:.1}\" y1=\"{TOP}\" x2=\"{x:.1}\" y2=\"{end}\" stroke=\"#888\" stroke-dasharray=\"4 3\"/>"
    ));
    line(format_args!(
        "<text x=\"{x:.1}\" y=\"{}\" text-anchor=\"middle\" fill=\"#555\">one cache line</text>",
        TOP - 4.0
    ));
    for (index, row) in rows.iter().enumerate() {
        let y = TOP + LINE * (index as f64 + 0.5);
        let (from, to, fill) = (scale.x(row.p50_us), scale.x(row.p99_us), colour(row.path));
        line(format_args!("<text x=\"{}\" y=\"{}\" text-anchor=\"end\">{}</text>", LEFT - 12.0, y + 4.0, row.label()));
        line(format_args!(
            "<rect x=\"{from:.1}\" y=\"{}\" width=\"{:.1}\" height=\"6\" fill=\"{fill}\" fill-opacity=\"0.35\"/>",
            y - 3.0,
            (to - from).max(0.0)
        ));
        line(format_args!("<circle cx=\"{from:.1}\" cy=\"{y}\" r=\"4.5\" fill=\"{fill}\"/>"));
    }
    svg.push_str("</svg>\n");
    svg
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scale_maps_times_to_positions() {
        let scale = Scale::over([0.4, 55.0].into_iter());
        assert_eq!((scale.from, scale.to), (-1.0, 2.0));
        assert_eq!(scale.x(0.1), LEFT);
        assert!((scale.x(100.0) - LEFT - WIDTH).abs() < 1e-9);
        assert!((scale.x(1.0) - LEFT - WIDTH / 3.0).abs() < 1e-9);
        assert_eq!([-2, 0, 2, 4].map(format_power), ["10 ns", "1 µs", "100 µs", "10 ms"]);
        // A single figure has a scale, too.
        assert!(Scale::over([1.0].into_iter()).x(1.0).is_finite());
    }
}
