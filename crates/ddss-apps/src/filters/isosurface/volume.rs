//! Volume in a file: one byte for each sample.

use std::fs::File;
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::Path;

use crate::Error;
use crate::filters::query::{numbers, refused};

/// Samples of a block in the three directions. Neighbours share their outer samples.
pub const BLOCK_SIDES: [u32; 3] = [32, 16, 16];
/// Bytes of a full block.
pub const BLOCK_BYTES: usize = (BLOCK_SIDES[0] * BLOCK_SIDES[1] * BLOCK_SIDES[2]) as usize;

const MAGIC: [u8; 8] = *b"ddssvol1";
const HEADER_BYTES: u64 = 20;
/// Maximum samples in one direction.
const SIDE_MAX: u32 = 1 << 16;

/// An open volume.
#[derive(Debug)]
pub struct Volume {
    file: File,
    samples: [u32; 3],
}

/// A block of samples.
#[derive(Clone, Copy, Debug)]
pub(super) struct Block<'a> {
    /// Its first sample.
    pub origin: [u32; 3],
    /// Its samples in the three directions.
    pub sides: [u32; 3],
    /// The samples; the first direction varies fastest.
    pub samples: &'a [u8],
}

impl Block<'_> {
    /// Returns the sample at a place in the block.
    pub(super) fn at(&self, [x, y, z]: [u32; 3]) -> u8 {
        self.samples[((z * self.sides[1] + y) * self.sides[0] + x) as usize]
    }
}

impl Volume {
    /// Writes a volume.
    pub fn write(path: &Path, samples: [u32; 3], values: &[u8]) -> Result<(), Error> {
        let count = count(samples).filter(|&count| count == values.len() as u64);
        count.ok_or_else(|| refused(format!("{} values of {samples:?} samples", values.len())))?;
        let write = || -> std::io::Result<()> {
            let mut file = File::create(path)?;
            file.write_all(&MAGIC)?;
            samples.iter().try_for_each(|side| file.write_all(&side.to_le_bytes()))?;
            file.write_all(values)
        };
        write().map_err(Error::system(format!("writing the volume {}", path.display())))
    }

    /// Opens a volume and checks its length.
    pub fn open(path: &Path) -> Result<Self, Error> {
        let failed = || Error::system(format!("reading the volume {}", path.display()));
        let file = File::open(path).map_err(failed())?;
        let mut header = [0; HEADER_BYTES as usize];
        file.read_exact_at(&mut header, 0).map_err(failed())?;
        let (magic, rest) = header.split_at(MAGIC.len());
        let (samples, _) = numbers(rest)?;
        let length = file.metadata().map_err(failed())?.len();
        if magic != MAGIC || count(samples) != length.checked_sub(HEADER_BYTES) {
            return Err(refused(format!("{} is not a volume, or it is damaged", path.display())));
        }
        Ok(Self { file, samples })
    }

    /// Returns the samples in the three directions.
    pub fn samples(&self) -> [u32; 3] {
        self.samples
    }

    /// Returns the first sample and the sides of each block. Each cell between eight samples is in one block.
    pub fn blocks(&self) -> impl Iterator<Item = ([u32; 3], [u32; 3])> + use<> {
        let samples = self.samples;
        let starts = move |axis: usize| (0..samples[axis] - 1).step_by(BLOCK_SIDES[axis] as usize - 1);
        let side = move |axis: usize, from: u32| (samples[axis] - from).min(BLOCK_SIDES[axis]);
        let rows = move || starts(2).flat_map(move |z| starts(1).map(move |y| (y, z)));
        rows().flat_map(move |(y, z)| starts(0).map(move |x| ([x, y, z], [side(0, x), side(1, y), side(2, z)])))
    }

    /// Appends the samples of a block to `bytes`.
    pub fn read(&self, origin: [u32; 3], sides: [u32; 3], bytes: &mut Vec<u8>) -> Result<(), Error> {
        let [across, down, _] = self.samples.map(u64::from);
        let [x, y, z] = origin.map(u64::from);
        for (k, j) in (0..u64::from(sides[2])).flat_map(|k| (0..u64::from(sides[1])).map(move |j| (k, j))) {
            let at = HEADER_BYTES + ((z + k) * down + y + j) * across + x;
            let start = bytes.len();
            bytes.resize(start + sides[0] as usize, 0);
            self.file.read_exact_at(&mut bytes[start..], at).map_err(Error::system("reading a block"))?;
        }
        Ok(())
    }
}

fn count(samples: [u32; 3]) -> Option<u64> {
    let fits = samples.iter().all(|side| (2..=SIDE_MAX).contains(side));
    fits.then(|| samples.iter().map(|&side| u64::from(side)).product())
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test ends where something is not as it should be")]
mod tests {
    use super::*;

    // If this failed, the surface would have holes or double walls between blocks.
    #[test]
    fn each_cell_is_in_one_block() {
        let folder = ddss_testkit::TempNode::new().unwrap();
        let path = folder.path().join("volume");
        let samples = [33, 17, 5];
        let values: Vec<u8> = (0..33 * 17 * 5).map(|at| (at % 251) as u8).collect();
        Volume::write(&path, samples, &values).unwrap();
        let volume = Volume::open(&path).unwrap();
        let mut seen = vec![0; 32 * 16 * 4];
        for (origin, sides) in volume.blocks() {
            let mut bytes = Vec::new();
            volume.read(origin, sides, &mut bytes).unwrap();
            assert!(bytes.len() <= BLOCK_BYTES);
            let block = Block { origin, sides, samples: &bytes };
            for (z, y, x) in cells(sides) {
                let [gx, gy, gz] = [origin[0] + x, origin[1] + y, origin[2] + z];
                assert_eq!(block.at([x, y, z]), values[((gz * 17 + gy) * 33 + gx) as usize]);
                seen[((gz * 16 + gy) * 32 + gx) as usize] += 1;
            }
        }
        assert!(seen.iter().all(|&count| count == 1));
    }

    fn cells(sides: [u32; 3]) -> impl Iterator<Item = (u32, u32, u32)> {
        (0..sides[2] - 1)
            .flat_map(move |z| (0..sides[1] - 1).flat_map(move |y| (0..sides[0] - 1).map(move |x| (z, y, x))))
    }

    // If this failed, a cut volume would be read beyond its end.
    #[test]
    fn damaged_volumes_are_refused() {
        let folder = ddss_testkit::TempNode::new().unwrap();
        let path = folder.path().join("volume");
        Volume::write(&path, [2, 2, 3], &[1; 12]).unwrap();
        let whole = std::fs::read(&path).unwrap();
        for cut in [0, 10, whole.len() - 1] {
            std::fs::write(&path, &whole[..cut]).unwrap();
            assert!(Volume::open(&path).is_err(), "{cut}");
        }
        assert!(Volume::write(&path, [1, 2, 2], &[1; 4]).is_err());
        assert!(Volume::write(&path, [2, 2, 2], &[1; 4]).is_err());
    }
}
