//! Vectors of three numbers.

pub(super) type Vector = [f64; 3];

/// Returns `a` plus `factor` times `b`.
pub(super) fn add(a: Vector, factor: f64, b: Vector) -> Vector {
    [a[0] + factor * b[0], a[1] + factor * b[1], a[2] + factor * b[2]]
}

pub(super) fn square(a: Vector) -> f64 {
    a[0] * a[0] + a[1] * a[1] + a[2] * a[2]
}
