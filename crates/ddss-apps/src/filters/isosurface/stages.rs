//! Filters of the renderer.

use std::path::Path;

use super::march::{Triangle, triangles};
use super::raster::{Camera, Fragment};
use super::viewpoint::Viewpoint;
use super::volume::{BLOCK_BYTES, BLOCK_SIDES, Block, Volume};
use crate::Error;
use crate::filters::query::{Query, numbers, refused, start};
use crate::filters::{FRAME_BYTES_MAX, Filter};

/// Names of the filters, from the first to the last.
pub const STAGES: [&str; 4] = ["read", "extract", "rasterise", "merge"];

/// Bytes of a triangle in a unit.
const TRIANGLE_BYTES: usize = 36;
/// Bytes of a fragment in a unit: pixel, depth, shade in four bytes.
const FRAGMENT_BYTES: usize = 12;
/// Bytes after which a filter sends its unit.
const UNIT_BYTES: usize = BLOCK_BYTES;

type Emit<'a> = &'a mut dyn FnMut(&[u8]) -> Result<(), Error>;

/// Returns a filter by its name.
pub fn stage(name: &str, volume: &Path) -> Result<Box<dyn Filter>, Error> {
    Ok(match name {
        "read" => Box::new(Read { volume: Volume::open(volume)?, unit: Vec::new() }),
        "extract" => Box::new(Extract::default()),
        "rasterise" => Box::new(Rasterise::default()),
        "merge" => Box::new(Merge::default()),
        _ => return Err(refused(format!("no filter is called {name}; there are: {}", STAGES.join(", ")))),
    })
}

/// Reads the blocks of the volume. Its unit: first sample and sides of the block, samples.
struct Read {
    volume: Volume,
    unit: Vec<u8>,
}

impl Filter for Read {
    fn begin(&mut self, query: &[u8], emit: Emit<'_>) -> Result<(), Error> {
        let viewpoint = Viewpoint::from_bytes(query)?;
        if viewpoint.samples != self.volume.samples() {
            return Err(refused(format!(
                "a viewpoint at {:?} of {:?} samples",
                viewpoint.samples,
                self.volume.samples()
            )));
        }
        for (origin, sides) in self.volume.blocks() {
            let ([x, y, z], [across, down, deep]) = (origin, sides);
            start(&mut self.unit, &[x, y, z, across, down, deep]);
            self.volume.read(origin, sides, &mut self.unit)?;
            emit(&self.unit)?;
        }
        Ok(())
    }

    fn unit(&mut self, _: &[u8], _: Emit<'_>) -> Result<(), Error> {
        Err(refused("a unit before the first filter".into()))
    }
}

/// Makes triangles. Its unit: triangles, nine numbers each.
#[derive(Default)]
struct Extract {
    level: f32,
    unit: Vec<u8>,
}

impl Filter for Extract {
    fn begin(&mut self, query: &[u8], _: Emit<'_>) -> Result<(), Error> {
        self.level = Viewpoint::from_bytes(query)?.level;
        Ok(())
    }

    fn unit(&mut self, unit: &[u8], emit: Emit<'_>) -> Result<(), Error> {
        let ([x, y, z, across, down, deep], samples) = numbers(unit)?;
        let sides = [across, down, deep];
        let fits = sides.iter().zip(BLOCK_SIDES).all(|(&side, most)| (2..=most).contains(&side));
        if !fits || samples.len() != sides.iter().product::<u32>() as usize || [x, y, z].iter().any(|&n| n > 1 << 20) {
            return Err(refused(format!("a block of {sides:?} samples in {} bytes", samples.len())));
        }
        let mut sent = Ok(());
        self.unit.clear();
        triangles(&Block { origin: [x, y, z], sides, samples }, self.level, |triangle| {
            if sent.is_ok() && self.unit.len() + TRIANGLE_BYTES > UNIT_BYTES {
                sent = emit(&self.unit);
                self.unit.clear();
            }
            triangle.iter().flatten().for_each(|number| self.unit.extend_from_slice(&number.to_le_bytes()));
        });
        sent?;
        if self.unit.is_empty() { Ok(()) } else { emit(&self.unit) }
    }
}

/// Shades triangles and turns them into fragments. Its unit: the nearest fragment of each pixel that the triangles of a unit cover.
#[derive(Default)]
struct Rasterise {
    camera: Option<Camera>,
    fragments: Vec<Fragment>,
    unit: Vec<u8>,
}

impl Filter for Rasterise {
    fn begin(&mut self, query: &[u8], _: Emit<'_>) -> Result<(), Error> {
        self.camera = Some(Camera::new(&Viewpoint::from_bytes(query)?));
        Ok(())
    }

    fn unit(&mut self, unit: &[u8], emit: Emit<'_>) -> Result<(), Error> {
        let camera = self.camera.ok_or_else(|| refused("a unit without a viewpoint".into()))?;
        let (all, rest) = unit.as_chunks::<TRIANGLE_BYTES>();
        if !rest.is_empty() {
            return Err(refused(format!("{} bytes of triangles", unit.len())));
        }
        self.fragments.clear();
        for bytes in all {
            let triangle = triangle(bytes);
            if !triangle.iter().flatten().all(|number| number.abs() < 1e7) {
                return Err(refused(format!("a triangle at {triangle:?}")));
            }
            camera.rasterise(&triangle, |fragment| self.fragments.push(fragment));
        }
        self.fragments.sort_unstable_by_key(|fragment| (fragment.pixel, fragment.rank()));
        self.fragments.dedup_by_key(|fragment| fragment.pixel);
        for some in self.fragments.chunks(UNIT_BYTES / FRAGMENT_BYTES) {
            self.unit.clear();
            for fragment in some {
                let numbers = [fragment.pixel, fragment.depth, u32::from(fragment.shade)];
                numbers.iter().for_each(|number| self.unit.extend_from_slice(&number.to_le_bytes()));
            }
            emit(&self.unit)?;
        }
        Ok(())
    }
}

fn triangle(bytes: &[u8; TRIANGLE_BYTES]) -> Triangle {
    let numbers = bytes.as_chunks::<4>().0;
    std::array::from_fn(|corner| std::array::from_fn(|axis| f32::from_le_bytes(numbers[3 * corner + axis])))
}

/// Keeps the nearest fragment of each pixel. Its units: the bytes of the image, one for each pixel, row by row.
#[derive(Default)]
struct Merge {
    ranks: Vec<u64>,
}

impl Filter for Merge {
    fn begin(&mut self, query: &[u8], _: Emit<'_>) -> Result<(), Error> {
        self.ranks.clear();
        self.ranks.resize(Viewpoint::from_bytes(query)?.pixels(), u64::MAX);
        Ok(())
    }

    fn unit(&mut self, unit: &[u8], _: Emit<'_>) -> Result<(), Error> {
        for bytes in unit.as_chunks::<FRAGMENT_BYTES>().0 {
            let ([pixel, depth, shade], _) = numbers(bytes)?;
            let fragment = Fragment { pixel, depth, shade: shade as u8 };
            let rank = self.ranks.get_mut(pixel as usize).ok_or_else(|| refused(format!("pixel {pixel}")))?;
            *rank = fragment.rank().min(*rank);
        }
        Ok(())
    }

    fn end(&mut self, emit: Emit<'_>) -> Result<(), Error> {
        image(&self.ranks).chunks(FRAME_BYTES_MAX).try_for_each(emit)
    }
}

/// Returns the image of the visible fragments; pixels without any are black.
pub(super) fn image(ranks: &[u64]) -> Vec<u8> {
    ranks.iter().map(|&rank| if rank == u64::MAX { 0 } else { rank as u8 }).collect()
}
