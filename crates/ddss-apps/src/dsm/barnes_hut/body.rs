//! A body, and the force of another mass.

use super::vector::{Vector, add, square};
use zerocopy::{FromBytes, Immutable, IntoBytes};

/// Square of the length that softens the force of near bodies.
const SOFTENING: f64 = 0.05 * 0.05;

/// A body. 64 of them fill a page.
#[derive(Clone, Copy, PartialEq, Debug, FromBytes, IntoBytes, Immutable)]
#[repr(C)]
pub(super) struct Body {
    pub(super) position: Vector,
    pub(super) mass: f64,
    pub(super) velocity: Vector,
    /// Masses whose force on this body was computed in the last step.
    pub(super) cost: u64,
}

impl Body {
    /// Returns the kinetic energy.
    pub(super) fn kinetic(&self) -> f64 {
        self.mass * square(self.velocity) / 2.0
    }

    /// Returns the potential energy of this body and another one.
    pub(super) fn potential(&self, other: &Self) -> f64 {
        let distance = (square(add(other.position, -1.0, self.position)) + SOFTENING).sqrt();
        -self.mass * other.mass / distance
    }
}

/// Returns the acceleration at a position by a mass, which is `towards` away.
pub(super) fn attraction(towards: Vector, mass: f64) -> Vector {
    let distance_square = square(towards) + SOFTENING;
    add([0.0; 3], mass / (distance_square * distance_square.sqrt()), towards)
}
