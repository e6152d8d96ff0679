//! Daemons in processes of their own, alone and in hostile surroundings.

pub(crate) mod attacked_member;
pub(crate) mod daemon;
pub(crate) mod process;
pub(crate) mod scripted_client;
pub(crate) mod temp_node;
pub(crate) mod victim_node;
