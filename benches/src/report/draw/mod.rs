//! Draws figures as SVG with plain attributes, on a white ground, so that every viewer shows the same.

mod area;
mod axis;
mod bars;
mod curves;
mod layout;
mod table;

pub use layout::draw;
