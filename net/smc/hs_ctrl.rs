// SPDX-License-Identifier: GPL-2.0

//! `net.smc.hs_ctrl`: the name of the handshake control of a network namespace, a pair of BPF programs that TCP asks
//! whether a SYN or a SYN-ACK carries the SMC option. Names, errors and inheritance are those of the C module.

use kernel_ext::{
    net::{
        hs_ctrl::{
            HsCtrlRef,
            NAME_LEN, //
        },
        text_setting::TextSetting,
        NetNs,
        NewNetNs, //
    },
    prelude::*, //
};

/// The setting of a namespace.
struct HsCtrlSetting;

impl TextSetting<NAME_LEN> for HsCtrlSetting {
    const NAME: &'static CStr = c"hs_ctrl";

    fn read(net: &NetNs) -> [u8; NAME_LEN] {
        net.with_hs_ctrl(|ctrl| *ctrl.name())
            .unwrap_or([0; NAME_LEN])
    }

    fn write(net: &NetNs, name: &CStr) -> Result {
        let ctrl = match name.is_empty() {
            true => None,
            false => Some(HsCtrlRef::find(name)?),
        };
        net.set_hs_ctrl(ctrl);
        Ok(())
    }
}

/// Creates the setting of a namespace in a directory. Its control is that of the initial namespace, if that may be
/// inherited.
/// Context: may sleep.
pub(crate) fn create(net: &mut NewNetNs, path: &'static CStr) -> Result {
    let inherited = NetNs::initial().with_hs_ctrl(|ctrl| match ctrl.is_inheritable() {
        true => ctrl.get(),
        false => None,
    });
    net.hs_ctrl::<HsCtrlSetting, NAME_LEN>(path, inherited.flatten())
}
