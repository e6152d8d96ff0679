//! Byzantine clients and peers, quotas and privileges.

mod byzantine_clients;
mod byzantine_network;
mod privileges;
mod quotas;
