// SPDX-License-Identifier: GPL-2.0
//! A User-Mode Linux guest: the kernel is an ordinary process.

use std::path::Path;
use std::process::Command;

use anyhow::Result;

use super::{Guest, Machine};

pub(super) fn machine(
    guest: &Guest<'_>,
    run: &Path,
    init: &Path,
    interactive: bool,
) -> Result<Machine> {
    // The kernel goes when this program does, however that ends.
    let mut cmd = Command::new("setpriv");
    cmd.args(["--pdeathsig", "KILL"]).arg(&guest.kernel.image);
    cmd.arg(format!("mem={}", guest.mem))
        .arg(format!("ncpus={}", guest.cpus));
    cmd.args([
        "rootfstype=hostfs",
        "rootflags=/",
        "ro",
        "con=null",
        "seccomp=on",
        "panic=-1",
    ]);
    cmd.arg(format!("init={}", init.display()));
    cmd.arg(if interactive {
        "con0=fd:0,fd:1"
    } else {
        "con0=null,fd:1"
    });
    if interactive {
        cmd.arg("quiet");
    }
    cmd.arg(format!("uml_dir={}/", run.display()))
        .arg("umid=uml");
    if let Some(wire) = guest.wire {
        // Without the session numbers opening the device fails, and the guest with it.
        cmd.arg(format!(
            "vec0:transport=l2tpv3,udp=1,v6=0,src=127.0.0.1,dst=127.0.0.1,srcport={},dstport={},\
             tx_session=0x5,rx_session=0x5,depth=64,mtu=9000",
            wire.here, wire.there
        ));
    }
    Ok(Machine {
        cmd,
        kernel_log: None,
    })
}
