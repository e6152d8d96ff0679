//! The plan of a stream on each fabric.

use ddss_sdp::{Capabilities, Plan};
use ddss_verbs::{Fabric, Iwarp, IwarpConfig, Parts, Place};

/// Asks a fabric as a stream does.
fn query(parts: Parts, remote_reads: Place) -> Capabilities {
    let of = |place| match place {
        Place::Adapter => ddss_sdp::Place::Adapter,
        Place::Kernel => ddss_sdp::Place::Kernel,
        Place::Processor => ddss_sdp::Place::Processor,
        Place::Software => ddss_sdp::Place::Software,
        _ => ddss_sdp::Place::Absent,
    };
    Capabilities {
        checksum: of(parts.checksum),
        demultiplexing: of(parts.demultiplexing),
        markers: of(parts.markers),
        segmentation: of(parts.segmentation),
        send_queue: of(parts.send_queue),
        flow_control: of(parts.flow_control),
        remote_reads: of(remote_reads),
    }
}

// If this failed, a stream would copy, wait or count although its fabric does so anyway, or rely on a missing bound.
#[test]
fn plan_follows_from_the_parts_of_each_fabric() {
    let iwarp = Iwarp::new(IwarpConfig::default()).expect("loopback is there").capabilities().parts;
    assert_eq!(iwarp, Parts::of_user_space(true, false));
    assert!(Plan::of(&query(iwarp, Place::Software)).is_enhanced());
    // The streams of `ddss_stream::wire` are the same fabric with markers.
    let wire = query(Parts::of_user_space(true, true), Place::Software);
    assert_eq!(wire, ddss_stream::wire::capabilities());
    for is_iwarp in [false, true] {
        let adapter = Plan::of(&query(Parts::of_adapter(is_iwarp), Place::Adapter));
        assert_eq!(adapter, Plan { zero_copy: true, ..Plan::basic() });
    }
    assert_eq!(Plan::of(&query(Parts::of_simulation(), Place::Absent)), Plan::basic());
}
