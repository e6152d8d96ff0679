//! Image of a viewpoint without filters and without blocks, to compare with.

use super::march::{Triangle, triangles};
use super::raster::Camera;
use super::stages::image;
use super::viewpoint::Viewpoint;
use super::volume::Block;

/// Computes all triangles of the surface in one pass.
pub fn direct_triangles(viewpoint: &Viewpoint, values: &[u8], emit: impl FnMut(&Triangle)) {
    triangles(&Block { origin: [0; 3], sides: viewpoint.samples, samples: values }, viewpoint.level, emit);
}

/// Computes the image in one pass.
pub fn direct_image(viewpoint: &Viewpoint, values: &[u8]) -> Vec<u8> {
    let camera = Camera::new(viewpoint);
    let mut ranks = vec![u64::MAX; viewpoint.pixels()];
    direct_triangles(viewpoint, values, |triangle| {
        camera.rasterise(triangle, |fragment| {
            let rank = &mut ranks[fragment.pixel as usize];
            *rank = fragment.rank().min(*rank);
        });
    });
    image(&ranks)
}
