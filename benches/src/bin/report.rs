//! The page of figures: `cargo run --release -p ddss-benches --bin report -- [--quick] --out DIR`.
#![forbid(unsafe_code)]
#![allow(clippy::print_stdout, reason = "a command prints to its user")]

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use ddss_benches::report::{self, BenchRun, Drawn, Machine, Picture, ReadmeInputs, Rows};
use ddss_benches::scale_projection;
use serde_json::Value;

const USAGE: &str = "\
usage: report [--quick] --out DIR [--from DIR] [--with FILE].. [--only BENCH].. [--docs DIR] [--readme FILE]..
       report --redraw FILE --out DIR [--with FILE]..

Runs the benches, one after the other, and writes into DIR: the pages figures.md, stream-figures.md and river-figures.md with a
picture figures/NAME.svg for each figure, their data (figures.json), the rows of each bench (NAME.csv), all of them (results.csv,
results.json), and what each bench said (NAME.log).

  --quick       fewer and shorter rounds: under a minute instead of under ten
  --from DIR    runs nothing and draws the rows that are in DIR
  --with FILE   copies another file of rows into DIR first: what `scripts/vm bench` or the applications wrote
  --only BENCH  runs only this bench; the rows of the others are those that DIR already has
  --docs DIR    writes the pages, figures.json and figures/NAME.svg there as well
  --readme FILE fills the marked places of this page; also from chaos.json and demo.txt if they are beside the rows
  --redraw FILE runs nothing and draws the figures of this figures.json; those of which the rows of --with show something
                are replaced";

#[derive(Default)]
struct Wishes {
    quick: bool,
    out: PathBuf,
    from: Option<PathBuf>,
    with: Vec<PathBuf>,
    only: Vec<String>,
    docs: Option<PathBuf>,
    redraw: Option<PathBuf>,
    readme: Vec<PathBuf>,
}

fn main() -> ExitCode {
    let Some(wishes) = wishes(std::env::args().skip(1)) else {
        println!("{USAGE}");
        return ExitCode::from(2);
    };
    match make(&wishes) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            println!("report: {error}");
            ExitCode::FAILURE
        }
    }
}

fn wishes(mut arguments: impl Iterator<Item = String>) -> Option<Wishes> {
    let mut wishes = Wishes::default();
    while let Some(argument) = arguments.next() {
        match &*argument {
            "--quick" => wishes.quick = true,
            "--out" => wishes.out = arguments.next()?.into(),
            "--from" => wishes.from = Some(arguments.next()?.into()),
            "--with" => wishes.with.push(arguments.next()?.into()),
            "--only" => wishes.only.push(arguments.next()?),
            "--docs" => wishes.docs = Some(arguments.next()?.into()),
            "--redraw" => wishes.redraw = Some(arguments.next()?.into()),
            "--readme" => wishes.readme.push(arguments.next()?.into()),
            _ => return None,
        }
    }
    let known = wishes.only.iter().all(|name| report::BENCHES.contains(&&**name));
    (known && !wishes.out.as_os_str().is_empty()).then_some(wishes)
}

fn make(wishes: &Wishes) -> io::Result<bool> {
    let out = &wishes.out;
    fs::create_dir_all(out)?;
    if let Some(file) = &wishes.redraw {
        let drawn = Drawn::parse(&fs::read_to_string(file)?)?;
        write_figures(&drawn.with(replacements(&wishes.with)?), out)?;
        return Ok(true);
    }
    for file in &wishes.with {
        let name = file.file_name().ok_or_else(|| io::Error::other(format!("{} is no file", file.display())))?;
        fs::copy(file, out.join(name))?;
    }
    let (machine, ran, mut rows) = match &wishes.from {
        Some(from) => recorded(from)?,
        None => measured(wishes)?,
    };
    for file in &wishes.with {
        rows.add(with(file)?);
    }
    if let Some(shape) = scale_projection::simulate(&rows) {
        fs::write(out.join("shape.csv"), &shape)?;
        rows.add(Rows::parse("shape", &shape).map_err(io::Error::other)?);
    }
    let drawn = Drawn { machine: machine.words(), pictures: report::figures::figures(&rows) };
    fs::write(out.join("results.csv"), report::to_csv(&rows))?;
    let json = serde_json::to_string_pretty(&report::to_json(&machine, &ran, &rows)).map_err(io::Error::other)?;
    fs::write(out.join("results.json"), json + "\n")?;
    write_figures(&drawn, out)?;
    if let Some(docs) = &wishes.docs {
        write_figures(&drawn, docs)?;
    }
    for page in &wishes.readme {
        let said = said(wishes.from.as_ref().unwrap_or(out))?;
        let text = report::readme(&fs::read_to_string(page)?, &machine, &rows, &said).map_err(io::Error::other)?;
        fs::write(page, text)?;
    }
    let count = drawn.pictures.iter().filter(|picture| !picture.panels.is_empty()).count();
    let (all, rows, page) = (drawn.pictures.len(), rows.0.len(), out.join("figures.md"));
    println!("{count} of {all} figures, {rows} rows: {}", page.display());
    Ok(ran.iter().all(|ran| ran.passed))
}

/// Returns the figures that can be drawn from these files of rows alone.
fn replacements(files: &[PathBuf]) -> io::Result<Vec<Picture>> {
    let mut rows = Rows::default();
    for file in files {
        rows.add(with(file)?);
    }
    // The rows may be older than the commit.
    let machine = Machine::here().seen_in(&rows).words();
    let machine = machine.split(", commit").next().unwrap_or_default();
    let note = |mut picture: Picture| {
        picture.notes.push(format!("Measured apart from the other figures: {machine}."));
        picture
    };
    Ok(report::figures::figures(&rows).into_iter().filter(|picture| !picture.panels.is_empty()).map(note).collect())
}

/// Reads a file of rows.
fn with(file: &Path) -> io::Result<Rows> {
    let name = file.file_stem().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    Rows::parse(&name, &fs::read_to_string(file)?).map_err(io::Error::other)
}

/// Reads further results beside the rows.
fn said(folder: &Path) -> io::Result<ReadmeInputs> {
    let read = |name: &str| match fs::read_to_string(folder.join(name)) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    };
    let chaos = read("chaos.json")?.map(|text| serde_json::from_str(&text)).transpose().map_err(io::Error::other)?;
    Ok(ReadmeInputs { demo: read("demo.txt")?, chaos })
}

/// Writes the pages of the figures, their data, and their pictures.
fn write_figures(drawn: &Drawn, folder: &Path) -> io::Result<()> {
    // Reading a number may change its last digit; reading it again does not.
    let drawn = &Drawn::parse(&drawn.to_text()?)?;
    let figures = folder.join("figures");
    fs::create_dir_all(&figures)?;
    for (paper, page) in report::PAGES {
        fs::write(folder.join(page), report::markdown(paper, "scripts/figures", drawn))?;
    }
    fs::write(folder.join("figures.json"), drawn.to_text()?)?;
    for picture in drawn.pictures.iter().filter(|picture| !picture.panels.is_empty()) {
        fs::write(figures.join(&picture.id).with_extension("svg"), report::draw(picture)?)?;
    }
    Ok(())
}

fn measured(wishes: &Wishes) -> io::Result<(Machine, Vec<BenchRun>, Rows)> {
    let ran = report::run(&wishes.only, wishes.quick, &wishes.out, |what| println!("{what}"))?;
    let rows = Rows::read(&wishes.out).map_err(io::Error::other)?;
    Ok((Machine::here().seen_in(&rows), ran, rows))
}

/// Reads the results of an earlier run: its machine, its benches and its rows.
fn recorded(from: &Path) -> io::Result<(Machine, Vec<BenchRun>, Rows)> {
    let rows = Rows::read(from).map_err(io::Error::other)?;
    let text = fs::read_to_string(from.join("results.json")).unwrap_or_default();
    let value: Value = serde_json::from_str(&text).unwrap_or_default();
    let ran = value["ran"].as_array().map(Vec::as_slice).unwrap_or_default().iter().map(BenchRun::of).collect();
    let machine = if value["machine"].is_object() { Machine::of(&value["machine"]) } else { Machine::here() };
    Ok((machine.seen_in(&rows), ran, rows))
}
