//! Virtual microscope: a digitized slide, seen at any place and magnification.
//!
//! Five filters: *read* takes the tiles of the view from the slide, *decompress* expands them, *clip* cuts what lies outside, *zoom* adds up
//! the pixels that fall on one point of the view, and *view* makes the image. A unit of work is one tile of 1 KiB.

mod direct;
mod slide;
mod stages;
mod view;

pub use direct::direct_view;
pub use slide::{Slide, SlideWriter, TILE_BYTES, TILE_SIDE};
pub use stages::{STAGES, stage};
pub use view::View;
