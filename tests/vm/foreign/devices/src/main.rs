//! Lists RDMA devices, ports and GIDs as the crate `ibverbs` finds them, one line each: `gid DEVICE PORT INDEX ADDRESS
//! TYPE`. `crates/ddss-verbs/tests/foreign/mod.rs` compares the list with ours.

#![forbid(unsafe_code)]

use std::error::Error;
use std::net::Ipv6Addr;

fn main() -> Result<(), Box<dyn Error>> {
    for device in &ibverbs::devices()? {
        let name = device.name().ok_or("a device without a name")?.to_str()?;
        // A device whose first port is down cannot be opened by this crate.
        let context = device.open().map_err(|error| format!("{name}: {error}"))?;
        println!("device {name}");
        for entry in context.gid_table() {
            let address = u128::from(entry.gid.subnet_prefix()) << 64 | u128::from(entry.gid.interface_id());
            let (port, index, kind) = (entry.port_num, entry.gid_index, entry.gid_type);
            println!("gid {name} {port} {index} {} {kind}", Ipv6Addr::from(address));
        }
    }
    Ok(())
}
