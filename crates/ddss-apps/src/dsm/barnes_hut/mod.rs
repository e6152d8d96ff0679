//! The method of Barnes and Hut: forces between bodies by a tree of cells, each of which stands for all of its bodies if it is far.
//!
//! Each rank builds the cells of its own part of space, so that no lock is needed (SPACE, Shan and Singh 1998), and moves the
//! bodies in it. Bodies do not lie in the order of space: several ranks write into one page.

mod body;
mod octree;
mod plummer;
mod program;
mod vector;
mod zones;

pub(super) use program::run;
