//! Filters of the microscope.

use std::path::Path;

use miniz_oxide::inflate::decompress_to_vec_zlib_with_limit;

use super::slide::{Slide, TILE_BYTES, TILE_SIDE};
use super::view::View;
use crate::Error;
use crate::filters::query::{Query, numbers, refused, start};
use crate::filters::{FRAME_BYTES_MAX, Filter};

/// Names of the filters, from the first to the last.
pub const STAGES: [&str; 5] = ["read", "decompress", "clip", "zoom", "view"];

/// Bytes of a pixel in the sums of the zoom filter: three colours and a count.
const SUM_BYTES: usize = 16;

type Emit<'a> = &'a mut dyn FnMut(&[u8]) -> Result<(), Error>;

/// Returns a filter by its name.
pub fn stage(name: &str, slide: &Path) -> Result<Box<dyn Filter>, Error> {
    Ok(match name {
        "read" => Box::new(Read { slide: Slide::open(slide)?, unit: Vec::new() }),
        "decompress" => Box::new(Decompress { unit: Vec::new() }),
        "clip" => Box::new(Clip::default()),
        "zoom" => Box::new(Zoom::default()),
        "view" => Box::new(Compose::default()),
        _ => return Err(refused(format!("no filter is called {name}; there are: {}", STAGES.join(", ")))),
    })
}

/// Reads the tiles of a view. Its unit: tile column, tile row, compressed bytes.
struct Read {
    slide: Slide,
    unit: Vec<u8>,
}

impl Filter for Read {
    fn begin(&mut self, query: &[u8], emit: Emit<'_>) -> Result<(), Error> {
        let view = View::from_bytes(query)?;
        let ([left, upper, right, lower], [width, height]) = (view.area(), self.slide.pixels());
        if right > width || lower > height {
            return Err(refused(format!("a view up to {right}, {lower} of a slide of {width} x {height} pixels")));
        }
        for tile_y in upper / TILE_SIDE..lower.div_ceil(TILE_SIDE) {
            for tile_x in left / TILE_SIDE..right.div_ceil(TILE_SIDE) {
                start(&mut self.unit, &[tile_x, tile_y]);
                self.slide.read(tile_x, tile_y, &mut self.unit)?;
                emit(&self.unit)?;
            }
        }
        Ok(())
    }

    fn unit(&mut self, _: &[u8], _: Emit<'_>) -> Result<(), Error> {
        Err(refused("a unit before the first filter".into()))
    }
}

/// Expands tiles. Its unit: tile column, tile row, pixels.
struct Decompress {
    unit: Vec<u8>,
}

impl Filter for Decompress {
    fn begin(&mut self, _: &[u8], _: Emit<'_>) -> Result<(), Error> {
        Ok(())
    }

    fn unit(&mut self, unit: &[u8], emit: Emit<'_>) -> Result<(), Error> {
        let (place, packed) = numbers::<2>(unit)?;
        let pixels = decompress_to_vec_zlib_with_limit(packed, TILE_BYTES);
        let pixels = pixels.ok().filter(|pixels| pixels.len() == TILE_BYTES);
        let pixels = pixels.ok_or_else(|| refused(format!("tile {place:?} does not expand to {TILE_BYTES} bytes")))?;
        start(&mut self.unit, &place);
        self.unit.extend_from_slice(&pixels);
        emit(&self.unit)
    }
}

/// Cuts pixels outside the view. Its unit: left and upper edge on the slide, columns, pixels.
#[derive(Default)]
struct Clip {
    area: [u32; 4],
    unit: Vec<u8>,
}

impl Filter for Clip {
    fn begin(&mut self, query: &[u8], _: Emit<'_>) -> Result<(), Error> {
        self.area = View::from_bytes(query)?.area();
        Ok(())
    }

    fn unit(&mut self, unit: &[u8], emit: Emit<'_>) -> Result<(), Error> {
        let ([tile_x, tile_y], pixels) = numbers(unit)?;
        let [left, upper, right, lower] = self.area;
        let bound = |tile: u32, from: u32, to: u32| {
            let begin = tile.checked_mul(TILE_SIDE)?;
            let (first, end) = (begin.max(from), begin.checked_add(TILE_SIDE)?.min(to));
            (first < end).then_some((begin, first, end))
        };
        let (Some((x0, x1, x2)), Some((y0, y1, y2))) = (bound(tile_x, left, right), bound(tile_y, upper, lower)) else {
            return Err(refused(format!("tile {tile_x}, {tile_y} is outside the view")));
        };
        if pixels.len() != TILE_BYTES {
            return Err(refused(format!("a tile of {} bytes", pixels.len())));
        }
        start(&mut self.unit, &[x1, y1, x2 - x1]);
        for y in y1..y2 {
            let row = 4 * ((y - y0) * TILE_SIDE) as usize;
            self.unit.extend_from_slice(&pixels[row + 4 * (x1 - x0) as usize..row + 4 * (x2 - x0) as usize]);
        }
        emit(&self.unit)
    }
}

/// Adds up the pixels of the slide that fall on one pixel of the image. Its unit: column, row and columns of a part of the image; then for
/// each pixel the sums of three colours and the count.
#[derive(Default)]
struct Zoom {
    view: Option<View>,
    sums: Vec<[u32; 4]>,
    unit: Vec<u8>,
}

impl Filter for Zoom {
    fn begin(&mut self, query: &[u8], _: Emit<'_>) -> Result<(), Error> {
        self.view = Some(View::from_bytes(query)?);
        Ok(())
    }

    fn unit(&mut self, unit: &[u8], emit: Emit<'_>) -> Result<(), Error> {
        let ([x, y, columns], pixels) = numbers(unit)?;
        let view = self.view.ok_or_else(|| refused("a unit without a view".into()))?;
        let pixels = pixels.as_chunks::<4>().0;
        let (Some(from_x), Some(from_y), 1..=TILE_SIDE) = (x.checked_sub(view.x), y.checked_sub(view.y), columns)
        else {
            return Err(refused(format!("a part of {columns} columns at {x}, {y}")));
        };
        let rows = (pixels.len() as u32).div_ceil(columns);
        let (first_x, first_y) = (from_x / view.zoom, from_y / view.zoom);
        let across = (from_x + columns - 1) / view.zoom - first_x + 1;
        let down = (from_y + rows.max(1) - 1) / view.zoom - first_y + 1;
        self.sums.clear();
        self.sums.resize((across * down) as usize, [0; 4]);
        for (at, &[red, green, blue, _]) in (0u32..).zip(pixels) {
            let column = (from_x + at % columns) / view.zoom - first_x;
            let row = (from_y + at / columns) / view.zoom - first_y;
            let sum = &mut self.sums[(row * across + column) as usize];
            for (total, value) in sum.iter_mut().zip([red, green, blue, 1]) {
                *total += u32::from(value);
            }
        }
        start(&mut self.unit, &[first_x, first_y, across]);
        self.sums.iter().flatten().for_each(|number| self.unit.extend_from_slice(&number.to_le_bytes()));
        emit(&self.unit)
    }
}

/// Makes the image from the parts. Its units: the bytes of the image, three for each pixel, row by row.
#[derive(Default)]
struct Compose {
    view: Option<View>,
    sums: Vec<[u32; 4]>,
}

impl Filter for Compose {
    fn begin(&mut self, query: &[u8], _: Emit<'_>) -> Result<(), Error> {
        let view = View::from_bytes(query)?;
        self.sums.clear();
        self.sums.resize(view.pixels(), [0; 4]);
        self.view = Some(view);
        Ok(())
    }

    fn unit(&mut self, unit: &[u8], _: Emit<'_>) -> Result<(), Error> {
        let ([x, y, columns], sums) = numbers(unit)?;
        let view = self.view.ok_or_else(|| refused("a unit without a view".into()))?;
        for (at, sum) in (0u32..).zip(sums.as_chunks::<SUM_BYTES>().0) {
            let (more, _) = numbers::<4>(sum)?;
            let place =
                columns.checked_sub(1).and_then(|_| Some((x.checked_add(at % columns)?, y.checked_add(at / columns)?)));
            let Some((x, y)) = place.filter(|&(x, y)| x < view.columns && y < view.rows) else {
                return Err(refused(format!("a part of {columns} columns at {x}, {y} is outside the image")));
            };
            let total = &mut self.sums[y as usize * view.columns as usize + x as usize];
            for (total, more) in total.iter_mut().zip(more) {
                *total = total.wrapping_add(more);
            }
        }
        Ok(())
    }

    fn end(&mut self, emit: Emit<'_>) -> Result<(), Error> {
        let view = self.view.take().ok_or_else(|| refused("an end without a view".into()))?;
        let expected = view.zoom * view.zoom;
        if let Some(at) = self.sums.iter().position(|&[.., count]| count != expected) {
            let count = self.sums[at][3];
            return Err(refused(format!("pixel {at} of the image was made of {count} pixels instead of {expected}")));
        }
        let image: Vec<u8> = self
            .sums
            .iter()
            .flat_map(|&[red, green, blue, count]| [red, green, blue].map(|sum| (sum / count) as u8))
            .collect();
        image.chunks(FRAME_BYTES_MAX).try_for_each(emit)
    }
}
