//! Conformance suite over iWARP on loopback and over the simulated network.

use crate::common::{Loopback, SealedLoopback, Simulated};
use crate::suite;
use ddss_verbs::Revision;

all_tests!(crc, Loopback::new(|_| {}));
all_tests!(exclusive_memory, Loopback::new(|_| {}).exclusive());
all_tests!(sealed, SealedLoopback::default());
all_tests!(sealed_exclusive_memory, SealedLoopback::exclusive());
all_tests!(no_crc, Loopback::new(|config| config.crc = false));
all_tests!(markers, Loopback::new(|config| config.markers = true));
all_tests!(
    markers_without_crc,
    Loopback::new(|config| {
        config.markers = true;
        config.crc = false;
    })
);
all_tests!(revision_one, Loopback::new(|config| config.revision = Revision::One));
all_tests!(
    few_reads,
    Loopback::new(|config| {
        config.reads_inbound = 2;
        config.reads_outbound = 3;
    })
);
all_tests!(long_messages, Loopback::new(|config| config.message_bytes_max = 8 << 10));
all_tests!(
    longest_messages_with_markers,
    Loopback::new(|config| {
        config.markers = true;
        config.message_bytes_max = 64 << 10;
    })
);

all_tests!(sim, Simulated::new(1));
all_tests!(sim_long_messages, Simulated::with(2, |config| config.message_bytes_max = 64 << 10));
all_tests!(sim_other_seed, Simulated::new(4711));
