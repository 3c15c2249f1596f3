// SPDX-License-Identifier: GPL-2.0
//! What is to be done about the links of a group, and when: order, repetition, what follows when a flow ends or a link
//! goes.

mod common;

use smc_proto::id::{
    Gid,
    LinkNum,
    LinkUid,
    Mac,
    Mtu,
    Psn,
    QpNum, //
};
use smc_proto::lgr::redundancy::{
    ActiveLinks,
    AddLinkTrigger,
    LinkPorts,
    Port, //
};
use smc_proto::lgr::{
    LinkIdx,
    LinkMap,
    Role, //
};
use smc_proto::llc::link_work::{
    AddPlan,
    DeleteCause,
    LinkWork, //
};
use smc_proto::llc::{
    Action,
    DeleteLinkParams,
    Ignored,
    Llc,
    NewEnd,
    Params, //
};
use smc_proto::reason::Reason;
use smc_proto::time::Duration;
use smc_proto::wire::llc::{
    AddLink,
    AddLinkV2,
    Body,
    ConfirmLink,
    DeleteLink,
    DeleteReason,
    Kind,
    LlcMessage,
    NewLink,
    RejectReason, //
};
use smc_proto::wire::{
    List,
    Version, //
};

use common::end::{
    client_link,
    list,
    server_link,
    End,
    BOTH,
    FIRST,
    SECOND, //
};
use common::params;

const OWN: LinkWork = LinkWork::AddLink(AddLinkTrigger::OwnPort);
const INVITED: LinkWork = LinkWork::AddLink(AddLinkTrigger::Invitation);

/// Where links are added here.
const NEW: LinkIdx = LinkIdx::ALL[2];

const GONE: LinkWork = LinkWork::DeleteLink(NEW, DeleteCause::Agreed);

fn new_link() -> NewLink {
    NewLink {
        mac: Mac::NONE,
        gid: Gid([3; 16]),
        qp_num: QpNum::new(3).unwrap(),
        link_num: LinkNum(3),
        mtu: Some(Mtu::B1024),
        psn: Psn::default(),
        listen_addr: None,
    }
}

/// All work that there is.
fn work(llc: &mut Llc) -> Vec<LinkWork> {
    let mut all = Vec::new();
    loop {
        let has_work = llc.has_link_work();
        let next = llc.next_link_work();
        assert_eq!(has_work, next.is_some());
        match next {
            Some(work) => all.push(work),
            None => return all,
        }
    }
}

/// The server offers a link.
fn offer(end: &mut End) {
    let mut link = server_link(Version::V2);
    (link.idx, link.link_num) = (NEW, LinkNum(3));
    let new = NewEnd {
        end: link,
        mtu: Mtu::B1024,
        psn: Psn::default(),
        listen_addr: None,
        keys: List::EMPTY,
    };
    assert!(end.llc.reserve_flow_for_add_link(AddLinkTrigger::OwnPort));
    end.links[NEW] = LinkNum(3);
    list(end.llc.begin_add_link(FIRST, &new, end.now).unwrap());
}

/// The client rejects the offer.
fn reject(end: &mut End) {
    let answer = AddLink::Rejection {
        link: new_link(),
        reason: RejectReason::NO_ALTERNATE_PATH,
    };
    end.deliver_body(Kind::Response, Body::AddLink(answer));
}

/// The link that was offered is brought up.
fn accept(end: &mut End) {
    let link = new_link();
    let answer = Body::AddLink(AddLink::Link { link, v2: None });
    end.deliver_body(Kind::Response, answer);
    let connect = LinkWork::ConnectLink(NEW, new_link());
    assert_eq!(work(&mut end.llc), [connect]);
    list(end.llc.on_link_prepared(NEW, Ok(()), end.now));
    let confirm = confirm_link(Kind::Response, LinkNum(3));
    let actions = end.deliver(NEW, &confirm);
    assert!(matches!(actions[0], Action::ActivateLink { idx: NEW, .. }));
}

/// The peer's CONFIRM_LINK for the link of that number.
fn confirm_link(kind: Kind, link_num: LinkNum) -> LlcMessage<'static> {
    let peer = server_link(Version::V2);
    LlcMessage {
        version: Version::V2,
        kind,
        body: Body::ConfirmLink(ConfirmLink {
            mac: peer.mac,
            gid: peer.gid,
            qp_num: peer.qp_num,
            link_num,
            uid: LinkUid(0),
            limits: peer.limits,
            no_eye_catcher: true,
        }),
    }
}

/// The time until the next attempt, which is taken.
fn wait(end: &mut End) -> (u64, Vec<LinkWork>) {
    let at = end.llc.deadline().expect("it is tried again");
    let wait = at.saturating_since(end.now).as_nanos().div_ceil(1_000_000);
    end.sleep(wait - 1);
    assert_eq!(work(&mut end.llc), []);
    end.sleep(1);
    (wait / 1000, work(&mut end.llc))
}

#[test]
fn a_client_confirms_no_other_link_than_the_one_that_is_added() {
    let mut client = End::new(Role::Client, Version::V2);
    client.spare = Some(NEW);
    let v2 = Some(AddLinkV2 {
        direct: true,
        target_gid: Gid([4; 16]),
        rkeys: List::EMPTY,
    });
    let link = new_link();
    let request = Body::AddLink(AddLink::Link { link, v2 });
    let accept = client.deliver_body(Kind::Request, request);
    assert_eq!(
        accept,
        [Action::LinkWork(LinkWork::AcceptAddLink {
            on: FIRST,
            idx: NEW,
            link
        })]
    );
    let mut end = client_link(Version::V2);
    (end.idx, end.link_num) = (NEW, LinkNum(3));
    let new = NewEnd {
        end,
        mtu: Mtu::B1024,
        psn: Psn::default(),
        listen_addr: None,
        keys: List::EMPTY,
    };
    client.links[NEW] = LinkNum(3);
    let offer = new_link();
    list(client.llc.on_offer_answered(offer, Ok(new), client.now));
    let confirm = |number| confirm_link(Kind::Request, LinkNum(number));
    assert_eq!(
        client.deliver(NEW, &confirm(2)),
        [Action::Ignored(Ignored::UnknownLink)]
    );
    assert_eq!(
        client.deliver(NEW, &confirm(3)),
        [Action::LinkWork(LinkWork::PrepareLink(NEW))]
    );
}

// The order.

#[test]
fn what_connections_and_the_peer_wait_for_comes_first() {
    let order = [
        LinkWork::FlushRx,
        LinkWork::DeleteLink(SECOND, DeleteCause::Agreed),
        LinkWork::DeleteLink(LinkIdx::ALL[3], DeleteCause::LostPath),
        LinkWork::PrepareLink(NEW),
        LinkWork::Rebalance,
        OWN,
    ];
    for first in 0..order.len() {
        let mut llc = Llc::new(params(Role::Server, Version::V2));
        for at in 0..order.len() {
            llc.queue_link_work(order[(first + at) % order.len()]);
        }
        assert_eq!(work(&mut llc), order);
    }
}

#[test]
fn flushes_without_end_leave_turns_to_others() {
    let others = [
        LinkWork::DeleteLink(SECOND, DeleteCause::Agreed),
        LinkWork::PrepareLink(NEW),
        OWN,
    ];
    let mut llc = Llc::new(params(Role::Server, Version::V2));
    for work in others {
        llc.queue_link_work(work);
    }
    for other in others {
        for next in [LinkWork::FlushRx, other] {
            llc.queue_link_work(LinkWork::FlushRx);
            assert_eq!(llc.next_link_work(), Some(next));
        }
    }
    assert_eq!(work(&mut llc), [LinkWork::FlushRx]);
}

#[test]
fn a_flow_of_ours_waits_until_the_one_under_way_ends() {
    let mut server = End::new(Role::Server, Version::V2);
    server.confirm_rkey(1).unwrap();
    server.llc.queue_link_work(OWN);
    server.llc.queue_link_work(LinkWork::Rebalance);
    assert_eq!(work(&mut server.llc), [LinkWork::Rebalance]);
    server.sleep(2000);
    assert_eq!(work(&mut server.llc), [OWN]);
}

#[test]
fn an_invitation_outlives_an_occasion_of_our_own() {
    for other in [[OWN, INVITED], [INVITED, OWN]] {
        let mut llc = Llc::new(params(Role::Server, Version::V2));
        for work in other {
            llc.queue_link_work(work);
        }
        assert_eq!(work(&mut llc), [INVITED]);
    }
}

#[test]
fn no_link_is_added_while_one_is_to_be_deleted_or_a_flow_is_under_way() {
    let mut server = End::new(Role::Server, Version::V2);
    let delete = LinkWork::DeleteLink(SECOND, DeleteCause::LostPath);
    server.llc.queue_link_work(delete);
    assert!(!server
        .llc
        .reserve_flow_for_add_link(AddLinkTrigger::Invitation));
    assert_eq!(work(&mut server.llc), [delete, INVITED]);
    server.confirm_rkey(1).unwrap();
    assert!(!server
        .llc
        .reserve_flow_for_add_link(AddLinkTrigger::OwnPort));
    server.sleep(2000);
    assert_eq!(work(&mut server.llc), [OWN]);
    assert!(server
        .llc
        .reserve_flow_for_add_link(AddLinkTrigger::OwnPort));
}

#[test]
fn a_link_that_is_not_needed_is_deleted_before_another_is_added() {
    let port = |number| Port {
        gid: Gid([number; 16]),
        mac: Mac::NONE,
    };
    let links = |ends: &[(u8, u8)]| -> ActiveLinks {
        let mut links = LinkMap::default();
        for (link, (local, peer)) in links.0.iter_mut().zip(ends) {
            let (local, peer) = (port(*local), port(*peer));
            *link = Some(LinkPorts { local, peer });
        }
        links
    };
    let [client, server] = BOTH.map(|role| Llc::new(params(role, Version::V2)));
    let three = links(&[(1, 1), (1, 2), (2, 2)]);
    assert_eq!(
        server.plan_add_link(&three),
        Some(AddPlan::DeleteFirst(SECOND))
    );
    let single = links(&[(1, 1)]);
    assert_eq!(server.plan_add_link(&single), Some(AddPlan::Offer));
    assert_eq!(client.plan_add_link(&single), Some(AddPlan::Invite));
    // The group has as many as it may have.
    assert_eq!(client.plan_add_link(&links(&[(1, 1), (2, 2)])), None);
    assert_eq!(client.plan_add_link(&three), None);
}

// Attempts that fail.

#[test]
fn a_link_that_cannot_be_added_is_tried_again_after_ever_longer() {
    let mut server = End::new(Role::Server, Version::V2);
    let mut waits = Vec::new();
    for _ in 0..11 {
        offer(&mut server);
        server.sleep(2000);
        assert_eq!(work(&mut server.llc), [GONE]);
        let (wait, work) = wait(&mut server);
        assert_eq!(work, [OWN]);
        waits.push(wait);
    }
    assert_eq!(waits, [2, 4, 8, 16, 32, 64, 128, 256, 512, 600, 600]);
}

#[test]
fn a_link_that_was_added_or_a_new_port_makes_waits_short_again() {
    for has_port in [false, true] {
        let mut server = End::new(Role::Server, Version::V2);
        for _ in 0..2 {
            offer(&mut server);
            server.sleep(2000);
            work(&mut server.llc);
            wait(&mut server);
        }
        match has_port {
            true => {
                server.llc.on_port();
                assert_eq!(work(&mut server.llc), [OWN]);
            }
            false => {
                offer(&mut server);
                accept(&mut server);
                assert_eq!(work(&mut server.llc), [LinkWork::Rebalance, OWN]);
            }
        }
        offer(&mut server);
        server.sleep(2000);
        assert_eq!(work(&mut server.llc), [GONE]);
        assert_eq!(wait(&mut server), (2, vec![OWN]));
    }
}

#[test]
fn a_rejection_is_final_unless_the_client_had_invited() {
    let mut server = End::new(Role::Server, Version::V2);
    offer(&mut server);
    reject(&mut server);
    assert_eq!(work(&mut server.llc), [GONE]);
    assert_eq!(server.llc.deadline(), None);
    let invitation = smc_proto::wire::llc::ReqAddLink { gids: List::EMPTY };
    server.deliver_body(Kind::Request, Body::ReqAddLink(invitation));
    assert_eq!(work(&mut server.llc), [INVITED]);
    offer(&mut server);
    reject(&mut server);
    assert_eq!(work(&mut server.llc), [GONE]);
    assert_eq!(wait(&mut server), (2, vec![INVITED]));
    // Until there is another link.
    offer(&mut server);
    accept(&mut server);
    work(&mut server.llc);
    offer(&mut server);
    reject(&mut server);
    assert_eq!(server.llc.deadline(), None);
}

#[test]
fn what_was_made_for_a_link_that_fails_is_deleted() {
    let mut server = End::new(Role::Server, Version::V2);
    offer(&mut server);
    let link = new_link();
    let answer = Body::AddLink(AddLink::Link { link, v2: None });
    server.deliver_body(Kind::Response, answer);
    work(&mut server.llc);
    let failed = Err(Reason::LinkNotReady);
    list(server.llc.on_link_prepared(NEW, failed, server.now));
    assert_eq!(work(&mut server.llc), [GONE]);
}

#[test]
fn a_server_that_is_not_heard_is_invited_again() {
    let mut client = End::new(Role::Client, Version::V2);
    let gids = [Gid([1; 16]), Gid([2; 16])];
    for secs in [2, 4, 8] {
        let gids = List::new(&gids).unwrap();
        let said = list(client.llc.invite(FIRST, Mac::NONE, gids, client.now));
        assert!(matches!(said[..], [Action::Send { idx: FIRST, .. }]));
        assert_eq!(wait(&mut client), (secs, vec![OWN]));
    }
}

// What follows.

#[test]
fn a_server_looks_for_one_more_link_after_each_that_was_added() {
    let mut server = End::new(Role::Server, Version::V2);
    offer(&mut server);
    accept(&mut server);
    assert_eq!(work(&mut server.llc), [LinkWork::Rebalance, OWN]);
}

#[test]
fn a_link_that_was_offered_needs_no_word_that_there_is_none() {
    for is_offered in [false, true] {
        let mut server = End::new(Role::Server, Version::V2);
        server.llc = Llc::new(params(Role::Server, Version::V2));
        if is_offered {
            offer(&mut server);
            reject(&mut server);
        }
        let said = list(server.llc.offer_nothing(&server_link(Version::V2)));
        assert_eq!(said.len(), usize::from(!is_offered));
        let said = list(server.llc.offer_nothing(&server_link(Version::V2)));
        assert_eq!(said, [], "once is enough");
    }
}

#[test]
fn a_deleted_link_is_replaced_by_the_server_and_missed_by_the_client() {
    let causes = [
        (DeleteCause::LostPath, Some(DeleteReason::LOST_PATH)),
        (
            DeleteCause::AsymmetricUnneeded,
            Some(DeleteReason::ASYMMETRIC_UNNEEDED),
        ),
        (DeleteCause::Agreed, None),
    ];
    for role in BOTH {
        for (cause, reason) in causes {
            let mut end = End::new(role, Version::V2);
            let link = DeleteLinkParams {
                on: FIRST,
                idx: SECOND,
                link_num: LinkNum(2),
                cause,
            };
            let told = list(end.llc.delete_link(link, end.now));
            let told = told.iter().map(|action| match action {
                Action::Send { message, .. } => match message.body {
                    Body::DeleteLink(body) => body.reason,
                    _ => panic!("{message:?}"),
                },
                _ => panic!("{action:?}"),
            });
            assert_eq!(told.collect::<Vec<_>>(), Vec::from_iter(reason));
            match role {
                Role::Client => assert_eq!(wait(&mut end), (2, vec![OWN])),
                Role::Server => {
                    end.sleep(2000);
                    let mut after = work(&mut end.llc);
                    assert_eq!(after.pop(), Some(OWN));
                    let again = LinkWork::DeleteLink(SECOND, DeleteCause::Agreed);
                    assert_eq!(after, Vec::from_iter(reason.map(|_| again)));
                }
            }
        }
    }
}

#[test]
fn a_link_that_is_to_be_deleted_is_going_until_that_is_done() {
    let request = DeleteLink {
        link_num: Some(LinkNum(2)),
        orderly: true,
        reason: DeleteReason::LOST_PATH,
    };
    let done = DeleteLink {
        reason: DeleteReason::DONE,
        ..request
    };
    let agreed = LinkWork::DeleteLink(SECOND, DeleteCause::Agreed);
    for (role, is_busy) in [
        (Role::Client, false),
        (Role::Server, false),
        (Role::Server, true),
    ] {
        let mut end = End::new(role, Version::V2);
        if is_busy {
            end.confirm_rkey(1).unwrap();
        }
        let going = |end: &End| [FIRST, SECOND].map(|idx| end.llc.is_going(idx));
        assert_eq!(going(&end), [false, false]);
        end.deliver_body(Kind::Request, Body::DeleteLink(request));
        assert_eq!(going(&end), [false, true], "{role:?} {is_busy}");
        if is_busy {
            end.sleep(2000);
            assert_eq!(going(&end), [false, true], "its turn has come");
        }
        if role == Role::Server {
            end.deliver_body(Kind::Response, Body::DeleteLink(done));
        }
        assert_eq!(going(&end), [false, true], "the client agrees");
        assert!(work(&mut end.llc).contains(&agreed));
        assert_eq!(going(&end), [false, false]);
    }
}

// Tests of links.

#[test]
fn a_link_is_tested_from_when_it_is_active_until_it_is_deleted() {
    let mut server = End::new(Role::Server, Version::V2);
    server.llc = Llc::new(Params {
        test_after: Duration::from_secs(30),
        ..params(Role::Server, Version::V2)
    });
    assert_eq!(server.llc.deadline(), None);
    offer(&mut server);
    accept(&mut server);
    for (secs, tests) in [(29, 0), (1, 1), (1, 0), (1, 1), (2, 1)] {
        server.sleep(secs * 1000);
        let said = list(server.llc.on_link_timeout(NEW, server.now));
        assert_eq!(said.len(), tests, "{secs}");
    }
    let dead = Action::LinkDead { idx: NEW };
    let at = server.llc.deadline().unwrap();
    assert_eq!(list(server.llc.on_link_timeout(NEW, at)), [dead]);
    // What is heard saves it.
    server.llc.on_heard(NEW, server.now);
    assert_eq!(list(server.llc.on_link_timeout(NEW, at)), []);
    assert!(server.llc.stop_testlink(NEW));
    assert!(!server.llc.stop_testlink(NEW));
    assert_eq!(server.llc.deadline(), None);
}

#[test]
fn one_test_does_for_all_connections_that_join() {
    let mut end = End::new(Role::Server, Version::V2);
    end.sleep(10_000);
    let since = end.now;
    let probe = |end: &mut End, since| list(end.llc.probe_link(FIRST, since, end.now)).len();
    assert_eq!(probe(&mut end, since), 1);
    end.sleep(999);
    assert_eq!(probe(&mut end, since), 0);
    end.sleep(1);
    assert_eq!(probe(&mut end, since), 1, "it was not answered");
    let heard = end.now.saturating_add(Duration::from_millis(1));
    end.sleep(100);
    assert_eq!(probe(&mut end, heard), 1, "it was");
    // The time of an arrival may be that of a tick, before the test.
    let heard = heard.saturating_add(Duration::from_nanos(1));
    assert_eq!(probe(&mut end, heard), 1, "and again");
}

#[test]
fn a_link_that_did_not_answer_a_connection_is_tested_at_once() {
    let mut server = End::new(Role::Server, Version::V2);
    server.llc = Llc::new(Params {
        test_after: Duration::from_secs(30),
        ..params(Role::Server, Version::V2)
    });
    offer(&mut server);
    accept(&mut server);
    let before = server.now;
    server.sleep(2_000);
    server.llc.on_probe_unanswered(NEW, before, server.now);
    server.llc.on_heard(NEW, before);
    let said = list(server.llc.on_link_timeout(NEW, server.now));
    assert_eq!(said.len(), 1);
}
