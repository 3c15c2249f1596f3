// SPDX-License-Identifier: GPL-2.0

//! Why a connection does not use SMC: one typed reason, with the number that goes on the wire.
//!
//! Connection layer control (CLC) DECLINE messages, `sock_diag` and the fallback statistics all
//! carry the same 32-bit diagnosis. The numbers are those of the C module (`smc_clc.h`) and are
//! ABI; the sentence and the hint are for people (RFC 7609 section 3.2, "peer diagnosis").

use crate::explained::explained;

explained! {
    /// Why a connection falls back to TCP, or was declined by the peer. The number is the peer diagnosis on the wire
    /// and the value in `sock_diag`, the name the rest of the C module's `SMC_CLC_DECL_*`.
    pub enum Reason {
        Memory = 0x0101_0000, "MEM",
            "Memory for the handshake, a buffer or the link group could not be had.",
            "Lower net.smc.rmem and net.smc.wmem, or set net.smc.smcr_buf_type to 1 or 2, so that buffers need not be contiguous.";
        TimeoutConfirmLink = 0x0201_0000, "TIMEOUT_CL",
            "The new link was never confirmed: no CONFIRM_LINK arrived in time over RDMA.",
            "RDMA traffic does not get through: check the firewalls for UDP port 4791 (RoCE) or TCP ports from 49152 on (iWARP), the MTU, and that both ends reach each other by RDMA (smc check HOST).";
        TimeoutAddLink = 0x0202_0000, "TIMEOUT_AL",
            "The second link was not added in time.",
            "Check RDMA connectivity of the second port.";
        ConfigError = 0x0300_0000, "CNFERR",
            "The interface has no IP prefix that could be offered, and version 2 is not offered.",
            "Give the interface an address with a prefix, or configure an enterprise ID (smc ueid add NAME) to use version 2.";
        PeerNoSmc = 0x0301_0000, "PEERNOSMC",
            "The peer does not speak SMC: its SYN carried no SMC option.",
            "Load the smc module and use AF_SMC on the other side; see that no rule there denies it (smc policy show), that no firewall strips TCP option 254 and that no SYN cookies were sent.";
        Ipsec = 0x0302_0000, "IPSEC",
            "The TCP connection is protected by IPsec, which RDMA would bypass.",
            "Exempt this traffic from the xfrm policy if it may run unencrypted over RDMA.";
        NoSmcDevice = 0x0303_0000, "NOSMCDEV",
            "No usable RDMA device belongs to this connection's interface.",
            "See that an RDMA port on this interface is active (rdma link show), has a RoCE GID (smc dev), and is on the same physical network if that of either has a name (smc pnet show).";
        NoSmcdDevice = 0x0303_0001, "NOSMCDDEV",
            "The client offered SMC-D only and there is no SMC-D device here.",
            "Let the client offer SMC-R: SMC-D is for two ends on one machine only.";
        NoSmcrDevice = 0x0303_0002, "NOSMCRDEV",
            "No usable RDMA device was found for version 2.",
            "See that an RDMA port on this interface is active and has a RoCE v2 GID with an IPv4 address in the right subnet.";
        NoIsmV2Support = 0x0303_0003, "NOISM2SUPP",
            "The client offered only SMC-D version 2, of a device that is not this machine's or may not be used.",
            "Let the client offer SMC-R. If both ends are on one machine, see whether shared memory is on (smc info).";
        NoV2Extension = 0x0303_0004, "NOV2EXT",
            "The proposal offers version 2 without its version 2 extension.",
            "The peer's SMC is defective or a middlebox changed the data; update the peer.";
        NoV2DExtension = 0x0303_0005, "NOV2DEXT",
            "The proposal offers SMC-D version 2 without its extension.",
            "The peer's SMC is defective; update the peer.";
        NoSeid = 0x0303_0006, "NOSEID",
            "There is no system EID in common.",
            "Configure the same user EID on both sides.";
        NoSmcd2Device = 0x0303_0007, "NOSMCD2DEV",
            "No SMC-D version 2 device matches.",
            "Let the client offer SMC-R.";
        NoUeid = 0x0303_0008, "NOUEID",
            "The client offered version 2 without any user EID.",
            "Configure an enterprise ID on the client (smc ueid add NAME).";
        ReleaseError = 0x0303_0009, "RELEASEERR",
            "The peer named a release of version 2 that was not agreed on.",
            "Update the peer.";
        MaxConnsError = 0x0303_000a, "MAXCONNERR",
            "The limit of connections per link group is below 16 or differs from the agreed one.",
            "Set net.smc.smcr_max_conns_per_lgr to at least 16 on both sides.";
        MaxLinksError = 0x0303_000b, "MAXLINKERR",
            "The limit of links per link group is out of range or differs from the agreed one.",
            "Set net.smc.smcr_max_links_per_lgr to at least 1 on both sides.";
        ModeUnsupported = 0x0304_0000, "MODEUNSUPP",
            "The server answered with a technology, version or parameter that was not proposed.",
            "Update the peer; compare the enterprise IDs of both sides (smc ueid show).";
        RmbeEyeCatcher = 0x0305_0000, "RMBE_EC",
            "The peer wants an eye catcher in the RMB element, which is not supported.",
            "The peer is not compatible with Linux; nothing to change here.";
        OptionUnsupported = 0x0306_0000, "OPTUNSUPP",
            "The socket uses TCP Fast Open or TCP_REPAIR, which cannot carry SMC.",
            "Do not use MSG_FASTOPEN, the TCP_FASTOPEN options or TCP_REPAIR on this socket.";
        DifferentPrefix = 0x0307_0000, "DIFFPREFIX",
            "The client is in another IP subnet, which version 1 cannot cross.",
            "Configure the same user EID on both sides to use version 2, or put both into one subnet.";
        VlanError = 0x0308_0000, "GETVLANERR",
            "The interface of the TCP connection could not be determined.",
            "Check the route to the peer; the connection must leave through an interface with an RDMA device.";
        IsmVlanError = 0x0309_0000, "ISMVLANERR",
            "The VLAN could not be registered with the SMC-D device.",
            "Check the VLAN configuration of the ISM device.";
        NoActiveLink = 0x030a_0000, "NOACTLINK",
            "The link group to the peer has no active link left.",
            "Look for RDMA port or cable errors (rdma link show, dmesg); a new connection will build a new link group.";
        NoServerLink = 0x030b_0000, "NOSRVLINK",
            "The server named a link that does not exist in the link group.",
            "The link was lost meanwhile; retry. If it persists, look for failing RDMA ports.";
        VersionMismatch = 0x030c_0000, "VERSMISMAT",
            "The versions of the two sides do not match.",
            "Update the peer.";
        DmbLimit = 0x030d_0000, "MAX_DMB",
            "The SMC-D device has no memory buffer left.",
            "Lower the number of SMC-D connections.";
        NoRoute = 0x030e_0000, "NOROUTE",
            "There is no IPv4 route or neighbour entry to the server's RDMA address.",
            "Add a route to the address in the server's GID, through the interface of the RDMA device.";
        NoIndirect = 0x030f_0000, "NOINDIRECT",
            "The server reaches this host through a gateway, but the route back is direct.",
            "Make the routes between the two RDMA addresses symmetric.";
        SyncError = 0x0400_0000, "SYNCERR",
            "The server wants to reuse a link group that does not exist here any more.",
            "The link group was lost on one side; retry, the next connection builds a new one.";
        PeerDeclined = 0x0500_0000, "PEERDECL",
            "The peer declined.",
            "Look at the peer diagnosis, and at the fallback reason on the peer (smc ss, smc stats).";
        Internal = 0x0999_0000, "INTERR",
            "The link group could not be created.",
            "See the kernel log.";
        NoRtoken = 0x0999_0001, "ERR_RTOK",
            "The link group's table of remote buffers is full.",
            "Lower net.smc.smcr_max_conns_per_lgr.";
        LinkNotReady = 0x0999_0002, "ERR_RDYLNK",
            "The RDMA device refused to bring up the queue pair.",
            "See the kernel log of the RDMA driver; check that both GIDs are routable and the MTU fits.";
        RegistrationFailed = 0x0999_0003, "ERR_REGBUF",
            "A buffer could not be registered with the device or announced to the peer.",
            "Check the RDMA device's memory region limits and that the link to the peer works.";
    }
}

impl Reason {
    /// Says whether a DECLINE with this reason carries the out-of-sync bit, which tells the
    /// server to give up the link group it wanted to reuse (RFC 7609 appendix A.2.4).
    pub const fn is_out_of_sync(self) -> bool {
        matches!(self, Self::SyncError)
    }

    /// Says whether a DECLINE is owed to the peer: not to one that declined itself, and not
    /// before there is a connection. [`Reason::PeerNoSmc`] is sent only in answer to a proposal
    /// without a usable type; a peer without the SMC option must not see a CLC message.
    pub const fn is_sent(self) -> bool {
        !matches!(self, Self::PeerDeclined | Self::OptionUnsupported)
    }
}

impl core::fmt::Display for Reason {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(self.sentence())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_unique_sorted_and_round_trip() {
        for pair in Reason::ALL.windows(2) {
            assert!(pair[0].code() < pair[1].code(), "{pair:?}");
        }
        for reason in Reason::ALL {
            assert_eq!(Reason::from_code(reason.code()), Some(*reason));
        }
        assert_eq!(Reason::from_code(0), None);
        assert_eq!(Reason::from_code(0x0303_000c), None);
    }

    #[test]
    fn every_reason_explains_itself() {
        for reason in Reason::ALL {
            for text in [reason.sentence(), reason.hint()] {
                assert!(text.ends_with('.') || text.ends_with(')'), "{text}");
                assert!(text.len() > 10, "{text}");
            }
        }
    }

    #[test]
    fn only_a_synchronisation_error_sets_the_out_of_sync_bit() {
        let marked = Reason::ALL.iter().filter(|r| r.is_out_of_sync());
        assert!(marked.eq([&Reason::SyncError]));
    }
}
