//! Triangles of the surface: each cell of eight samples is six tetrahedra around one diagonal.

use super::volume::Block;

/// A triangle; its corners in samples of the volume.
pub type Triangle = [[f32; 3]; 3];

/// Tetrahedra of a cell. A corner's three bits are its place in the three directions; all six share the diagonal from 0 to 7, and so the
/// faces of neighbouring cells meet.
const TETRAHEDRA: [[u8; 4]; 6] = [[0, 1, 3, 7], [0, 3, 2, 7], [0, 2, 6, 7], [0, 6, 4, 7], [0, 4, 5, 7], [0, 5, 1, 7]];

/// Calls `emit` for each triangle of a block, cell after cell.
pub(super) fn triangles(block: &Block<'_>, level: f32, mut emit: impl FnMut(&Triangle)) {
    let [across, down, deep] = block.sides;
    for z in 0..deep.saturating_sub(1) {
        for y in 0..down.saturating_sub(1) {
            for x in 0..across.saturating_sub(1) {
                let values: [f32; 8] = std::array::from_fn(|corner| {
                    let corner = corner as u32;
                    f32::from(block.at([x + (corner & 1), y + (corner >> 1 & 1), z + (corner >> 2)]))
                });
                let is_above = |value: &f32| *value > level;
                if values.iter().all(is_above) || !values.iter().any(is_above) {
                    continue;
                }
                let origin = [block.origin[0] + x, block.origin[1] + y, block.origin[2] + z];
                TETRAHEDRA.iter().for_each(|corners| tetrahedron(origin, &values, corners, level, &mut emit));
            }
        }
    }
}

/// Calls `emit` for the triangles of one tetrahedron: none, one, or two.
fn tetrahedron(origin: [u32; 3], values: &[f32; 8], corners: &[u8; 4], level: f32, emit: &mut impl FnMut(&Triangle)) {
    let above: Vec4 = Vec4::of(corners, |corner| values[usize::from(corner)] > level);
    let below: Vec4 = Vec4::of(corners, |corner| values[usize::from(corner)] <= level);
    let cut = |a: u8, b: u8| crossing(origin, values, a, b, level);
    match (above.slice(), below.slice()) {
        (&[a], &[b, c, d]) | (&[b, c, d], &[a]) => emit(&[cut(a, b), cut(a, c), cut(a, d)]),
        (&[a, b], &[c, d]) => {
            let quad = [cut(a, c), cut(a, d), cut(b, d), cut(b, c)];
            emit(&[quad[0], quad[1], quad[2]]);
            emit(&[quad[0], quad[2], quad[3]]);
        }
        _ => {}
    }
}

/// Up to four corners.
struct Vec4 {
    corners: [u8; 4],
    count: usize,
}

impl Vec4 {
    fn of(corners: &[u8; 4], mut keep: impl FnMut(u8) -> bool) -> Self {
        let mut kept = Self { corners: [0; 4], count: 0 };
        for &corner in corners.iter().filter(|&&corner| keep(corner)) {
            kept.corners[kept.count] = corner;
            kept.count += 1;
        }
        kept
    }

    fn slice(&self) -> &[u8] {
        &self.corners[..self.count]
    }
}

/// Point where an edge crosses the level. The lower corner comes first, so that all cells at an edge compute the same bits.
fn crossing(origin: [u32; 3], values: &[f32; 8], a: u8, b: u8, level: f32) -> [f32; 3] {
    let (a, b) = (a.min(b), a.max(b));
    let (from, to) = (values[usize::from(a)], values[usize::from(b)]);
    let part = (level - from) / (to - from);
    std::array::from_fn(|axis| {
        let place = |corner: u8| (origin[axis] + u32::from(corner >> axis & 1)) as f32;
        place(a) + part * (place(b) - place(a))
    })
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;

    fn ball(side: u32, radius: f32) -> Vec<u8> {
        let centre = (side - 1) as f32 / 2.0;
        let distance = |at: u32| {
            let axis = |n: u32| (n as f32 - centre).powi(2);
            (axis(at % side) + axis(at / side % side) + axis(at / side / side)).sqrt()
        };
        (0..side.pow(3)).map(|at| (128.0 + 16.0 * (radius - distance(at))).clamp(0.0, 255.0) as u8).collect()
    }

    // If this failed, the surface would have holes: light would shine through the reservoir.
    #[test]
    fn surface_of_a_ball_is_closed_and_has_its_area() {
        let samples = ball(24, 8.0);
        let block = Block { origin: [0; 3], sides: [24; 3], samples: &samples };
        let (mut edges, mut area) = (HashMap::<[[u32; 3]; 2], u32>::new(), 0.0);
        triangles(&block, 128.5, |triangle| {
            let bits = triangle.map(|corner| corner.map(f32::to_bits));
            for (a, b) in [(0, 1), (1, 2), (2, 0)] {
                let (a, b) = (bits[a].min(bits[b]), bits[a].max(bits[b]));
                *edges.entry([a, b]).or_default() += 1;
            }
            let [u, v] = [1, 2].map(|n| std::array::from_fn::<f32, 3, _>(|axis| triangle[n][axis] - triangle[0][axis]));
            let cross = [u[1] * v[2] - u[2] * v[1], u[2] * v[0] - u[0] * v[2], u[0] * v[1] - u[1] * v[0]];
            area += 0.5 * cross.iter().map(|part| part * part).sum::<f32>().sqrt();
        });
        assert!(edges.len() > 1000);
        assert!(edges.values().all(|&count| count == 2), "an edge belongs to one triangle only");
        let expected = 4.0 * std::f32::consts::PI * 64.0;
        assert!((area / expected - 1.0).abs() < 0.05, "{area} instead of {expected}");
    }
}
