//! The handshake: who may attach, who is told what, and who stands in whose way.

#![allow(clippy::unwrap_used, reason = "a test")]

mod support;

use std::time::Duration;

use ddss_ipc::{AttachError, AttachOptions, Attachment};
use support::{Echo, attach};

#[test]
fn who_cannot_attach_is_told_why() {
    // If this broke, people would search for the daemon's fault in their own program.
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("socket");
    let mut options = AttachOptions::default();
    options.timeout = Duration::from_millis(200);
    let nobody = Attachment::connect(&path, &options).unwrap_err();
    assert!(matches!(nobody, AttachError::NoDaemon { .. }), "{nobody}");

    options.lanes = 65;
    assert!(matches!(Attachment::connect(&path, &options), Err(AttachError::Options { lanes: 65, .. })));

    let echo = Echo::with(|config| config.clients_max = 1);
    let _first = attach(&echo.path, |_| {});
    let refused = Attachment::connect(&echo.path, &AttachOptions::default()).unwrap_err();
    assert!(refused.to_string().contains("all 1 client slots are taken"), "{refused}");
}
