// SPDX-License-Identifier: GPL-2.0

//! What exactly was missing when this machine gave up SMC for a connection: finer than the
//! [`Reason`](crate::reason::Reason), which is all that a peer is told.
//!
//! The numbers are of this module's own and go to user space only: by the socket option that tells a
//! socket's path, and by `sock_diag` to who asks for them.

use crate::explained::explained;

explained! {
    /// What was missing here. Of those up to [`Cause::NoRoceV1`] a later one means that the search for a port came
    /// further, see [`Cause::nearer`]. 0 is never one's number.
    pub enum Cause {
        NoCommonEid = 1, "no-common-eid",
            "None of the enterprise IDs that the client offered is one of this machine's.",
            "Give both machines an enterprise ID in common (smc ueid add NAME).";
        NoOwnEid = 2, "no-own-eid",
            "This machine has no enterprise ID, which version 2 needs, and no RDMA port for version 1.",
            "Give both machines an enterprise ID in common (smc ueid add NAME).";
        NoInterface = 3, "no-interface",
            "The network device of the connection's route could not be determined.",
            "Check the route to the peer; the connection must leave through a network device with an RDMA device.";
        NoDevice = 4, "no-device",
            "This machine has no RDMA device.",
            "Load the driver of the RDMA adapter (rdma link show), or make a soft one (rdma link add NAME type rxe netdev DEVICE).";
        OtherNamespace = 5, "other-namespace",
            "All RDMA devices of this machine are in other network namespaces.",
            "Move one here (rdma dev set NAME netns NAMESPACE), or share them (rdma system set netns shared).";
        OtherInterface = 6, "other-interface",
            "No RDMA device belongs to the network device that the connection uses.",
            "Route the connection through the RDMA device's network device, or put both on one physical network by name (smc pnet add).";
        EmptyNetwork = 7, "empty-network",
            "No port of an RDMA device is on the physical network that the connection's network device is named to be on.",
            "Name the network of an RDMA port, too (smc pnet add NAME -D DEVICE), or remove the name of the network device (smc pnet del NAME).";
        PortDown = 8, "port-down",
            "The port of the RDMA device is not active.",
            "Bring its network device up (ip link set DEVICE up) and look at the cable (rdma link show).";
        NoAddress = 9, "no-address",
            "The port of the RDMA device has no RoCE v2 address of this network namespace that is an IPv4 address.",
            "Give the RDMA device's network device, or one on top of it in this network namespace, an IPv4 address; SMC-R version 2 needs one even if the connection is over IPv6. Only the first 256 addresses of an RDMA port can be used (/sys/class/infiniband/*/ports/*/gids).";
        WrongSubnet = 10, "wrong-subnet",
            "No address of the RDMA port on that physical network is in the subnet of the connection's own address.",
            "Give the RDMA device's network device an IPv4 address in the subnet of the connection. Only the first 256 addresses of an RDMA port can be used (/sys/class/infiniband/*/ports/*/gids).";
        NoPathToPeer = 11, "no-path-to-peer",
            "The port of the RDMA device has no route to the peer's RDMA address, or nobody answers there.",
            "Check the routes and the neighbours between the two RDMA addresses (ip route get ADDRESS oif DEVICE).";
        PathSilent = 12, "path-silent",
            "RDMA packets to or from the peer did not get through, though TCP did.",
            "Let RDMA through all firewalls between the two, in both directions: UDP port 4791 for RoCE, TCP ports 49152 to 65535 for iWARP; check the MTU, too.";
        PathFailed = 13, "path-failed",
            "RDMA packets to or from the peer did not get through a moment ago, so that it is not tried again at once.",
            "Let RDMA through all firewalls between the two, in both directions: UDP port 4791 for RoCE, TCP ports 49152 to 65535 for iWARP. It is tried again within a minute.";
        PeerBusy = 14, "peer-busy",
            "Another connection was making a link group with the same peer, and took too long.",
            "If it happens again, see why other connections of this peer go over TCP (smc ss); RDMA may not get through a firewall (UDP port 4791).";
        TcpKeys = 15, "tcp-keys",
            "The TCP connection is protected by keys (TCP_MD5SIG, TCP_AO), which data over RDMA would not be.",
            "Nothing is wrong. Only a connection without such keys can use SMC.";
        DeniedByRule = 16, "denied-by-rule",
            "A rule of this network namespace has connections like this one go over TCP.",
            "Nothing is wrong. To let it use SMC, change the rules (smc policy show).";
        NoRoceV1 = 17, "no-roce-v1",
            "The peer offers version 1 only, and no port of an RDMA device here has a RoCE v1 address.",
            "Give both machines an enterprise ID in common (smc ueid add NAME): version 2 uses RoCE v2 addresses.";
        SmcdOff = 18, "smcd-off",
            "The client is on this machine and has no RDMA port for the connection, and shared memory within the machine is switched off at this end.",
            "Set net.smc.smcd_loopback to 1 in the network namespace of the server and in the initial one.";
        OtherKernel = 19, "other-kernel",
            "The client offers nothing but shared memory of a machine that is not this one: it has no RDMA port for the connection.",
            "At the client, see what smc why says about RDMA. Between two machines, or virtual machines, SMC needs it at both ends.";
        CgroupMemory = 20, "cgroup-limit",
            "The cgroup of the program may not have more memory, of which the connection's RMB element would be a part.",
            "Raise memory.max of the cgroup (version 1: memory.kmem.tcp.limit_in_bytes), or lower SO_RCVBUF or net.smc.rmem.";
        SocketMemory = 21, "all-sockets-limit",
            "The SMC sockets of this machine have as much memory together as they may.",
            "Raise the third number of net.smc.smcr_mem (pages), or lower SO_RCVBUF or net.smc.rmem.";
        PeerGroups = 22, "peer-groups-limit",
            "There are as many link groups with the peer's address as may be (64), all with connections.",
            "Raise net.smc.smcr_max_conns_per_lgr at both ends, so that fewer link groups carry the connections.";
        AllGroups = 23, "all-groups-limit",
            "This machine has as many link groups as its memory allows (one for each 4 MiB), all with connections.",
            "See who has them (smc lgr); raise net.smc.smcr_max_conns_per_lgr, so that fewer link groups carry the connections.";
        DeviceSge = 24, "device-sge",
            "The RDMA device takes fewer memory ranges (SGEs) in a work request than a link needs: 2 to send, 1 to receive.",
            "See the kernel log for the device and its limit (dmesg). Use another RDMA device, or a newer driver or firmware.";
        DeviceQueue = 25, "device-queue",
            "The RDMA device has smaller queues (work requests, completions) than a link needs, or no completion vector.",
            "See the kernel log for the device and its limit (dmesg). Use another RDMA device, or a newer driver or firmware.";
        DeviceFastReg = 26, "device-fast-reg",
            "The RDMA device cannot register memory by a work request (fast registration), or fewer pages at once than the smallest buffer needs.",
            "See the kernel log for the device and its limit (dmesg). Use another RDMA device, or a newer driver or firmware.";
        DeviceRc = 27, "device-rc",
            "The RDMA device has no reliable connected queue pairs for users in the kernel.",
            "Use another RDMA device, or a newer driver or firmware.";
        DeviceQps = 28, "device-qps",
            "The RDMA device gave no queue pair for a new link: all that it has are in use, or memory is short.",
            "See who uses them (rdma resource show qp); raise net.smc.smcr_max_conns_per_lgr at both ends, so that fewer link groups carry the connections.";
        DeviceCqs = 29, "device-cqs",
            "The RDMA device gave no completion queue for a new link: all that it has are in use, or memory is short.",
            "See who uses them (rdma resource show cq); raise net.smc.smcr_max_conns_per_lgr at both ends, so that fewer link groups carry the connections.";
        DeviceMrs = 30, "device-mrs",
            "The RDMA device gave no protection domain or no memory region, which an RMB needs: all that it has are in use, or memory is short.",
            "See who uses them (rdma resource show mr); raise net.smc.smcr_max_conns_per_lgr at both ends, so that fewer link groups carry the connections.";
        NoAnswer = 31, "no-answer",
            "The server offered SMC but did not answer the handshake, so that the client made another connection without SMC.",
            "See whether the program at the server hangs, or accepts connections more slowly than they come (ss -lt shows its queue); a longer backlog of its listening socket holds more (listen(2), net.core.somaxconn). If nothing there speaks SMC, something on the way returns the SMC option to the SYN: have the server or the middlebox drop TCP option 254.";
        BothClients = 32, "both-clients",
            "Both ends connected to each other at the same time, or a socket connected to itself: SMC needs a server.",
            "Nothing is wrong. To use SMC, have one end listen, and only the other one connect.";
        Handshakes = 33, "handshakes-limit",
            "As many connections of this network namespace are in the handshake as may be (1,536; of all user namespaces, which share that number).",
            "See who connects to servers that do not answer (smc ss). Programs in a network namespace that root has made have that many of their own.";
        SynUnanswered = 34, "syn-unanswered",
            "Nobody answered the SYN that offered SMC, now or a moment ago, so that the client went on without SMC.",
            "See whether a firewall between the two drops segments with TCP option 254 (they may be let through, or the option be removed). A server that was not up yet, or whose queue was full, looks the same: then nothing is wrong. Where no server speaks SMC, a rule spares the wait (smc policy).";
    }
}

impl Cause {
    /// Returns the one of two causes whose search for a port came further. A device that can never be used comes after
    /// those elsewhere, and before one that lacks something that can be changed.
    #[must_use]
    pub fn nearer(self, other: Self) -> Self {
        match self.distance() < other.distance() {
            true => other,
            false => self,
        }
    }

    /// Returns how far the search for a port came.
    const fn distance(self) -> (u32, bool) {
        match self {
            Self::DeviceSge | Self::DeviceQueue | Self::DeviceFastReg | Self::DeviceRc => {
                (Self::EmptyNetwork.code(), true)
            }
            _ => (self.code(), false),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_that_cannot_be_used_counts_more_than_one_elsewhere_and_less_than_one_that_can() {
        for device in [
            Cause::DeviceSge,
            Cause::DeviceQueue,
            Cause::DeviceFastReg,
            Cause::DeviceRc,
        ] {
            for (other, nearer) in [
                (Cause::NoDevice, device),
                (Cause::OtherInterface, device),
                (Cause::EmptyNetwork, device),
                (Cause::PortDown, Cause::PortDown),
                (Cause::WrongSubnet, Cause::WrongSubnet),
            ] {
                assert_eq!(device.nearer(other), nearer);
                assert_eq!(other.nearer(device), nearer);
            }
        }
        assert_eq!(Cause::NoDevice.nearer(Cause::PortDown), Cause::PortDown);
        assert_eq!(Cause::PortDown.nearer(Cause::NoDevice), Cause::PortDown);
    }

    #[test]
    fn codes_and_names_are_unique_and_round_trip() {
        for pair in Cause::ALL.windows(2) {
            assert!(pair[0].code() < pair[1].code() && pair[0] < pair[1]);
        }
        for cause in Cause::ALL {
            assert_eq!(Cause::from_code(cause.code()), Some(*cause));
            let same = Cause::ALL
                .iter()
                .filter(|other| other.name() == cause.name());
            assert_eq!(same.count(), 1, "{cause:?}");
        }
        assert_eq!(Cause::from_code(0), None);
    }

    #[test]
    fn every_cause_explains_itself() {
        for cause in Cause::ALL {
            for text in [cause.sentence(), cause.hint()] {
                assert!(text.ends_with(['.', ')']), "{text}");
            }
        }
    }
}
