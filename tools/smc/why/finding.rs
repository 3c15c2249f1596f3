// SPDX-License-Identifier: GPL-2.0

//! Derives an explanation and a remedy from reason codes and facts about this machine.
//!
//! The id of a finding is for scripts: the name of the C module's constant for the reason and, if
//! known, a slash and the cause.

use serde::Serialize;
use smc_proto::cause::Cause;
use smc_proto::lgr::Role;
use smc_proto::reason::Reason;
use smc_tools::path::Fallback;
use smc_tools::path::Kind;
use smc_tools::path::Path;
use smc_uapi::SMC_ROLE_SERVER as SERVER;

use super::facts::Facts;

/// The finding about one connection.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Finding {
    /// Whether data passes over SMC; `None` if it is not connected.
    pub(crate) smc: Option<bool>,
    /// An identifier for scripts.
    pub(crate) id: String,
    /// The explanation.
    pub(crate) sentence: String,
    /// What to change if TCP is used.
    pub(crate) remedy: Option<String>,
    /// The reason code, as in `smcss`.
    pub(crate) reason: Option<String>,
    /// The peer's reason code.
    pub(crate) peer_reason: Option<String>,
    /// This host's role, if a rule of this host decided.
    #[serde(skip)]
    pub(crate) denied_as: Option<Role>,
    /// Whether data passes over RDMA.
    #[serde(skip)]
    pub(super) is_smcr: bool,
}

/// An id, a sentence and a remedy.
type Words = (String, String, String);

fn words(id: impl Into<String>, sentence: &str, remedy: &str) -> Words {
    (id.into(), sentence.to_string(), remedy.to_string())
}

impl Finding {
    fn tcp((id, sentence, remedy): Words) -> Self {
        Self {
            smc: Some(false),
            id,
            sentence,
            remedy: Some(remedy),
            reason: None,
            peer_reason: None,
            denied_as: None,
            is_smcr: false,
        }
    }

    fn quiet(smc: Option<bool>, id: &str, sentence: String) -> Self {
        Self {
            smc,
            id: id.to_string(),
            sentence,
            remedy: None,
            reason: None,
            peer_reason: None,
            denied_as: None,
            is_smcr: false,
        }
    }

    /// SMC sockets are not available.
    pub(crate) fn no_family(error: &str) -> Self {
        Self::tcp(words(
            "NO_MODULE",
            &format!("This machine gives no SMC sockets ({error}): the module is not loaded, or may not be used."),
            "Load the module (modprobe smc), and where a seccomp filter or a container refuses them, allow protocol 256 (IPPROTO_SMC) or AF_SMC.",
        ))
    }

    /// TCP cannot connect.
    pub(crate) fn no_tcp(error: &str) -> Self {
        Self {
            smc: None,
            ..Self::tcp(words(
                "NO_TCP",
                &format!("TCP does not reach it ({error}), so SMC cannot either."),
                "Look at the server, the address and the firewall; this has nothing to do with SMC.",
            ))
        }
    }

    /// TCP connects, but an SMC socket does not.
    pub(crate) fn no_handshake(error: &str) -> Self {
        Self {
            smc: None,
            ..Self::tcp(words(
                "NO_HANDSHAKE",
                &format!("TCP reaches it, but the handshake of SMC fails ({error}): something there takes the SMC option of TCP and does not speak SMC."),
                "Connect there by TCP alone; have the middlebox in between drop TCP option 254 instead of echoing it, or update the peer.",
            ))
        }
    }

    /// A TCP socket that was never an SMC socket, for this reason.
    pub(crate) fn plain(id: &str, sentence: &str, remedy: &str) -> Self {
        Self::tcp(words(id, sentence, remedy))
    }

    /// A listener.
    pub(crate) fn listening(kind: &Kind) -> Self {
        const ALONE: &str = "It listens for TCP alone: whoever connects finds a peer without SMC.";
        let sentence = match kind {
            Kind::Smc(Path::Fallback(fallback)) => {
                let reason = Reason::from_code(fallback.reason);
                reason.map_or(ALONE.to_string(), |reason| {
                    format!("{ALONE} {}", reason.sentence())
                })
            }
            Kind::Smc(_) => "It listens, and offers SMC to who connects.".to_string(),
            Kind::Tcp => ALONE.to_string(),
        };
        Self::quiet(None, "LISTENS", sentence)
    }

    /// The path of an SMC socket.
    pub(crate) fn of_path(path: &Path, facts: &Facts) -> Self {
        let smc = |sentence: String| Self::quiet(Some(true), "SMC", sentence);
        let smcr = |sentence| Self {
            is_smcr: true,
            ..smc(sentence)
        };
        match path {
            Path::SmcR(Some(group)) => {
                smcr(format!("Its data go over RDMA, in link group {group:08x}."))
            }
            Path::SmcR(None) => smcr("Its data go over RDMA.".to_string()),
            Path::SmcD => smc("Its data go through shared memory (SMC-D).".to_string()),
            Path::Unconnected => {
                Self::quiet(None, "NOT_CONNECTED", "It is not connected.".to_string())
            }
            Path::Tcp => Self::tcp(words(
                "UNKNOWN",
                "It is TCP, and the kernel does not tell why.",
                "Look at the counters (smc stats) and the kernel log.",
            )),
            Path::Fallback(fallback) => Self::of_fallback(fallback, facts),
        }
    }

    fn of_fallback(fallback: &Fallback, facts: &Facts) -> Self {
        let number = |code: u32| (code != 0).then(|| format!("0x{code:08x}"));
        let words = match Reason::from_code(fallback.reason) {
            Some(Reason::PeerDeclined) => of_peer(fallback),
            Some(reason) => of_reason(reason, fallback, facts),
            None => words(
                format!("{:#010x}", fallback.reason),
                "The kernel gives a reason that this program does not know.",
                "Use the smc command of the release of the module.",
            ),
        };
        let is_denied = fallback.cause == Cause::DeniedByRule.code();
        let role = match fallback.end {
            SERVER => Role::Server,
            _ => Role::Client,
        };
        Self {
            denied_as: is_denied.then_some(role),
            reason: number(fallback.reason),
            peer_reason: number(fallback.peer),
            ..Self::tcp(words)
        }
    }

    /// Extends the remedy by shared memory, which is switched off here: this machine lacks RDMA for
    /// the connection, and its peer may be on this machine.
    pub(super) fn with_smcd(mut self) -> Self {
        let lacks_rdma = |id: &str| id.starts_with("NOSMCDEV") || id.starts_with("NOSMCRDEV");
        if lacks_rdma(&self.id) {
            self.remedy = self.remedy.map(|remedy| {
                format!("If the peer is on this machine, set net.smc.smcd_loopback to 1. Otherwise: {remedy}")
            });
        }
        self
    }

    /// Returns the prefix of the explanation.
    pub(crate) fn way(&self) -> &'static str {
        match self.smc {
            Some(true) => "SMC. ",
            Some(false) => "TCP. ",
            None => "",
        }
    }

    /// Returns the reason codes, which are printed after the id.
    pub(crate) fn code(&self) -> String {
        match (&self.reason, &self.peer_reason) {
            (Some(reason), Some(peer)) => format!(" ({reason}, the peer says {peer})"),
            (Some(reason), None) => format!(" ({reason})"),
            _ => String::new(),
        }
    }
}

/// This side declined.
fn of_reason(reason: Reason, fallback: &Fallback, facts: &Facts) -> Words {
    let known = Cause::from_code(fallback.cause);
    let cause = known.or_else(|| facts.cause_of(reason, fallback.end));
    match cause {
        Some(cause) => words(
            format!("{}/{}", reason.name(), cause.name()),
            cause.sentence(),
            cause.hint(),
        ),
        None if reason == Reason::PeerNoSmc && fallback.end == SERVER && facts.limits_handshakes => words(
            format!("{}/or-limited", reason.name()),
            "The client does not speak SMC, or this machine had enough handshakes to work on: net.smc.limit_smc_hs is set.",
            "Set net.smc.limit_smc_hs to 0 to offer SMC however many clients come at once; otherwise see why the client is TCP.",
        ),
        None => words(reason.name(), reason.sentence(), reason.hint()),
    }
}

/// The peer declined. The meaning of its reason code depends on its role.
fn of_peer(fallback: &Fallback) -> Words {
    let declined = Reason::PeerDeclined.name();
    let is_server_at_peer = fallback.end != SERVER;
    match Reason::from_code(fallback.peer) {
        // A server first compares the enterprise IDs, and uses this code if none matches.
        Some(Reason::NoSmcDevice) if is_server_at_peer => words(
            format!("{declined}/no-common-eid"),
            "The peer declined: none of this machine's enterprise IDs is one of its own.",
            Cause::NoCommonEid.hint(),
        ),
        Some(Reason::NoSmcrDevice) if is_server_at_peer => words(
            format!("{declined}/NOSMCRDEV"),
            "The peer declined: it found no active RDMA port for this connection, or no way from it to this machine's.",
            "At the peer, see what smc why --pid of the server says, and that the RDMA port on its network device or physical network is active and has an IPv4 address.",
        ),
        // This machine has offered shared memory alone.
        Some(Reason::NoIsmV2Support) if is_server_at_peer => words(
            format!("{declined}/NOISM2SUPP"),
            "The peer declined: it is not on this machine, or shared memory within it is switched off there; and this machine has no RDMA port for this connection to offer.",
            "If the peer is on this machine, set net.smc.smcd_loopback to 1 in its network namespace; if not, see that RDMA is here (smc dev).",
        ),
        Some(reason) => (
            format!("{declined}/{}", reason.name()),
            format!("The peer declined, and says: {}", reason.sentence()),
            format!("At the peer: {}", reason.hint()),
        ),
        None if fallback.peer == 0 => words(
            declined,
            Reason::PeerDeclined.sentence(),
            Reason::PeerDeclined.hint(),
        ),
        None => (
            format!("{declined}/{:#010x}", fallback.peer),
            format!("The peer declined for a reason that this program does not know ({:#010x}).", fallback.peer),
            "Look for the number in the documentation of the peer's system.".to_string(),
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(reason: Reason, peer: u32, cause: u32, end: u32) -> Finding {
        let fallback = Fallback {
            reason: reason.code(),
            peer,
            cause,
            end,
        };
        Finding::of_path(&Path::Fallback(fallback), &Facts::default())
    }

    #[test]
    fn every_reason_and_cause_has_an_id_a_sentence_and_a_remedy() {
        for reason in Reason::ALL {
            for peer in [0, 0x1234_5678, reason.code()] {
                let found = of(*reason, peer, 0, 1);
                assert!(found.id.starts_with(reason.name()), "{found:?}");
                assert!(!found.sentence.is_empty() && found.remedy.is_some());
                assert_eq!(found.smc, Some(false));
            }
        }
        for cause in Cause::ALL {
            let found = of(Reason::NoSmcDevice, 0, cause.code(), 1);
            assert_eq!(found.id, format!("NOSMCDEV/{}", cause.name()));
            assert_eq!(found.sentence, cause.sentence());
        }
    }

    #[test]
    fn the_same_number_means_another_thing_from_the_other_end() {
        let peer = Reason::NoSmcDevice.code();
        let declined = |end| of(Reason::PeerDeclined, peer, 0, end).id;
        assert_eq!(declined(1), "PEERDECL/no-common-eid");
        assert_eq!(declined(2), "PEERDECL/NOSMCDEV");
    }

    #[test]
    fn shared_memory_is_a_remedy_where_rdma_is_missing() {
        let remedy = |finding: Finding| finding.with_smcd().remedy.unwrap();
        let missing = of(Reason::NoSmcDevice, 0, Cause::NoDevice.code(), 1);
        let said = remedy(missing.clone());
        assert!(
            said.starts_with("If the peer is on this machine, "),
            "{said}"
        );
        assert!(said.ends_with(&missing.remedy.unwrap()));
        let other = of(Reason::PeerNoSmc, 0, 0, 1);
        assert_eq!(remedy(other.clone()), other.remedy.unwrap());
    }

    #[test]
    fn only_rdma_is_told_apart() {
        let of = |path| Finding::of_path(&path, &Facts::default());
        let (smcr, smcd) = (of(Path::SmcR(Some(1))), of(Path::SmcD));
        assert!(smcr.is_smcr && !smcd.is_smcr);
        assert_eq!((smcr.smc, &*smcd.id), (Some(true), "SMC"));
        assert!(smcd.sentence.contains("SMC-D"));
    }

    #[test]
    fn the_kernels_numbers_are_shown() {
        let found = of(Reason::PeerDeclined, 0x0303_0002, 0, 1);
        assert_eq!(found.code(), " (0x05000000, the peer says 0x03030002)");
        assert_eq!(of(Reason::PeerNoSmc, 0, 0, 1).code(), " (0x03010000)");
        assert_eq!(of(Reason::PeerNoSmc, 0, 0, 1).way(), "TCP. ");
    }

    #[test]
    fn a_server_with_a_limit_may_have_refused_the_handshake_itself() {
        let facts = Facts::with_limit();
        let ids = [1, 2].map(|end| {
            let fallback = Fallback {
                reason: Reason::PeerNoSmc.code(),
                end,
                ..Fallback::default()
            };
            Finding::of_path(&Path::Fallback(fallback), &facts).id
        });
        assert_eq!(ids, ["PEERNOSMC", "PEERNOSMC/or-limited"]);
    }
}
