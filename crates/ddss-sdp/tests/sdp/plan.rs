//! The choice of a plan, and the settings.

use ddss_sdp::{BasicStream, Buffering, Capabilities, Coalescing, FlowControl, Place, Plan, SdpError, StreamConfig};

use crate::common::{SMALL, terms};

const SOFTWARE: Capabilities = Capabilities {
    checksum: Place::Processor,
    demultiplexing: Place::Kernel,
    markers: Place::Software,
    segmentation: Place::Kernel,
    send_queue: Place::Software,
    flow_control: Place::Kernel,
    remote_reads: Place::Software,
};

const ADAPTER: Capabilities = Capabilities {
    checksum: Place::Adapter,
    demultiplexing: Place::Adapter,
    markers: Place::Adapter,
    segmentation: Place::Adapter,
    send_queue: Place::Adapter,
    flow_control: Place::Absent,
    remote_reads: Place::Adapter,
};

#[test]
fn plan_follows_the_places_of_the_work() {
    // If this failed, a stream would copy, wait or count where the fabric does so anyway.
    let enhanced = Plan::of(&SOFTWARE);
    assert_eq!(enhanced.buffering, Buffering::Integrated);
    assert_eq!(enhanced.coalescing, Coalescing::Append);
    assert_eq!(enhanced.flow_control, FlowControl::Receiver);
    assert_eq!(Plan::of(&Capabilities { markers: Place::Absent, ..SOFTWARE }), enhanced);

    let offloaded = Plan::of(&ADAPTER);
    assert_eq!(offloaded, Plan { zero_copy: true, ..Plan::basic() });
    let unbounded = Capabilities { flow_control: Place::Absent, ..SOFTWARE };
    assert_eq!(Plan::of(&unbounded).flow_control, FlowControl::Credits);
    let without_reads = Capabilities { remote_reads: Place::Absent, ..ADAPTER };
    assert_eq!(Plan::of(&without_reads), Plan::basic());
}

#[test]
fn settings_outside_their_limits_are_refused() {
    // If this failed, a stream could have no room for a message that gives credits.
    let terms = terms(&SMALL, Plan::basic())[0];
    for (name, config) in [
        ("buffers", StreamConfig { buffers: 3, ..SMALL }),
        ("buffers", StreamConfig { buffers: u16::MAX, ..SMALL }),
        ("buffer_bytes", StreamConfig { buffer_bytes: 16, ..SMALL }),
        ("buffer_bytes_max", StreamConfig { buffer_bytes_max: 255, ..SMALL }),
    ] {
        assert!(
            matches!(BasicStream::new(&config, &terms).err(), Some(SdpError::Config(at, _)) if at == name),
            "{name}"
        );
    }
}
