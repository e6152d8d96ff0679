//! Settings, packages, socket activation, monitoring.

mod founding;
mod health;
mod log_throttle;
mod memory_limit;
mod metrics;
mod packages;
mod preflight;
mod settings;
mod socket_activation;
