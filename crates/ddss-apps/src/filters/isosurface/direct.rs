//! Image of a look without filters and without blocks, to compare with.

use super::look::Look;
use super::march::{Triangle, triangles};
use super::raster::Camera;
use super::stages::image;
use super::volume::Block;

/// Computes all triangles of the surface in one pass.
pub fn direct_triangles(look: &Look, values: &[u8], emit: impl FnMut(&Triangle)) {
    triangles(&Block { origin: [0; 3], sides: look.samples, samples: values }, look.level, emit);
}

/// Computes the image in one pass.
pub fn direct_image(look: &Look, values: &[u8]) -> Vec<u8> {
    let camera = Camera::new(look);
    let mut ranks = vec![u64::MAX; look.pixels()];
    direct_triangles(look, values, |triangle| {
        camera.rasterise(triangle, |fragment| {
            let rank = &mut ranks[fragment.pixel as usize];
            *rank = fragment.rank().min(*rank);
        });
    });
    image(&ranks)
}
