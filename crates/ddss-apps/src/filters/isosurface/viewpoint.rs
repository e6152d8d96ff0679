//! Query of the renderer.

use crate::Error;
use crate::filters::query::{Query, numbers, refused, start};

/// Maximum pixels of an image on one side.
const SIDE_MAX: u32 = 4096;

/// A surface and the place from which it is seen.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Viewpoint {
    /// Samples below and above this value are on two sides of the surface.
    pub level: f32,
    /// Turn around the vertical axis, in radians.
    pub turn: f32,
    /// Tilt towards the viewer, in radians.
    pub tilt: f32,
    /// Pixels of the square image on one side.
    pub side: u32,
    /// Samples of the volume in the three directions: they give the image its scale.
    pub samples: [u32; 3],
}

impl Viewpoint {
    /// Returns the number of pixels of the image.
    pub fn pixels(&self) -> usize {
        self.side as usize * self.side as usize
    }
}

impl Query for Viewpoint {
    fn to_bytes(&self) -> Vec<u8> {
        let [level, turn, tilt] = [self.level, self.turn, self.tilt].map(f32::to_bits);
        let [x, y, z] = self.samples;
        let mut bytes = Vec::new();
        start(&mut bytes, &[level, turn, tilt, self.side, x, y, z]);
        bytes
    }

    fn from_bytes(bytes: &[u8]) -> Result<Self, Error> {
        let ([level, turn, tilt, side, x, y, z], rest) = numbers(bytes)?;
        let [level, turn, tilt] = [level, turn, tilt].map(f32::from_bits);
        let is_finite = [level, turn, tilt].iter().all(|value| value.is_finite());
        let samples = [x, y, z];
        if !is_finite || !(1..=SIDE_MAX).contains(&side) || !rest.is_empty() || samples.iter().any(|&n| n < 2) {
            return Err(refused(format!("an image of {side} pixels on one side of {samples:?} samples")));
        }
        Ok(Self { level, turn, tilt, side, samples })
    }
}
