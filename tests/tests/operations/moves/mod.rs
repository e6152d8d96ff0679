//! Leadership and segments that move to another node.

mod leadership;
