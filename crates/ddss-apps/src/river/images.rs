//! Pictures, and their thumbnails.

use ddss_testkit::Random;
use std::fs::File;
use std::io::{self, BufReader, BufWriter};
use std::path::Path;

/// Side of a thumbnail.
pub(super) const SIDE: usize = 32;

/// Writes a picture: waves and noise, of a size that the seed chooses.
pub(super) fn write(path: &Path, seed: u64) -> io::Result<()> {
    let mut random = Random::new(seed);
    let [width, height] = [random.below(192) as u32 + 64, random.below(192) as u32 + 64];
    let wave = |at: u32| 100.0 + 80.0 * (at as f64 / (9.0 + seed as f64)).sin();
    let mut pixels = Vec::with_capacity((3 * width * height) as usize);
    for (row, column) in (0..height).flat_map(|row| (0..width).map(move |column| (row, column))) {
        let noise = random.below(16) as f64;
        pixels.extend([wave(row), wave(column), wave(row + column)].map(|value| (value + noise) as u8));
    }
    let mut encoder = png::Encoder::new(BufWriter::new(File::create(path)?), width, height);
    encoder.set_color(png::ColorType::Rgb);
    encoder.set_depth(png::BitDepth::Eight);
    Ok(encoder.write_header()?.write_image_data(&pixels)?)
}

/// Decodes a picture. Returns its thumbnail: the mean of the pixels in each of its squares.
pub(super) fn thumbnail(path: &Path) -> io::Result<Vec<u8>> {
    let mut reader = png::Decoder::new(BufReader::new(File::open(path)?)).read_info()?;
    let bytes = reader.output_buffer_size().ok_or_else(|| io::Error::other("a picture that is too large"))?;
    let mut pixels = vec![0; bytes];
    let info = reader.next_frame(&mut pixels)?;
    let [width, height] = [info.width as usize, info.height as usize];
    if info.color_type != png::ColorType::Rgb || info.bit_depth != png::BitDepth::Eight || width.min(height) < SIDE {
        return Err(io::Error::other("a picture of another kind"));
    }
    let mut small = Vec::with_capacity(3 * SIDE * SIDE);
    for at in 0..3 * SIDE * SIDE {
        let (row, column, colour) = (at / 3 / SIDE, at / 3 % SIDE, at % 3);
        let range = |index: usize, length: usize| index * length / SIDE..(index + 1) * length / SIDE;
        let (rows, columns) = (range(row, height), range(column, width));
        let count = rows.len() * columns.len();
        let values = rows.flat_map(|y| columns.clone().map(move |x| 3 * (y * width + x) + colour));
        small.push((values.map(|value| usize::from(pixels[value])).sum::<usize>() / count) as u8);
    }
    Ok(small)
}
