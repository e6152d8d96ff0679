//! Plummer's model of a cluster of stars, as Aarseth, Hénon and Wielen (1974) draw it.

use super::body::Body;
use super::vector::{Vector, add, square};
use ddss_testkit::Random;
use std::f64::consts::PI;

/// Length in the units in which mass and constant of gravity are 1 and the energy is -1/4.
const LENGTH: f64 = 3.0 * PI / 16.0;
/// Part of the mass that is drawn: the model has no end.
const MASS_MAX: f64 = 0.999;

/// Returns one of so many bodies. Each rank draws the same.
pub(super) fn body(number: usize, count: usize) -> Body {
    let mut random = Random::new(number as u64);
    let radius = (((1.0 - random.unit()) * MASS_MAX).powf(-2.0 / 3.0) - 1.0).sqrt().recip();
    let speed = loop {
        let (speed, height) = (random.unit(), random.unit() / 10.0);
        if height < speed * speed * (1.0 - speed * speed).powf(3.5) {
            break speed * 2_f64.sqrt() * (1.0 + radius * radius).powf(-0.25);
        }
    };
    Body {
        position: in_any_direction(&mut random, radius * LENGTH),
        mass: 1.0 / count as f64,
        velocity: in_any_direction(&mut random, speed / LENGTH.sqrt()),
        cost: 1,
    }
}

/// Returns a vector of this length.
fn in_any_direction(random: &mut Random, length: f64) -> Vector {
    loop {
        let vector = [(); 3].map(|()| 2.0 * random.unit() - 1.0);
        let inside = square(vector);
        if inside <= 1.0 && inside > 1e-6 {
            return add([0.0; 3], length / inside.sqrt(), vector);
        }
    }
}
