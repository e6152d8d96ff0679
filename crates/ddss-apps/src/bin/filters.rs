//! Runs the two programs of filter streams and compares each answer with a direct computation; see `filters --help`.
#![forbid(unsafe_code)]

use std::collections::BTreeMap;
use std::env;
use std::error::Error;
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use ddss_apps::filters::isosurface::{self, Viewpoint, Volume};
use ddss_apps::filters::microscope::{self, SlideWriter, View};
use ddss_apps::filters::{
    FilterGroup, GroupConfig, LinkKind, Query, StageCommand, StageInput, StageOutput, run_filter,
};
use ddss_testkit::{Random, TempNode};

const USAGE: &str = "\
usage: filters microscope|isosurface [--link KIND] [--queries N] [--runs N] [--copies N] [--data FOLDER] [--image FILE]
                                    [--csv FILE]

Starts one process for each filter, sends queries, and compares each answer with a direct computation. The exit status is 1 if one differs.

  --link KIND    streams between the filters: tcp, unix, same-node, basic, enhanced; without it, each kind in turn
  --queries N    queries of a run (default 8)
  --runs N       runs of each kind, in an order that rotates (default 1)
  --copies N     copies of the picture in each direction of the slide (default 4; 32 make 1 GiB of pixels)
  --data FOLDER  tissue.rgb (512 x 512) or reservoir.u8 (250 x 250 x 100), as scripts/datasets writes them;
                 without it, a small piece of the tissue, or a computed body
  --image FILE   writes the last answer as PPM or PGM
  --csv FILE     writes a row for each kind, for the report of the benches: the time of a query, and its ratio to basic

  scripts/datasets && filters microscope --data target/datasets --copies 32
  filters isosurface --link same-node --image surface.pgm";

/// A piece of the picture `ihc.png` of scikit-image; see `data/README.md`.
const TISSUE: &[u8] = include_bytes!("../../data/tissue.rgb");
const TISSUE_SIDE: u32 = 64;
/// Sides of the fetched data.
const WHOLE_TISSUE_SIDE: u32 = 512;
const RESERVOIR_SIDES: [u32; 3] = [250, 250, 100];
/// Maximum time until the next unit of an answer.
const UNIT_MAX: Duration = Duration::from_secs(60);

/// Columns of the rows: those of every bench of `ddss-benches`, then those of this program.
const COLUMNS: &str = "name,op,size,mode,outstanding,p50_us,p99_us,ops_per_s,of_basic,of_limit,runs,notes";

fn main() -> ExitCode {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let result = match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["--help" | "-h"] => writeln!(io::stdout(), "{USAGE}").map(|()| ExitCode::SUCCESS).map_err(Into::into),
        ["stage", program, name, file, "--input", input, "--output", output, address, "--folder", folder] => {
            run_stage([program, name, file], [input, output, address], Path::new(folder)).map(|()| ExitCode::SUCCESS)
        }
        [program @ ("microscope" | "isosurface"), ref options @ ..] => {
            Options::parse(options).and_then(|options| options.run(program))
        }
        _ => Err(USAGE.into()),
    };
    result.unwrap_or_else(|error| {
        let _ = writeln!(io::stderr(), "{}", chain(&*error));
        ExitCode::from(2)
    })
}

/// Returns an error with its causes.
fn chain(error: &dyn Error) -> String {
    let (mut text, mut cause) = (error.to_string(), error.source());
    while let Some(error) = cause {
        text = format!("{text}: {error}");
        cause = error.source();
    }
    text
}

/// Runs one filter in this process.
fn run_stage(
    [program, name, file]: [&str; 3],
    [input, output, address]: [&str; 3],
    folder: &Path,
) -> Result<(), Box<dyn Error>> {
    let mut filter = match program {
        "microscope" => microscope::stage(name, Path::new(file))?,
        _ => isosurface::stage(name, Path::new(file))?,
    };
    let input = StageInput::listen(input.parse()?, folder, name)?;
    writeln!(io::stdout(), "{}", input.address())?;
    let to = StageOutput::connect(output.parse()?, address)?;
    let (units, bytes) = run_filter(&mut *filter, input.accept()?, to)?;
    Ok(writeln!(io::stdout(), "sent {units} units in {bytes} bytes")?)
}

struct Options {
    links: Vec<LinkKind>,
    queries: u32,
    runs: u32,
    copies: u32,
    data: Option<PathBuf>,
    image: Option<PathBuf>,
    csv: Option<PathBuf>,
}

/// Seconds of the runs of each kind.
type Seconds = BTreeMap<String, Vec<f64>>;

/// A query with the answer that it must have.
type Expected = (Vec<u8>, Vec<u8>);

impl Options {
    fn parse(options: &[&str]) -> Result<Self, Box<dyn Error>> {
        let mut parsed =
            Self { links: LinkKind::ALL.to_vec(), queries: 8, runs: 1, copies: 4, data: None, image: None, csv: None };
        for pair in options.chunks(2) {
            let [option, value] = pair else { return Err(USAGE.into()) };
            match *option {
                "--link" => parsed.links = vec![value.parse()?],
                "--queries" => parsed.queries = value.parse::<u32>()?.max(1),
                "--runs" => parsed.runs = value.parse::<u32>()?.max(1),
                "--copies" => parsed.copies = value.parse::<u32>()?.max(1),
                "--data" => parsed.data = Some(value.into()),
                "--image" => parsed.image = Some(value.into()),
                "--csv" => parsed.csv = Some(value.into()),
                _ => return Err(USAGE.into()),
            }
        }
        Ok(parsed)
    }

    fn run(&self, program: &str) -> Result<ExitCode, Box<dyn Error>> {
        let folder = TempNode::new()?;
        let file = folder.path().join("data");
        let (queries, header) = if program == "microscope" { self.views(&file)? } else { self.viewpoints(&file)? };
        let stages: &[&'static str] = if program == "microscope" { &microscope::STAGES } else { &isosurface::STAGES };
        let mut seconds = Seconds::new();
        let (mut different, mut last, mut out) = (0, Vec::new(), io::stdout().lock());
        let turns = (0..self.runs as usize).flat_map(|run| (0..self.links.len()).map(move |turn| (run, turn)));
        for (run, turn) in turns {
            // Load that comes and goes falls on all kinds.
            let link = self.links[(run + turn) % self.links.len()];
            let folder = folder.path().join(format!("{link}-{run}"));
            fs::create_dir(&folder)?;
            let arguments = |name: &str| ["stage", program, name, &file.to_string_lossy()].map(str::to_owned).to_vec();
            let stages = stages.iter().map(|name| StageCommand { name, arguments: arguments(name) }).collect();
            let config = GroupConfig { program: env::current_exe()?, stages, link, folder, unit_max: UNIT_MAX };
            let mut group = FilterGroup::start(&config)?;
            let mut elapsed = Duration::ZERO;
            for (query, expected) in &queries {
                let answer = group.ask(query)?;
                elapsed += answer.elapsed;
                different += usize::from(answer.bytes != *expected);
                last = answer.bytes;
            }
            let sent = group.finish()?;
            let first = sent.first().map_or("", |(_, line)| line.as_str());
            let elapsed = elapsed.as_secs_f64();
            writeln!(out, "{link}: {} queries in {elapsed:.3} s; the first filter {first}", queries.len())?;
            seconds.entry(link.to_string()).or_default().push(elapsed);
        }
        for (link, times) in seconds.iter().filter(|_| self.runs > 1) {
            writeln!(out, "{link}: median {:.3} s of {} runs", quantile(times, 0.5), times.len())?;
        }
        if let Some(path) = &self.csv {
            fs::write(path, self.rows(program, &seconds))?;
        }
        if let Some(path) = &self.image {
            fs::write(path, [header.as_bytes(), &last].concat())?;
        }
        let answers = queries.len() * self.links.len() * self.runs as usize;
        writeln!(out, "{} of {answers} answers equal the direct computation", answers - different)?;
        Ok(ExitCode::from(u8::from(different > 0)))
    }

    /// Returns the rows of a program for the report.
    fn rows(&self, program: &str, seconds: &Seconds) -> String {
        let unit_bytes = if program == "microscope" { microscope::TILE_BYTES } else { isosurface::BLOCK_BYTES };
        let mut text = format!("{COLUMNS}\n");
        for (link, times) in seconds {
            let [p50_us, p99_us] = [0.5, 0.99].map(|share| quantile(times, share) * 1e6 / f64::from(self.queries));
            let ratio = |base: &str| {
                let ratios: Option<Vec<f64>> =
                    seconds.get(base).map(|base| times.iter().zip(base).map(|(own, base)| own / base).collect());
                ratios.map_or_else(String::new, |ratios| format!("{:.4}", quantile(&ratios, 0.5)))
            };
            let (to_basic, to_tcp, runs, per_s) = (ratio("basic"), ratio("tcp"), times.len(), 1e6 / p50_us);
            let data = if self.data.is_some() { "real data" } else { "a small piece of data" };
            let notes = format!("{} queries; {} copies; {data}", self.queries, self.copies);
            text += &format!(
                "{link},{program},{unit_bytes},tcp-lo/block/t1,1,{p50_us:.1},{p99_us:.1},{per_s:.2},{to_basic},{to_tcp},{runs},{notes}\n"
            );
        }
        text
    }

    /// Writes the slide. Returns views of it with their images, and the header of an image file.
    fn views(&self, file: &Path) -> Result<(Vec<Expected>, String), Box<dyn Error>> {
        let (pixels, side) = match &self.data {
            None => (TISSUE.to_vec(), TISSUE_SIDE),
            Some(folder) => (self.fetched(folder, "tissue.rgb", 3 * WHOLE_TISSUE_SIDE.pow(2))?, WHOLE_TISSUE_SIDE),
        };
        SlideWriter { pixels: &pixels, side, copies: self.copies }.write(file)?;
        let (whole, mut random) = (side * self.copies, Random::new(1));
        let mut between = |from: u32, to: u32| from + random.below(u64::from(to - from + 1)) as u32;
        let [mut columns, mut rows] = [0; 2];
        let mut views = Vec::new();
        for _ in 0..self.queries {
            let zoom = 1 << between(0, 3);
            [columns, rows] = [between(1, 512.min(whole / zoom)), between(1, 512.min(whole / zoom))];
            let [x, y] = [columns, rows].map(|length| between(0, whole - length * zoom));
            let view = View { x, y, columns, rows, zoom };
            views.push((view.to_bytes(), microscope::direct_view(&view, &pixels, side)));
        }
        Ok((views, format!("P6 {columns} {rows} 255\n")))
    }

    /// Writes the volume. Returns viewpoints with their images, and the header of an image file.
    fn viewpoints(&self, file: &Path) -> Result<(Vec<Expected>, String), Box<dyn Error>> {
        let (values, samples, level) = match &self.data {
            None => (body(), [48, 40, 36], 127.5),
            Some(folder) => {
                (self.fetched(folder, "reservoir.u8", RESERVOIR_SIDES.iter().product())?, RESERVOIR_SIDES, 1.5)
            }
        };
        Volume::write(file, samples, &values)?;
        let side = 512;
        let viewpoint = |number: u32| Viewpoint { level, turn: 0.7 * number as f32, tilt: 0.9, side, samples };
        let viewpoints = (0..self.queries).map(viewpoint);
        let expected =
            viewpoints.map(|viewpoint| (viewpoint.to_bytes(), isosurface::direct_image(&viewpoint, &values))).collect();
        Ok((expected, format!("P5 {side} {side} 255\n")))
    }

    fn fetched(&self, folder: &Path, name: &str, bytes: u32) -> Result<Vec<u8>, Box<dyn Error>> {
        let path = folder.join(name);
        let data =
            fs::read(&path).map_err(|error| format!("{}: {error}; scripts/datasets fetches it", path.display()))?;
        if data.len() != bytes as usize {
            return Err(format!(
                "{} has {} bytes instead of {bytes}; scripts/datasets fetches it",
                path.display(),
                data.len()
            )
            .into());
        }
        Ok(data)
    }
}

/// Returns the time below which this share of the times lies.
fn quantile(times: &[f64], share: f64) -> f64 {
    let mut sorted = times.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted[((sorted.len() - 1) as f64 * share).round() as usize]
}

/// Samples of a body with holes: three waves.
fn body() -> Vec<u8> {
    let wave = |n: u32| (n as f32 / 4.0).sin();
    let sample = |at: u32| {
        let [x, y, z] = [at % 48, at / 48 % 40, at / (48 * 40)];
        128.0 + 60.0 * (wave(x) * wave(y + 6) + wave(y) * wave(z + 6) + wave(z) * wave(x + 6))
    };
    (0..48 * 40 * 36).map(|at| sample(at).clamp(0.0, 255.0) as u8).collect()
}
