//! Image of a view without filters, to compare with.

use super::view::View;

/// Computes the image of a view pixel by pixel, from the picture that the slide repeats.
pub fn direct_view(view: &View, pixels: &[u8], side: u32) -> Vec<u8> {
    let mut image = Vec::with_capacity(3 * view.pixels());
    for row in 0..view.rows {
        for column in 0..view.columns {
            let mut sums = [0u32; 3];
            for at in 0..view.zoom * view.zoom {
                let x = (view.x + column * view.zoom + at % view.zoom) % side;
                let y = (view.y + row * view.zoom + at / view.zoom) % side;
                let from = 3 * (y * side + x) as usize;
                for (sum, value) in sums.iter_mut().zip(&pixels[from..from + 3]) {
                    *sum += u32::from(*value);
                }
            }
            image.extend(sums.map(|sum| (sum / (view.zoom * view.zoom)) as u8));
        }
    }
    image
}
