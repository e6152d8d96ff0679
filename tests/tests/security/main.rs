//! Hostile clients, hostile networks, quotas and privileges.

mod byzantine_clients;
mod byzantine_network;
mod privileges;
mod quotas;
