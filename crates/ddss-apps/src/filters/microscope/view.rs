//! Query of the microscope.

use crate::Error;
use crate::filters::query::{Query, numbers, refused, start};

/// Maximum pixels of an image on one side.
const SIDE_MAX: u32 = 8192;
/// Maximum number of slide pixels that fall on one pixel of the image, on one side.
const ZOOM_MAX: u32 = 256;

/// A part of the slide and its magnification.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct View {
    /// Left edge, in pixels of the slide.
    pub x: u32,
    /// Upper edge, in pixels of the slide.
    pub y: u32,
    /// Columns of the image.
    pub columns: u32,
    /// Rows of the image.
    pub rows: u32,
    /// Slide pixels for each pixel of the image, on one side.
    pub zoom: u32,
}

impl View {
    /// Returns the pixels of the slide in the view: left, upper, right and lower edge. The last two are outside.
    pub fn area(&self) -> [u32; 4] {
        [self.x, self.y, self.x + self.columns * self.zoom, self.y + self.rows * self.zoom]
    }

    /// Returns the number of pixels of the image.
    pub fn pixels(&self) -> usize {
        self.columns as usize * self.rows as usize
    }
}

impl Query for View {
    fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        start(&mut bytes, &[self.x, self.y, self.columns, self.rows, self.zoom]);
        bytes
    }

    fn from_bytes(bytes: &[u8]) -> Result<Self, Error> {
        let ([x, y, columns, rows, zoom], rest) = numbers(bytes)?;
        let fits = [columns, rows].iter().all(|side| (1..=SIDE_MAX).contains(side)) && (1..=ZOOM_MAX).contains(&zoom);
        if !fits || !rest.is_empty() || x.max(y) > i32::MAX as u32 {
            return Err(refused(format!("a view of {columns} x {rows} pixels at {x}, {y}, zoom {zoom}")));
        }
        Ok(Self { x, y, columns, rows, zoom })
    }
}
