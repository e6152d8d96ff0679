//! Slide in a file: tiles of 1 KiB, each compressed by itself.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;

use miniz_oxide::deflate::compress_to_vec_zlib;

use crate::Error;
use crate::filters::query::refused;

/// Pixels of a tile on one side.
pub const TILE_SIDE: u32 = 16;
/// Bytes of a tile: four for each pixel, the last of which is zero.
pub const TILE_BYTES: usize = 4 * (TILE_SIDE * TILE_SIDE) as usize;

/// First bytes of the file.
const MAGIC: [u8; 8] = *b"ddsslide";
/// Bytes before the index: the magic, tiles on each side, the side of the stained part in pixels.
const HEADER_BYTES: u64 = 24;
/// Level of compression.
const LEVEL: u8 = 6;
/// Maximum bytes of a compressed tile.
const PACKED_MAX: u64 = 2 * TILE_BYTES as u64;
/// Maximum tiles on one side of a slide.
const TILES_MAX: u32 = 1 << 14;

/// Writer of a slide: repeats one picture in both directions until the slide has its size.
#[derive(Debug)]
pub struct SlideWriter<'a> {
    /// Pixels of the picture, three bytes each, row by row.
    pub pixels: &'a [u8],
    /// Pixels of the picture on one side, a multiple of [`TILE_SIDE`].
    pub side: u32,
    /// Copies of the picture in each direction.
    pub copies: u32,
}

impl SlideWriter<'_> {
    /// Writes the slide. All copies of a tile are stored, so that reading moves as many bytes as a real slide of that size.
    pub fn write(&self, path: &Path) -> Result<(), Error> {
        let bytes = 3 * self.side as usize * self.side as usize;
        if self.side == 0 || !self.side.is_multiple_of(TILE_SIDE) || self.pixels.len() != bytes || self.copies == 0 {
            return Err(refused(format!("a picture of {} bytes for a side of {}", self.pixels.len(), self.side)));
        }
        let per_copy = self.side / TILE_SIDE;
        let side = per_copy * self.copies;
        if side > TILES_MAX {
            return Err(refused(format!("a slide of {side} x {side} tiles; at most {TILES_MAX} on one side")));
        }
        let packed: Vec<Vec<u8>> = (0..per_copy * per_copy)
            .map(|tile| compress_to_vec_zlib(&self.tile(tile % per_copy, tile / per_copy), LEVEL))
            .collect();
        let of = |x: u32, y: u32| &packed[((y % per_copy) * per_copy + x % per_copy) as usize];
        let write = || -> std::io::Result<()> {
            let mut out = BufWriter::new(File::create(path)?);
            out.write_all(&MAGIC)?;
            [side, side, self.side, 0].iter().try_for_each(|number| out.write_all(&number.to_le_bytes()))?;
            let mut at = HEADER_BYTES + 8 * (u64::from(side) * u64::from(side) + 1);
            for (x, y) in places(side) {
                out.write_all(&at.to_le_bytes())?;
                at += of(x, y).len() as u64;
            }
            out.write_all(&at.to_le_bytes())?;
            places(side).try_for_each(|(x, y)| out.write_all(of(x, y)))?;
            out.flush()
        };
        write().map_err(Error::system(format!("writing the slide {}", path.display())))
    }

    fn tile(&self, tile_x: u32, tile_y: u32) -> Vec<u8> {
        let mut tile = Vec::with_capacity(TILE_BYTES);
        for y in 0..TILE_SIDE {
            for x in 0..TILE_SIDE {
                let at = 3 * ((tile_y * TILE_SIDE + y) * self.side + tile_x * TILE_SIDE + x) as usize;
                tile.extend_from_slice(&self.pixels[at..at + 3]);
                tile.push(0);
            }
        }
        tile
    }
}

fn places(side: u32) -> impl Iterator<Item = (u32, u32)> {
    (0..side).flat_map(move |y| (0..side).map(move |x| (x, y)))
}

/// An open slide.
#[derive(Debug)]
pub struct Slide {
    file: File,
    tiles: [u32; 2],
    index: Vec<u64>,
}

impl Slide {
    /// Opens a slide and checks its index.
    pub fn open(path: &Path) -> Result<Self, Error> {
        let failed = || Error::system(format!("reading the slide {}", path.display()));
        let damaged = |what: &str| refused(format!("the slide {} is damaged: {what}", path.display()));
        let file = File::open(path).map_err(failed())?;
        let length = file.metadata().map_err(failed())?.len();
        let mut header = [0; HEADER_BYTES as usize];
        file.read_exact_at(&mut header, 0).map_err(failed())?;
        let (magic, rest) = header.split_at(MAGIC.len());
        let ([across, down, ..], _) = crate::filters::query::numbers::<4>(rest)?;
        if magic != MAGIC || across.max(down) > TILES_MAX {
            return Err(damaged("it does not begin as a slide does"));
        }
        let count = across as usize * down as usize + 1;
        if HEADER_BYTES + 8 * count as u64 > length {
            return Err(damaged("its index is longer than the file"));
        }
        let mut bytes = vec![0; 8 * count];
        file.read_exact_at(&mut bytes, HEADER_BYTES).map_err(failed())?;
        let index: Vec<u64> = bytes.as_chunks().0.iter().map(|bytes| u64::from_le_bytes(*bytes)).collect();
        let is_sound = index.is_sorted_by(|a, b| a < b && b - a <= PACKED_MAX)
            && index.last() == Some(&length)
            && index.first() == Some(&(HEADER_BYTES + 8 * count as u64));
        if !is_sound {
            return Err(damaged("its index does not fit the file"));
        }
        Ok(Self { file, tiles: [across, down], index })
    }

    /// Returns the pixels of the slide in both directions.
    pub fn pixels(&self) -> [u32; 2] {
        self.tiles.map(|tiles| tiles * TILE_SIDE)
    }

    /// Appends the compressed tile at a place to `bytes`.
    pub fn read(&self, tile_x: u32, tile_y: u32, bytes: &mut Vec<u8>) -> Result<(), Error> {
        let at = tile_y as usize * self.tiles[0] as usize + tile_x as usize;
        let (Some(&from), Some(&to), true) = (self.index.get(at), self.index.get(at + 1), tile_x < self.tiles[0])
        else {
            return Err(refused(format!("the slide has no tile {tile_x}, {tile_y}")));
        };
        let start = bytes.len();
        bytes.resize(start + (to - from) as usize, 0);
        self.file.read_exact_at(&mut bytes[start..], from).map_err(Error::system("reading a tile"))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test ends where something is not as it should be")]
mod tests {
    use std::fs;

    use super::*;

    // If this failed, a slide that was cut or overwritten would be read outside its tiles.
    #[test]
    fn damaged_slides_are_refused() {
        let folder = ddss_testkit::TempNode::new().unwrap();
        let path = folder.path().join("slide");
        let pixels = vec![9; 3 * 32 * 32];
        SlideWriter { pixels: &pixels, side: 32, copies: 2 }.write(&path).unwrap();
        assert_eq!(Slide::open(&path).unwrap().pixels(), [64, 64]);
        assert!(Slide::open(&path).unwrap().read(4, 0, &mut Vec::new()).is_err());
        let whole = fs::read(&path).unwrap();
        let damages: [fn(&mut Vec<u8>); 5] = [
            |bytes| bytes.truncate(100),
            |bytes| bytes.truncate(bytes.len() - 1),
            |bytes| bytes[0] ^= 1,
            |bytes| bytes[8..12].fill(255),
            |bytes| bytes[32..40].fill(0),
        ];
        for (number, damage) in damages.iter().enumerate() {
            let mut bytes = whole.clone();
            damage(&mut bytes);
            fs::write(&path, bytes).unwrap();
            assert!(Slide::open(&path).is_err(), "damage {number}");
        }
        assert!(SlideWriter { pixels: &pixels, side: 31, copies: 1 }.write(&path).is_err());
    }
}
