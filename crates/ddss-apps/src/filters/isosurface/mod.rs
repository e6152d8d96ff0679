//! Iso-surface rendering of a volume, as of an oil reservoir.
//!
//! Four filters: *read* takes blocks of samples from the volume, *extract* makes the triangles of the surface, *rasterise* shades them and
//! turns them into fragments of the image, and *merge* keeps the nearest fragment of each pixel. A unit of work is one block of 8 KiB.

mod direct;
mod march;
mod raster;
mod stages;
mod viewpoint;
mod volume;

pub use direct::{direct_image, direct_triangles};
pub use march::Triangle;
pub use stages::{STAGES, stage};
pub use viewpoint::Viewpoint;
pub use volume::{BLOCK_BYTES, BLOCK_SIDES, Volume};
