//! Complex numbers.

use std::ops::{Add, Mul, Sub};
use zerocopy::{FromBytes, Immutable, IntoBytes};

/// A complex number.
#[derive(Clone, Copy, PartialEq, Debug, Default, FromBytes, IntoBytes, Immutable)]
#[repr(C)]
pub(super) struct Complex {
    pub(super) re: f64,
    pub(super) im: f64,
}

impl Complex {
    /// Returns the number with this angle on the unit circle.
    pub(super) fn from_angle(angle: f64) -> Self {
        Self { re: angle.cos(), im: angle.sin() }
    }

    pub(super) fn conjugate(self) -> Self {
        Self { im: -self.im, ..self }
    }

    pub(super) fn scale(self, factor: f64) -> Self {
        Self { re: self.re * factor, im: self.im * factor }
    }

    pub(super) fn abs(self) -> f64 {
        self.re.hypot(self.im)
    }
}

impl Add for Complex {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self { re: self.re + other.re, im: self.im + other.im }
    }
}

impl Sub for Complex {
    type Output = Self;

    fn sub(self, other: Self) -> Self {
        Self { re: self.re - other.re, im: self.im - other.im }
    }
}

impl Mul for Complex {
    type Output = Self;

    fn mul(self, other: Self) -> Self {
        Self { re: self.re * other.re - self.im * other.im, im: self.re * other.im + self.im * other.re }
    }
}
