// SPDX-License-Identifier: GPL-2.0
//! A User-Mode Linux guest: the kernel is a normal process.

use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::Command;

use anyhow::Result;

use super::pin::Pin;
use super::{Guest, Machine, Wire};
use crate::kernel::Flavour;

pub(super) fn machine(
    guest: &Guest<'_>,
    run: &Path,
    init: &Path,
    interactive: bool,
) -> Result<Machine> {
    // The kernel is killed when this program ends in any way.
    let pin = (guest.cpus == 1).then(Pin::take).flatten();
    let mut cmd = pinned(pin.as_ref());
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
    if matches!(guest.kernel.flavour, Flavour::UmDebug | Flavour::UmNoSmc) {
        // The slab allocator's lists of free objects keep the addresses of those that were
        // allocated, and kmemleak takes these for references. Caches with checks have no lists.
        cmd.arg("slab_debug=F");
    }
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
    let mut stdin = None;
    if let Some(wire) = &guest.wire {
        let transport = match wire {
            // Without the session numbers the device cannot be opened, and the guest fails.
            Wire::Udp { here, there } => format!(
                "l2tpv3,udp=1,v6=0,src=127.0.0.1,dst=127.0.0.1,srcport={here},dstport={there},\
                 tx_session=0x5,rx_session=0x5"
            ),
            // A descriptor that survives each program up to the kernel, and which the device does not close when it
            // goes down.
            Wire::Socket(socket) => {
                stdin = Some(OwnedFd::from(socket.try_clone()?).into());
                "fd,fd=0".to_owned()
            }
        };
        let mtu = wire.mtu();
        cmd.arg(format!("vec0:transport={transport},depth=64,mtu={mtu}"));
    }
    Ok(Machine {
        cmd,
        stdin,
        kernel_log: None,
        _pin: pin,
    })
}

/// Returns a `setpriv` command that runs on a single processor of this machine, as long as the place there is kept.
///
/// A guest's kernel and its programs are processes that wait for each other at each system call. On
/// one processor this is a context switch; on two, each call has to wake the other processor, which
/// costs several times as much in a virtual machine.
fn pinned(pin: Option<&Pin>) -> Command {
    match pin {
        Some(pin) => {
            let mut cmd = Command::new("taskset");
            cmd.args(["--cpu-list", &pin.cpu().to_string(), "setpriv"]);
            cmd
        }
        None => Command::new("setpriv"),
    }
}
