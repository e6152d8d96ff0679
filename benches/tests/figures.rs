//! Tests of the committed figures: they are drawn from the committed data, and several renderers show them alike.
#![allow(clippy::unwrap_used, clippy::print_stderr, reason = "a test ends where something is not as it should be")]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::Cursor;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use roxmltree::{Document, Node};
use serde_json::Value;

fn notes() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/notes")
}

/// The committed pictures, by name.
fn pictures() -> Vec<(String, PathBuf)> {
    let files = fs::read_dir(notes().join("figures")).unwrap().map(|file| file.unwrap().path());
    let mut pictures: Vec<(String, PathBuf)> =
        files.map(|path| (path.file_name().unwrap().to_string_lossy().into_owned(), path)).collect();
    pictures.sort();
    assert!(pictures.len() >= 15, "{} figures", pictures.len());
    pictures
}

// If this failed, a committed picture would show something else than the committed numbers.
#[test]
fn committed_figures_are_drawn_from_the_committed_data() {
    let out = tempfile::tempdir().unwrap();
    let data = notes().join("figures.json");
    let (data, folder) = (data.to_str().unwrap(), out.path().to_str().unwrap());
    let report = Command::new(env!("CARGO_BIN_EXE_report")).args(["--redraw", data, "--out", folder]).output().unwrap();
    assert!(report.status.success(), "{}", String::from_utf8_lossy(&report.stdout));
    let names: Vec<String> = pictures().into_iter().map(|(name, _)| format!("figures/{name}")).collect();
    for name in
        names.iter().map(String::as_str).chain(["figures.md", "stream-figures.md", "river-figures.md", "figures.json"])
    {
        let [committed, drawn] =
            [notes().join(name), out.path().join(name)].map(|path| fs::read_to_string(path).unwrap());
        assert!(committed == drawn, "docs/notes/{name}: run scripts/figures --redraw");
    }
    assert_eq!(fs::read_dir(out.path().join("figures")).unwrap().count(), names.len());
}

/// Left, top, right and bottom of a text, with letters as wide as those of DejaVu Sans.
fn extent(text: Node<'_, '_>) -> [f64; 4] {
    let number = |name: &str| text.attribute(name).unwrap().parse::<f64>().unwrap();
    let (x, y, size) = (number("x"), number("y"), number("font-size"));
    let width = 0.6 * size * text.text().unwrap().trim().chars().count() as f64;
    let left = match text.attribute("text-anchor").unwrap() {
        "start" => x,
        "middle" => x - width / 2.0,
        _ => x - width,
    };
    let middle = match text.attribute("dy").unwrap() {
        "0.76em" => y + size / 2.0,
        "0.5ex" => y,
        _ => y - size / 2.0,
    };
    [left, middle - size * 0.4, left + width, middle + size * 0.4]
}

// If this failed, a label would run into the next one, or out of the picture.
#[test]
fn labels_do_not_overlap() {
    for (name, path) in pictures() {
        let svg = fs::read_to_string(path).unwrap();
        let document = Document::parse(&svg).unwrap();
        let width: f64 = document.root_element().attribute("width").unwrap().parse().unwrap();
        let texts: Vec<(&str, [f64; 4])> = document
            .descendants()
            .filter(|node| node.tag_name().name() == "text")
            .map(|node| (node.text().unwrap().trim(), extent(node)))
            .collect();
        assert!(texts.len() > 10, "{name}: {} texts", texts.len());
        for (index, (words, a)) in texts.iter().enumerate() {
            assert!(a[0] >= 0.0 && a[2] <= width, "{name}: {words:?} leaves the picture");
            for (other, b) in &texts[index + 1..] {
                let is_apart = a[2] <= b[0] || b[2] <= a[0] || a[3] <= b[1] || b[3] <= a[1];
                assert!(is_apart, "{name}: {words:?} and {other:?} overlap: {a:?} {b:?}");
            }
        }
    }
}

/// Maximum number of curves in a panel, so that it stays readable.
const CURVES_MAX: usize = 6;

// If this failed, a reader could not distinguish two curves in a panel or in a legend, or a panel would have too many
// curves. Style and dashes define lines and marks.
#[test]
fn curves_of_a_picture_look_different() {
    let data: Value = serde_json::from_str(&fs::read_to_string(notes().join("figures.json")).unwrap()).unwrap();
    let mut read = 0;
    for figure in data["pictures"].as_array().unwrap() {
        let mut labels: BTreeMap<String, &str> = BTreeMap::new();
        let panels = figure["panels"].as_array().unwrap();
        for panel in panels.iter().filter_map(|panel| panel.get("curves")) {
            let curves = panel["curves"].as_array().unwrap();
            let title = &panel["title"];
            assert!(curves.len() <= CURVES_MAX, "{title} has {} curves", curves.len());
            let names: BTreeSet<&str> = curves.iter().map(|curve| curve["label"].as_str().unwrap()).collect();
            assert_eq!(names.len(), curves.len(), "{title}: two curves have one label");
            for curve in curves {
                let look = format!("{} {}", curve["curve_style"], curve["is_dashed"]);
                let label = curve["label"].as_str().unwrap();
                let other = *labels.entry(look).or_insert(label);
                assert_eq!(other, label, "{title}: both look alike in {}", figure["id"]);
                read += 1;
            }
        }
    }
    assert!(read > 100, "only {read} curves were read");
}

// If this failed, a number of the paper would look like one of ours, or would be missing beside it.
#[test]
fn numbers_of_the_paper_are_hollow_marks() {
    let data: Value = serde_json::from_str(&fs::read_to_string(notes().join("figures.json")).unwrap()).unwrap();
    let mut read = 0;
    for figure in data["pictures"].as_array().unwrap() {
        let panels = figure["panels"].as_array().unwrap();
        let marks = panels.iter().filter_map(|panel| panel["curves"]["marks"].as_array()).map(Vec::len).sum::<usize>();
        let rows = panels.iter().flat_map(|panel| [&panel["bars"]["bars"], &panel["table"]["rows"]]);
        let papers = rows.filter_map(Value::as_array).flatten().filter(|row| !row["paper"].is_null()).count();
        if marks + papers == 0 {
            continue;
        }
        let name = figure["id"].as_str().unwrap();
        let svg = fs::read_to_string(notes().join(format!("figures/{name}.svg"))).unwrap();
        let document = Document::parse(&svg).unwrap();
        let is_hollow =
            |node: &Node<'_, '_>| node.tag_name().name() == "polygon" && node.attribute("fill") == Some("#FFFFFF");
        // The legend has one more, as an explanation.
        assert_eq!(document.descendants().filter(is_hollow).count(), marks + papers + 1, "{name}");
        read += marks + papers;
    }
    assert!(read > 20, "only {read} numbers of the paper were read");
}

/// Renderers with the arguments that make a PNG of FILE on their standard output.
const RENDERERS: [(&str, &[&str]); 4] = [
    ("rsvg-convert", &["FILE"]),
    ("inkscape", &["--export-type=png", "--export-filename=-", "FILE"]),
    ("resvg", &["--sans-serif-family", "DejaVu Sans", "FILE", "-c"]),
    ("cairosvg", &["-f", "png", "FILE"]),
];

/// A rendered picture.
struct Pixels {
    width: usize,
    colours: Vec<[u8; 3]>,
}

fn is_there(program: &str) -> bool {
    let silent = Command::new(program).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
    silent.is_ok_and(|status| status.success())
}

fn render(program: &str, arguments: &[&str], file: &Path) -> Pixels {
    let file = file.to_str().unwrap();
    let arguments = arguments.iter().map(|word| if *word == "FILE" { file } else { word });
    let output = Command::new(program).args(arguments).output().unwrap();
    assert!(output.status.success(), "{program}: {}", String::from_utf8_lossy(&output.stderr));
    let mut decoder = png::Decoder::new(Cursor::new(output.stdout));
    decoder.set_transformations(png::Transformations::normalize_to_color8());
    let mut reader = decoder.read_info().unwrap();
    let mut bytes = vec![0; reader.output_buffer_size().unwrap()];
    let info = reader.next_frame(&mut bytes).unwrap();
    let samples = info.color_type.samples();
    assert!(samples >= 3, "{program} draws grey");
    let pixels = bytes[..info.buffer_size()].chunks_exact(samples);
    assert!(pixels.clone().all(|pixel| samples == 3 || pixel[3] == 255), "{program}: the ground shows through");
    let colours = pixels.map(|pixel| [pixel[0], pixel[1], pixel[2]]).collect();
    Pixels { width: info.width as usize, colours }
}

fn is_like(a: [u8; 3], b: [u8; 3]) -> bool {
    a.iter().zip(b).all(|(a, b)| a.abs_diff(b) <= 12)
}

/// Returns the colours that a picture names.
fn colours_of(svg: &str) -> BTreeSet<[u8; 3]> {
    let document = Document::parse(svg).unwrap();
    let attributes = document.descendants().flat_map(|node| node.attributes());
    let colours = attributes.filter(|attribute| ["fill", "stroke"].contains(&attribute.name()));
    let parse = |text: &str| {
        let code = u32::from_str_radix(text.strip_prefix('#')?, 16).ok()?;
        Some([(code >> 16) as u8, (code >> 8) as u8, code as u8])
    };
    colours.filter_map(|colour| parse(colour.value())).collect()
}

/// Mean darkness of each square of 20 pixels, from 0 to 1.
fn darkness(pixels: &Pixels) -> Vec<f64> {
    let squares = pixels.width.div_ceil(20);
    let height = pixels.colours.len() / pixels.width;
    let mut sums = vec![(0.0, 0.0); squares * height.div_ceil(20)];
    for (index, colour) in pixels.colours.iter().enumerate() {
        let sum = &mut sums[index / pixels.width / 20 * squares + index % pixels.width / 20];
        sum.0 += 1.0 - colour.iter().map(|part| f64::from(*part)).sum::<f64>() / 765.0;
        sum.1 += 1.0;
    }
    sums.into_iter().map(|(sum, count)| sum / count).collect()
}

/// Checks that a picture is dark on white and has all its colours, and returns its pixels.
fn checked(name: &str, program: &str, arguments: &[&str], path: &Path) -> Pixels {
    let pixels = render(program, arguments, path);
    let mut counts: BTreeMap<[u8; 3], usize> = BTreeMap::new();
    for run in pixels.colours.chunk_by(|a, b| a == b) {
        *counts.entry(run[0]).or_default() += run.len();
    }
    let count = |colour| counts.iter().filter(|(own, _)| is_like(**own, colour)).map(|(_, count)| count).sum::<usize>();
    let share = |colour| count(colour) as f64 / pixels.colours.len() as f64;
    let (white, black) = (share([255; 3]), share([0; 3]));
    assert!(white > 0.6 && black < 0.05, "{name} by {program}: {white:.2} is white, {black:.2} is black");
    for colour in colours_of(&fs::read_to_string(path).unwrap()) {
        assert!(count(colour) >= 20, "{name} by {program}: {} pixels of {colour:x?}", count(colour));
    }
    pixels
}

// If this failed, a reader whose viewer is no browser would see a black or an empty picture.
#[test]
fn renderers_show_every_figure_alike_on_white() {
    let mut renderers = RENDERERS.into_iter().filter(|(program, _)| is_there(program));
    let (Some(first), Some(second)) = (renderers.next(), renderers.next()) else {
        let names = RENDERERS.map(|(program, _)| program).join(", ");
        eprintln!("skipped: renderers_show_every_figure_alike_on_white: fewer than two of {names} are there");
        return;
    };
    for (name, path) in pictures() {
        let expected = checked(&name, first.0, first.1, &path);
        let squares = darkness(&expected);
        assert!(squares.iter().filter(|square| **square > 0.02).count() > 60, "{name} is nearly empty");
        for (program, arguments) in [second].into_iter().chain(renderers.clone()) {
            let pixels = checked(&name, program, arguments, &path);
            assert_eq!((pixels.width, pixels.colours.len()), (expected.width, expected.colours.len()), "{name}");
            let differences = squares.iter().zip(darkness(&pixels)).map(|(a, b)| (a - b).abs());
            let furthest = differences.fold(0.0, f64::max);
            assert!(furthest < 0.15, "{name}: {program} differs from {} by {furthest:.2} somewhere", first.0);
        }
    }
}
