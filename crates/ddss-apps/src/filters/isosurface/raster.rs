//! Shading and rasterising of triangles.

use super::march::Triangle;
use super::viewpoint::Viewpoint;

/// A point of the image that a triangle covers.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Fragment {
    /// Number of the pixel, row by row.
    pub pixel: u32,
    /// Distance from the viewer as bits that sort as the distance does.
    pub depth: u32,
    /// Brightness.
    pub shade: u8,
}

impl Fragment {
    /// Returns the value that is smallest for the visible fragment of a pixel. It depends on no order of triangles.
    pub(super) fn rank(&self) -> u64 {
        u64::from(self.depth) << 8 | u64::from(self.shade)
    }
}

/// Projection of a viewpoint.
#[derive(Clone, Copy, Debug)]
pub(super) struct Camera {
    turn: [f32; 2],
    tilt: [f32; 2],
    centre: [f32; 3],
    scale: f32,
    side: u32,
}

impl Camera {
    /// Makes the projection of a viewpoint: parallel, the whole volume in the image.
    pub(super) fn new(viewpoint: &Viewpoint) -> Self {
        let centre = viewpoint.samples.map(|samples| (samples - 1) as f32 / 2.0);
        let radius = centre.iter().map(|half| half * half).sum::<f32>().sqrt();
        let of = |angle: f32| [angle.sin(), angle.cos()];
        Self {
            turn: of(viewpoint.turn),
            tilt: of(viewpoint.tilt),
            centre,
            scale: (viewpoint.side as f32 / 2.0 - 1.0) / radius,
            side: viewpoint.side,
        }
    }

    fn turned(&self, point: [f32; 3]) -> [f32; 3] {
        let [x, y, z]: [f32; 3] = std::array::from_fn(|axis| point[axis] - self.centre[axis]);
        let (x, y) = (x * self.turn[1] - y * self.turn[0], x * self.turn[0] + y * self.turn[1]);
        [x, y * self.tilt[1] - z * self.tilt[0], y * self.tilt[0] + z * self.tilt[1]]
    }

    /// Calls `emit` for each pixel that a triangle covers.
    pub(super) fn rasterise(&self, triangle: &Triangle, mut emit: impl FnMut(Fragment)) {
        let corners = triangle.map(|corner| self.turned(corner));
        let shade = shade(&corners);
        let half = self.side as f32 / 2.0;
        let at = corners.map(|[x, y, z]| [half + x * self.scale, half - y * self.scale, z]);
        let area = edge(at[0], at[1], at[2]);
        if area == 0.0 {
            return;
        }
        let range = |axis: usize| {
            let values = at.map(|corner| corner[axis]);
            let (low, high) = (values[0].min(values[1]).min(values[2]), values[0].max(values[1]).max(values[2]));
            // Centres of pixels are at halves.
            ((low - 0.5).ceil().max(0.0) as u32)..((high - 0.5).floor() + 1.0).clamp(0.0, self.side as f32) as u32
        };
        for row in range(1) {
            for column in range(0) {
                let point = [column as f32 + 0.5, row as f32 + 0.5, 0.0];
                let parts: [f32; 3] = std::array::from_fn(|n| edge(at[(n + 1) % 3], at[(n + 2) % 3], point) / area);
                if parts.iter().all(|&part| part >= 0.0) {
                    let z = parts[0] * at[0][2] + parts[1] * at[1][2] + parts[2] * at[2][2];
                    emit(Fragment { pixel: row * self.side + column, depth: sortable(-z), shade });
                }
            }
        }
    }
}

/// Returns the brightness of a flat triangle under a light next to the viewer.
fn shade(corners: &[[f32; 3]; 3]) -> u8 {
    let [u, v] = [1, 2].map(|n| std::array::from_fn::<f32, 3, _>(|axis| corners[n][axis] - corners[0][axis]));
    let normal = [u[1] * v[2] - u[2] * v[1], u[2] * v[0] - u[0] * v[2], u[0] * v[1] - u[1] * v[0]];
    let length = normal.iter().map(|part| part * part).sum::<f32>().sqrt();
    if length == 0.0 {
        return 0;
    }
    let light = (0.36 * normal[0] + 0.48 * normal[1] + 0.8 * normal[2]) / length;
    // Both sides of the surface are lit.
    40 + (light.abs() * 215.0) as u8
}

/// Returns twice the signed area of a triangle in the image.
fn edge(a: [f32; 3], b: [f32; 3], c: [f32; 3]) -> f32 {
    (b[0] - a[0]) * (c[1] - a[1]) - (b[1] - a[1]) * (c[0] - a[0])
}

/// Returns bits that sort as the number does.
fn sortable(number: f32) -> u32 {
    let bits = number.to_bits();
    if bits >> 31 == 0 { bits | 1 << 31 } else { !bits }
}

#[cfg(test)]
mod tests {
    use super::*;

    // If this failed, the far side of the surface would hide the near one.
    #[test]
    fn ranks_sort_as_distances_do() {
        let numbers = [f32::MIN, -2.5, -0.001, 0.0, 0.001, 2.5, f32::MAX];
        assert!(numbers.map(sortable).is_sorted_by(|a, b| a < b));
    }

    // If this failed, a triangle would leave pixels of its middle open.
    #[test]
    fn triangle_covers_its_pixels() {
        let viewpoint = Viewpoint { level: 0.5, turn: 0.0, tilt: 0.0, side: 64, samples: [65; 3] };
        let camera = Camera::new(&viewpoint);
        let mut pixels = Vec::new();
        camera.rasterise(&[[0.0, 0.0, 32.0], [64.0, 0.0, 32.0], [0.0, 64.0, 32.0]], |fragment| {
            assert_eq!(fragment.shade, 40 + (0.8f32 * 215.0) as u8);
            pixels.push(fragment.pixel);
        });
        let legs = 64.0 * camera.scale;
        let expected = (legs * legs / 2.0) as usize;
        assert!(pixels.len().abs_diff(expected) < 64, "{} instead of {expected}", pixels.len());
        assert!(pixels.is_sorted_by(|a, b| a < b), "a pixel was covered twice");
    }
}
