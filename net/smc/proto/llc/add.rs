// SPDX-License-Identifier: GPL-2.0

//! ADD_LINK: one more link for a group (RFC 7609 sections 4.4.3 and 4.5.5; C functions
//! `smc_llc_srv_add_link`, `smc_llc_cli_add_link`).
//!
//! The server offers its end of the link, the client answers with its own; both announce their buffers on it, in
//! version 1 by separate messages. CONFIRM_LINK on the new link ends the flow. All other messages are sent on an active
//! link.
//!
//! - [`server`]: the side that offers
//! - [`client`]: the side that answers

use super::action::{
    Action,
    Actions,
    Finished, //
};
use super::end::Keys;
use super::error::AddLinkError;
use super::{
    send,
    Arrival, //
};
use crate::id::LinkNum;
use crate::lgr::{
    LinkIdx,
    Rtoken,
    Rtokens, //
};
use crate::time::Duration;
use crate::wire::llc::{
    AddLinkCont,
    Body,
    DeleteLink,
    DeleteReason,
    Kind,
    LlcMessage,
    NewLinkRkey, //
};
use crate::wire::{
    List,
    Version, //
};

pub(super) mod client;
pub(super) mod server;

/// Time that either side waits for CONFIRM_LINK on the new link (C: `SMC_LLC_WAIT_FIRST_TIME`).
pub const CONFIRM_WAIT: Duration = Duration::from_secs(5);

/// Keys in one ADD_LINK_CONT.
const KEYS_EACH: u8 = 2;

/// The links of a flow.
#[derive(Clone, Copy, Debug)]
struct AddLinkIds {
    /// Index of the link that carries the flow.
    on: LinkIdx,
    /// Index of the new link.
    idx: LinkIdx,
    /// The new link's number.
    link_num: LinkNum,
}

impl AddLinkIds {
    fn finished<'a>(&self, result: Result<(), AddLinkError>) -> Action<'a> {
        Action::Finished(Finished::AddLink {
            idx: self.idx,
            result,
        })
    }

    /// Ends the flow without a link.
    fn failed<'a>(&self, error: AddLinkError) -> Actions<'a> {
        self.finished(Err(error)).into()
    }

    /// Ends the flow without a link, and sends the peer a DELETE LINK, as it may consider the link added.
    fn deleted_by_us<'a>(&self, error: AddLinkError, version: Version) -> Actions<'a> {
        let request = DeleteLink {
            link_num: Some(self.link_num),
            orderly: false,
            reason: DeleteReason::LOST_PATH,
        };
        let body = Body::DeleteLink(request);
        let mut actions = Actions::from(send(version, Kind::Request, self.on, body));
        actions.push(self.finished(Err(error)));
        actions
    }

    /// Records the peer's RTokens on the new link. Unknown buffers are skipped.
    fn save_rkeys(&self, rtokens: &mut Rtokens<'_>, keys: &[NewLinkRkey]) {
        for key in keys {
            let token = Rtoken {
                rkey: key.new_rkey(),
                addr: key.new_addr(),
            };
            if let Some(row) = rtokens.find(self.on, key.rkey()) {
                // Key zero means that the buffer is not on the link; nothing is written to it there.
                let _ = rtokens.set(row, self.idx, token);
            }
        }
    }
}

/// The exchange of keys in version 1: both sides send two at a time until neither has more.
#[derive(Clone, Copy, Debug)]
struct KeyExchange {
    /// Our keys, and how many of them were sent.
    ours: u8,
    sent: u8,
    /// Keys that the peer has yet to send, once known.
    theirs: Option<u8>,
}

impl KeyExchange {
    const fn new(ours: u8) -> Self {
        Self {
            ours,
            sent: 0,
            theirs: None,
        }
    }

    /// Makes our next message.
    fn next<'a>(&mut self, place: &AddLinkIds, kind: Kind) -> Action<'a> {
        let from = self.sent;
        self.sent = self.sent.saturating_add(KEYS_EACH).min(self.ours);
        Action::SendKeys {
            on: place.on,
            kind,
            link_num: place.link_num,
            from,
        }
    }

    /// Processes the peer's next message; returns false if it is not that. A C peer counts connections that have no
    /// buffer yet, and ends with fewer keys than it has announced (`smc_llc_add_link_cont`).
    fn take(
        &mut self,
        cont: &AddLinkCont<'_>,
        place: &AddLinkIds,
        arrival: &mut Arrival<'_, '_>,
    ) -> bool {
        let count = cont.rkeys.count().saturating_add(cont.following);
        let is_next = self.theirs.is_none_or(|left| count <= left);
        if cont.link_num != place.link_num || arrival.idx != place.on || !is_next {
            return false;
        }
        self.theirs = Some(cont.following);
        place.save_rkeys(arrival.rtokens, &cont.rkeys);
        true
    }

    fn is_done(&self) -> bool {
        self.sent == self.ours && self.theirs == Some(0)
    }
}

/// Makes the message for [`Action::SendKeys`], from all `keys` of the new link.
pub fn keys_from(kind: Kind, link_num: LinkNum, keys: Keys<'_>, from: u8) -> LlcMessage<'_> {
    let rest = keys.as_slice().get(usize::from(from)..).unwrap_or_default();
    let (here, following) = rest.split_at(rest.len().min(usize::from(KEYS_EACH)));
    LlcMessage {
        version: Version::V1,
        kind,
        body: Body::AddLinkCont(AddLinkCont {
            link_num,
            rkeys: List::new(here).unwrap_or_default(),
            following: u8::try_from(following.len()).unwrap_or(u8::MAX),
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::{
        RemoteAddr,
        Rkey, //
    };
    use crate::lgr::LinkMap;

    /// A message with so many keys, before so many others.
    fn taken(exchange: &mut KeyExchange, here: usize, following: u8) -> bool {
        let place = AddLinkIds {
            on: LinkIdx::FIRST,
            idx: LinkIdx::ALL[1],
            link_num: LinkNum(2),
        };
        let keys = [1, 2].map(|n| NewLinkRkey::new(Rkey(n), Rkey(9), RemoteAddr(0)));
        let cont = AddLinkCont {
            link_num: place.link_num,
            rkeys: List::new(&keys[..here]).unwrap(),
            following,
        };
        let mut arrival = Arrival {
            idx: place.on,
            spare: None,
            links: &LinkMap::default(),
            rtokens: &mut Rtokens::new(&mut []),
        };
        exchange.take(&cont, &place, &mut arrival)
    }

    #[test]
    fn a_c_peer_may_end_with_fewer_keys_than_it_has_announced() {
        // It announces all connections, and of those without a buffer it hears while it writes a later message.
        for (announced, last) in [(1, 0), (2, 1)] {
            let mut exchange = KeyExchange::new(0);
            assert!(taken(&mut exchange, 2, announced));
            assert!(!exchange.is_done());
            assert!(taken(&mut exchange, last, 0), "{announced} {last}");
            assert!(exchange.is_done());
        }
    }

    #[test]
    fn more_keys_than_announced_are_not_the_next_message() {
        let mut exchange = KeyExchange::new(0);
        assert!(taken(&mut exchange, 2, 1));
        assert!(!taken(&mut exchange, 2, 0));
        assert!(!exchange.is_done());
    }

    #[test]
    fn keys_are_sent_as_in_the_vector() {
        let bytes = include_bytes!("../../../../tests/vectors/L7.bin");
        let message = LlcMessage::parse(bytes).unwrap().unwrap();
        let cont = match message.body {
            Body::AddLinkCont(cont) => Some(cont),
            _ => None,
        };
        let cont = cont.unwrap();
        let keys = Keys::new(cont.rkeys.as_slice()).unwrap();
        assert_eq!(keys_from(message.kind, cont.link_num, keys, 0), message);
    }
}
