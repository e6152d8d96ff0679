//! Selection of the fabric to the other nodes; one log line states the choice and the reason.

use ddss_admin::{FabricChoice, format_error_chain};
use ddss_core::limits as core_limits;
use ddss_verbs::limits as fabric_limits;
use ddss_verbs::{Fabric, Iwarp, IwarpConfig};
use std::net::SocketAddr;

use crate::start_error::StartError;

// A fabric has limits of its own, and has to carry all that the engine may send.
const _: () = assert!(core_limits::MESSAGE_BYTES_MAX <= fabric_limits::MESSAGE_BYTES_DEFAULT);
const _: () = assert!(core_limits::HELLO_BYTES_MAX <= fabric_limits::HELLO_BYTES_MAX);
const _: () = assert!(core_limits::TRANSFER_BYTES_MAX as u64 <= fabric_limits::WORK_BYTES_MAX);
// While two nodes settle on one of two connections, each has both.
const _: () = assert!(2 * core_limits::NODES_MAX <= fabric_limits::PEERS_MAX);

/// Opens the fabric for a node that listens on `address`; `fences` as in
/// [`Config::fence_reads`](crate::Config::fence_reads).
pub(crate) fn open(
    choice: &FabricChoice,
    address: SocketAddr,
    fences: Option<bool>,
) -> Result<Box<dyn Fabric>, StartError> {
    let adapter = |name, why| adapter(name, address, fences, why);
    let why = match choice {
        FabricChoice::Iwarp => "it was asked for".to_owned(),
        FabricChoice::Rdma => return adapter(None, "it was asked for").map_err(StartError::Adapter),
        FabricChoice::Adapter(name) => return adapter(Some(name), "it was named").map_err(StartError::Adapter),
        FabricChoice::Auto if address.ip().is_loopback() => {
            format!("{} is this machine's own, and no adapter's", address.ip())
        }
        FabricChoice::Auto if address.ip().is_unspecified() => {
            format!("{} is every address: listen on an rdma adapter's own to use it", address.ip())
        }
        FabricChoice::Auto => match adapter(None, "it has the address on which this node listens") {
            Ok(fabric) => return Ok(fabric),
            Err(error) => format_error_chain(error.as_ref()),
        },
    };
    let fabric = Iwarp::new(IwarpConfig::default()).map_err(StartError::Network)?;
    tracing::info!(fabric = "iwarp", over = "tcp", why, "fabric selected");
    Ok(Box::new(fabric))
}

type AdapterError = Box<dyn std::error::Error + Send + Sync>;

#[cfg(feature = "rdma")]
fn adapter(
    name: Option<&str>,
    address: SocketAddr,
    fences: Option<bool>,
    why: &str,
) -> Result<Box<dyn Fabric>, AdapterError> {
    use ddss_verbs::rdma::{Rdma, RdmaConfig};
    let mut config = RdmaConfig::default();
    config.device = name.map(str::to_owned);
    config.address = (!address.ip().is_unspecified()).then_some(address.ip());
    config.fence_reads = fences;
    let fabric = Rdma::new(config)?;
    let reads = if fabric.capabilities().reads_overlap { "together" } else { "one after the other" };
    let over = if fabric.is_iwarp() { "iwarp adapter" } else { "infiniband or roce adapter" };
    tracing::info!(fabric = "rdma", device = fabric.device(), over, reads, why, "fabric selected");
    Ok(Box::new(fabric))
}

#[cfg(not(feature = "rdma"))]
fn adapter(_: Option<&str>, _: SocketAddr, _: Option<bool>, _: &str) -> Result<Box<dyn Fabric>, AdapterError> {
    Err("this ddssd was built without its feature rdma (cargo build --release --features rdma --bin ddssd)".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fabric_choice_round_trips_as_text() {
        // If this broke, a node would use another fabric than its operator configured.
        assert_eq!("auto".parse(), Ok(FabricChoice::Auto));
        assert_eq!("iwarp".parse(), Ok(FabricChoice::Iwarp));
        assert_eq!("rdma".parse(), Ok(FabricChoice::Rdma));
        let named: FabricChoice = "rdma:mlx5_0".parse().unwrap();
        assert_eq!((named.to_string().as_str(), named), ("rdma:mlx5_0", FabricChoice::Adapter("mlx5_0".to_owned())));
        assert!(["tcp", "rdma:", "iwarp:eth0"].iter().all(|wrong| wrong.parse::<FabricChoice>().is_err()));
    }

    #[test]
    fn address_without_adapter_uses_iwarp_or_is_refused() {
        // If this failed, a machine without an adapter could not start a node, or would fall back silently.
        let address = SocketAddr::from(([127, 0, 0, 1], 0));
        assert_eq!(open(&FabricChoice::Auto, address, None).unwrap().capabilities().name, "iwarp");
        let everywhere = SocketAddr::from(([0, 0, 0, 0], 0));
        assert_eq!(open(&FabricChoice::Auto, everywhere, None).unwrap().capabilities().name, "iwarp");
        // An address of the documentation range, which no machine has.
        let nowhere = SocketAddr::from(([192, 0, 2, 1], 0));
        assert_eq!(open(&FabricChoice::Auto, nowhere, None).unwrap().capabilities().name, "iwarp");
        for choice in [FabricChoice::Rdma, FabricChoice::Adapter("mlx5_99".to_owned())] {
            let refused = open(&choice, nowhere, None).err().unwrap();
            assert!(matches!(refused, StartError::Adapter(_)), "{refused}");
            assert!(refused.to_string().contains("rdma"), "{refused}");
        }
    }
}
