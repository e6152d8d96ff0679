//! Settings, packages, socket activation, monitoring.

mod alerts;
mod backup;
mod founding;
mod health;
mod log_throttle;
mod memory_limit;
mod metrics;
mod moves;
mod packages;
mod preflight;
mod recovery;
mod releases;
mod settings;
mod socket_activation;
