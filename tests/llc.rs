// SPDX-License-Identifier: GPL-2.0
//! Link layer control: what one side answers to every message, and its own flows with answers that
//! are late, wrong, doubled or crossing.

mod common;

use smc_proto::id::{
    LinkNum,
    LinkUid, //
};
use smc_proto::lgr::redundancy::AddLinkTrigger;
use smc_proto::lgr::{
    LinkIdx,
    Role,
    TerminateReason as Why, //
};
use smc_proto::llc::first_contact::Grace;
use smc_proto::llc::first_contact::PeerModule;
use smc_proto::llc::link_work::{
    DeleteCause,
    LinkWork, //
};
use smc_proto::llc::FirstContactError;
use smc_proto::llc::RkeyError;
use smc_proto::llc::{
    Action,
    Busy,
    Finished,
    Ignored,
    Llc, //
};
use smc_proto::reason::Reason;
use smc_proto::time::Duration;
use smc_proto::wire::llc::{
    Body,
    DeleteLink,
    DeleteReason,
    Kind, //
};
use smc_proto::wire::Version;

use common::end::{
    begin,
    begin_with,
    list,
    sent,
    server_link,
    vector,
    End,
    BOTH,
    FIRST,
    LINK,
    SECOND, //
};
use common::params;

// The first contact.

#[test]
fn the_client_answers_the_vector_with_the_vector() {
    let (mut client, actions) = begin_with(Role::Client, Version::V1, same());
    assert_eq!(actions, []);
    let request = vector("L1");
    let prepare = Action::PrepareLink {
        idx: FIRST,
        link_num: LINK,
    };
    assert_eq!(client.receive(FIRST, &request), [prepare]);
    let actions = list(client.llc.on_link_prepared(FIRST, Ok(()), client.now));
    let mut want = vector("L2");
    // The uid is the sender's own affair.
    want[30..34].copy_from_slice(&0x0100_0002u32.to_be_bytes());
    assert_eq!(sent(&actions[..1]), want);
    assert!(matches!(
        actions[1],
        Action::ActivateLink { idx: FIRST, .. }
    ));
    assert_eq!(actions.len(), 2);
    assert!(client.llc.has_answered());
    // The server tests the link, and then says something else.
    let done = Action::Finished(Finished::FirstContact(Ok(())));
    assert_eq!(client.deliver_body(Kind::Request, TEST).len(), 1);
    assert_eq!(client.deliver_body(Kind::Request, TEST)[0], done);
    assert!(client.llc.is_idle());
}

const TEST: Body<'static> = Body::TestLink([0; 16]);

/// A peer with this implementation, which is not slow.
fn same() -> PeerModule {
    PeerModule::Same(Grace::new(Duration::ZERO))
}

/// The client's answer to the server's request, of which the server hears.
fn answered(server: &mut End, answer: &[u8]) -> Vec<Action<'static>> {
    let test = server.receive(FIRST, answer);
    assert_eq!(sent(&test)[0] & 0x1f, 0x07, "the link is tested");
    assert!(!server.llc.is_idle());
    server.deliver_body(Kind::Response, TEST)
}

#[test]
fn a_client_that_has_answered_waits_for_the_decision() {
    let answered = || {
        let (mut client, _) = begin(Role::Client, Version::V1);
        client.receive(FIRST, &vector("L1"));
        let answer = list(client.llc.on_link_prepared(FIRST, Ok(()), client.now));
        assert_eq!(answer.len(), 3);
        assert_eq!(sent(&answer[1..2])[0] & 0x1f, 0x07, "the link is tested");
        client
    };
    let done = Action::Finished(Finished::FirstContact(Ok(())));
    // A server that does not test uses the link.
    let mut client = answered();
    client.deliver_body(Kind::Request, TEST);
    assert!(client.llc.has_answered());
    assert_eq!(client.deliver_body(Kind::Response, TEST), [done]);
    // Of one that tests it is not known when it answers.
    let (mut client, _) = begin_with(Role::Client, Version::V1, same());
    client.receive(FIRST, &vector("L1"));
    assert_eq!(
        list(client.llc.on_link_prepared(FIRST, Ok(()), client.now)).len(),
        2
    );
    client.deliver_body(Kind::Response, TEST);
    assert!(client.llc.has_answered());
    // Nobody says anything, not even that he declines: a server that does not test may use the link.
    let mut client = answered();
    assert_eq!(client.sleep(6999), []);
    let undecided = Action::Finished(Finished::FirstContact(Err(FirstContactError::Undecided)));
    assert_eq!(client.sleep(1), [undecided]);
    // The link is lost, which may be because the server declines.
    let mut client = answered();
    assert_eq!(list(client.llc.on_link_down(FIRST, client.now)), []);
    assert!(client.llc.has_answered());
    // Before the answer none of this means anything.
    let (mut client, _) = begin(Role::Client, Version::V1);
    client.deliver_body(Kind::Response, TEST);
    client.deliver_body(Kind::Request, TEST);
    assert!(!client.llc.is_idle());
}

#[test]
fn a_server_whose_test_is_not_answered_gives_up() {
    let (mut server, _) = begin(Role::Server, Version::V1);
    server.sleep(1900);
    let answer = vector("L2");
    let test = server.receive(FIRST, &answer);
    assert_eq!(sent(&test)[0] & 0x1f, 0x07);
    assert_eq!(server.sleep(999), []);
    let silent = Action::Finished(Finished::FirstContact(Err(FirstContactError::Silent)));
    assert_eq!(server.sleep(1), [silent]);
}

#[test]
fn who_is_slow_over_tcp_has_more_time() {
    let grace = |millis| PeerModule::Same(Grace::new(Duration::from_millis(millis)));
    let gives_up = |role, peer, busy: u64, after: u64| {
        let (mut end, _) = begin_with(role, Version::V1, peer);
        // Each time the machine is busy for a second.
        let mut left = after;
        for _ in 0..busy {
            end.wait(1120);
            left -= 1120;
        }
        // At a server the request is repeated meanwhile.
        while left > 100 {
            let said = end.wait(100);
            let is_over = |action: &Action<'_>| matches!(action, Action::Finished(_));
            assert!(!said.iter().any(is_over), "{role:?} {peer:?} {busy}");
            left -= 100;
        }
        assert_eq!(end.wait(left - 1), [], "{role:?} {peer:?} {busy}");
        let silent = Action::Finished(Finished::FirstContact(Err(FirstContactError::Silent)));
        assert_eq!(end.wait(1), [silent], "{role:?} {peer:?} {busy}");
    };
    // A firewall makes nothing slow.
    gives_up(Role::Client, grace(1), 0, 2504);
    gives_up(Role::Server, grace(1), 0, 2004);
    gives_up(Role::Client, grace(500), 0, 4500);
    // There is an end to it, before which a client that has answered does not give up.
    gives_up(Role::Server, grace(100_000), 0, 5000);
    gives_up(Role::Server, grace(1), 4, 5000);
    gives_up(Role::Server, grace(1), 1, 3004);
    // A C client may have gone on by then.
    gives_up(Role::Server, PeerModule::Other, 1, 2000);
}

#[test]
fn a_timer_that_is_in_time_does_not_end_what_a_late_thread_waits_for() {
    let peer = PeerModule::Same(Grace::new(Duration::from_millis(1)));
    let (mut server, request) = begin_with(Role::Server, Version::V1, peer);
    assert_eq!(server.sleep(1500), request);
    // The thread, which has not been awake yet, has the peer wait as long as it was late itself.
    assert_eq!(server.sleep(504), []);
    let answer = vector("L2");
    let test = server.receive(FIRST, &answer);
    assert_eq!(sent(&test)[0] & 0x1f, 0x07);

    // There is an end to it.
    let (mut server, _) = begin_with(Role::Server, Version::V1, peer);
    server.sleep(1500);
    assert_eq!(server.sleep(3499), []);
    let silent = Action::Finished(Finished::FirstContact(Err(FirstContactError::Silent)));
    assert_eq!(server.sleep(1), [silent]);
}

#[test]
fn a_server_that_tests_a_slow_client_gives_it_more_time() {
    let slow = Grace::new(Duration::from_millis(750));
    for (peer, millis) in [(PeerModule::Other, 2000), (PeerModule::Same(slow), 4000)] {
        let (mut server, _) = begin_with(Role::Server, Version::V1, peer);
        server.receive(FIRST, &vector("L2"));
        assert_eq!(server.sleep(millis - 1), []);
        let silent = Action::Finished(Finished::FirstContact(Err(FirstContactError::Silent)));
        assert_eq!(server.sleep(1), [silent]);
    }
}

#[test]
fn the_server_sends_the_vector_and_takes_the_vector() {
    let (mut server, actions) = begin(Role::Server, Version::V1);
    let mut want = vector("L1");
    want[30..34].copy_from_slice(&0x0100_0002u32.to_be_bytes());
    assert_eq!(sent(&actions), want);
    let actions = answered(&mut server, &vector("L2"));
    assert!(matches!(
        actions[0],
        Action::ActivateLink { idx: FIRST, .. }
    ));
    let done = Action::Finished(Finished::FirstContact(Ok(())));
    assert_eq!(actions.last(), Some(&done));
}

#[test]
fn a_client_that_would_wait_for_a_second_link_is_told_that_none_comes() {
    let (mut server, _) = begin(Role::Server, Version::V1);
    answered(&mut server, &vector("L2"));
    let looks = LinkWork::AddLink(AddLinkTrigger::OwnPort);
    assert_eq!(server.llc.next_link_work(), Some(looks));
    let link = server_link(Version::V1);
    let offer = sent(&list(server.llc.offer_nothing(&link)));
    assert_eq!(offer[0], 0x02);
    assert_eq!(list(server.llc.offer_nothing(&link)), [], "once");
    assert_eq!(
        offer[32] & 0x0f,
        0,
        "no path MTU, which is rejected at once"
    );

    let mut client = End::new(Role::Client, Version::V1);
    client.links[SECOND] = LinkNum::NONE;
    let rejection = sent(&client.receive(FIRST, &offer));
    assert_eq!(rejection[2..4], [2, 0xc0]);
    assert_eq!(
        server.receive(FIRST, &rejection),
        [Action::Ignored(Ignored::Unexpected)]
    );
}

#[test]
fn a_client_of_one_link_waits_for_no_second() {
    let (mut server, actions) = begin(Role::Server, Version::V2);
    let request = sent(&actions);
    assert_eq!(request[34..36], [1, 255], "release 1 repeats the limits");
    let (mut client, _) = begin(Role::Client, Version::V2);
    client.receive(FIRST, &request);
    let answers = list(client.llc.on_link_prepared(FIRST, Ok(()), client.now));
    let answer = sent(&answers[..1]);
    let actions = answered(&mut server, &answer);
    assert_eq!(sent(&actions[1..2])[0] & 0x1f, 0x07, "another test");
    let link = server_link(Version::V2);
    assert_eq!(list(server.llc.offer_nothing(&link)), []);
    assert!(matches!(
        actions[0],
        Action::ActivateLink {
            peer_uid: LinkUid(0x0100_0002),
            ..
        }
    ));
}

#[test]
fn the_server_asks_twice_and_then_gives_up_before_the_client() {
    let (mut server, first) = begin(Role::Server, Version::V1);
    assert_eq!(server.sleep(1499), []);
    assert_eq!(server.sleep(1), first);
    assert_eq!(server.sleep(499), []);
    let silent = [Action::Finished(Finished::FirstContact(Err(
        FirstContactError::Silent,
    )))];
    assert_eq!(server.sleep(1), silent);

    let (mut client, _) = begin(Role::Client, Version::V1);
    assert_eq!(client.sleep(2499), []);
    assert_eq!(client.sleep(1), silent);
}

#[test]
fn a_request_that_comes_twice_is_answered_once() {
    let (mut client, _) = begin(Role::Client, Version::V1);
    let request = vector("L1");
    client.receive(FIRST, &request);
    let ignored = [Action::Ignored(Ignored::Unexpected)];
    assert_eq!(client.receive(FIRST, &request), ignored);
    assert_eq!(
        list(client.llc.on_link_prepared(FIRST, Ok(()), client.now)).len(),
        3
    );
    assert_eq!(client.receive(FIRST, &request), ignored);
}

#[test]
fn a_client_that_prepares_its_link_has_no_deadline() {
    let (mut client, _) = begin(Role::Client, Version::V1);
    let request = vector("L1");
    client.receive(FIRST, &request);
    assert_eq!(client.llc.deadline(), None);
    assert_eq!(client.sleep(60_000), []);
    let failed = client
        .llc
        .on_link_prepared(FIRST, Err(Reason::LinkNotReady), client.now);
    assert_eq!(
        list(failed),
        [Action::Finished(Finished::FirstContact(Err(
            FirstContactError::Failed(Reason::LinkNotReady)
        )))]
    );
}

#[test]
fn a_first_contact_ends_with_its_link_and_no_other() {
    for role in BOTH {
        let (mut end, _) = begin(role, Version::V2);
        assert_eq!(list(end.llc.on_link_down(SECOND, end.now)), []);
        assert_eq!(
            list(end.llc.on_link_down(FIRST, end.now)),
            [Action::Finished(Finished::FirstContact(Err(
                FirstContactError::Silent
            )))]
        );
        assert!(end.llc.is_idle());
    }
}

#[test]
fn a_request_without_a_number_or_on_another_link_is_not_meant() {
    let (mut client, _) = begin(Role::Client, Version::V1);
    let mut request = vector("L1");
    assert_eq!(
        client.receive(SECOND, &request),
        [Action::Ignored(Ignored::OtherLink)]
    );
    request[29] = 0;
    assert_eq!(
        client.receive(FIRST, &request),
        [Action::Ignored(Ignored::UnknownLink)]
    );
    assert!(!client.llc.is_idle());
}

#[test]
fn an_answer_about_another_link_does_not_confirm_this_one() {
    let (mut server, _) = begin(Role::Server, Version::V1);
    let mut answer = vector("L2");
    answer[29] = 9;
    assert_eq!(
        server.receive(FIRST, &answer),
        [Action::Ignored(Ignored::OtherAnswer)]
    );
    assert!(!server.llc.is_idle());
}

// Requests of the peer.

#[test]
fn a_message_of_the_other_version_is_dropped() {
    let messages = ["L10", "L8", "L9", "L11", "L4", "L1"];
    for role in BOTH {
        let mut end = End::new(role, Version::V2);
        for name in messages {
            let message = vector(name);
            assert_eq!(
                end.receive(FIRST, &message),
                [Action::Ignored(Ignored::WrongVersion)]
            );
        }
        assert!(end.llc.is_idle());
    }
}

#[test]
fn test_link_is_sent_as_linux_does_and_returned_with_its_data() {
    let said = list(Llc::new(params(Role::Client, Version::V1)).test_link(FIRST));
    assert_eq!(sent(&said), vector("L10"));
    for role in BOTH {
        let mut end = End::new(role, Version::V1);
        let mut request = vector("L10");
        request[4..20].copy_from_slice(b"sixteen bytes...");
        let answer = sent(&end.receive(FIRST, &request));
        request[3] = 0x80;
        assert_eq!(answer, request);
        assert_eq!(
            end.receive(FIRST, &answer),
            [Action::Ignored(Ignored::Noted)]
        );
    }
}

#[test]
fn a_client_rejects_the_vector_with_the_vector() {
    let mut client = End::new(Role::Client, Version::V1);
    client.links[SECOND] = LinkNum::NONE;
    let offer = vector("L4");
    assert_eq!(sent(&client.receive(FIRST, &offer)), vector("L5"));
}

#[test]
fn a_client_rejects_a_version_2_link_in_44_bytes() {
    let mut client = End::new(Role::Client, Version::V2);
    client.links[SECOND] = LinkNum::NONE;
    let offer = vector("L6");
    let rejection = sent(&client.receive(FIRST, &offer));
    assert_eq!(rejection.len(), 44);
    assert_eq!(rejection[0], 0x22);
    assert_eq!(rejection[3], 0xc1);
    assert_eq!(rejection[4..44], offer[4..44]);
}

#[test]
fn a_server_answers_at_once_that_a_client_can_add_a_link() {
    let mut server = End::new(Role::Server, Version::V2);
    let request = vector("L12");
    let actions = server.receive(FIRST, &request);
    let answer = sent(&actions[..1]);
    assert_eq!(answer.len(), 44);
    assert_eq!((answer[0], answer[3]), (0x25, 0x80));
    assert_eq!(
        actions[1..],
        [work(LinkWork::AddLink(AddLinkTrigger::Invitation))]
    );
    assert!(answer[4..].iter().all(|byte| *byte == 0));

    let mut client = End::new(Role::Client, Version::V2);
    for message in [request, answer] {
        let actions = client.receive(FIRST, &message);
        assert!(matches!(actions[..], [Action::Ignored(_)]), "{actions:?}");
    }
}

#[test]
fn messages_that_nobody_waits_for_are_dropped() {
    for role in BOTH {
        let mut end = End::new(role, Version::V1);
        for name in ["L1", "L2", "L5", "L7"] {
            let message = vector(name);
            let ignored = [Action::Ignored(Ignored::Unexpected)];
            assert_eq!(end.receive(FIRST, &message), ignored, "{name}");
        }
    }
}

#[test]
fn the_end_of_all_links_ends_the_group_and_only_the_server_repeats_it() {
    let (message, reason) = (vector("L8"), DeleteReason::PROGRAM);
    for role in BOTH {
        let mut end = End::new(role, Version::V1);
        let actions = end.receive(FIRST, &message);
        assert_eq!(actions.last(), Some(&Action::TerminateGroup(reason)));
        assert_eq!(sent(&list(end.llc.delete_all(Why::Idle, FIRST))), message);
        let said = list(end.llc.delete_all(Why::ByPeer(reason), FIRST));
        match role {
            Role::Client => assert_eq!(said, []),
            Role::Server => assert_eq!(sent(&said), message),
        }
    }
}

// One link is deleted.

const AGREED: LinkWork = LinkWork::DeleteLink(SECOND, DeleteCause::Agreed);

fn work(work: LinkWork) -> Action<'static> {
    Action::LinkWork(work)
}

fn delete(link: u8) -> DeleteLink {
    DeleteLink {
        link_num: Some(LinkNum(link)),
        orderly: true,
        reason: DeleteReason::LOST_PATH,
    }
}

/// The DELETE_LINK among the actions, as kind, link and reason.
fn deletion(action: &Action<'_>) -> (Kind, Option<LinkNum>, DeleteReason) {
    let Action::Send { message, .. } = action else {
        panic!("{action:?}");
    };
    let Body::DeleteLink(body) = message.body else {
        panic!("{action:?}");
    };
    (message.kind, body.link_num, body.reason)
}

#[test]
fn a_client_answers_before_the_link_goes() {
    let mut client = End::new(Role::Client, Version::V2);
    let actions = client.deliver_body(Kind::Request, Body::DeleteLink(delete(2)));
    assert_eq!(
        deletion(&actions[0]),
        (Kind::Response, Some(LinkNum(2)), DeleteReason::DONE)
    );
    assert_eq!(actions[1..], [work(AGREED)]);
}

#[test]
fn a_client_does_not_delete_a_link_that_is_not_there() {
    let mut client = End::new(Role::Client, Version::V2);
    for number in [0, 3] {
        let actions = client.deliver_body(Kind::Request, Body::DeleteLink(delete(number)));
        assert_eq!(actions.len(), 1);
        assert_eq!(deletion(&actions[0]).2, DeleteReason::UNKNOWN_LINK);
    }
}

#[test]
fn a_server_asks_the_client_in_turn_and_then_deletes() {
    let mut server = End::new(Role::Server, Version::V2);
    let actions = server.deliver_body(Kind::Request, Body::DeleteLink(delete(2)));
    assert_eq!(
        deletion(&actions[0]),
        (Kind::Request, Some(LinkNum(2)), DeleteReason::LOST_PATH)
    );
    assert_eq!(server.confirm_rkey(1), Err(Busy));

    // An answer about another link is not the one.
    let other = server.deliver_body(Kind::Response, Body::DeleteLink(delete(1)));
    assert_eq!(other, [Action::Ignored(Ignored::OtherAnswer)]);

    let done = [work(AGREED), Action::Finished(Finished::DeleteLink)];
    let actions = server.deliver_body(Kind::Response, Body::DeleteLink(delete(2)));
    assert_eq!(actions, done);

    server.deliver_body(Kind::Request, Body::DeleteLink(delete(2)));
    assert_eq!(server.sleep(1999), []);
    assert_eq!(server.sleep(1), done, "without an answer, too");

    let unknown = server.deliver_body(Kind::Request, Body::DeleteLink(delete(7)));
    assert_eq!(unknown, [Action::Ignored(Ignored::UnknownLink)]);
}

#[test]
fn a_deletion_waits_for_the_flow_under_way() {
    let mut server = End::new(Role::Server, Version::V2);
    server.confirm_rkey(1).unwrap();
    let first = server.deliver_body(Kind::Request, Body::DeleteLink(delete(2)));
    assert_eq!(first, [Action::Ignored(Ignored::Delayed)]);
    let second = server.deliver_body(Kind::Request, Body::DeleteLink(delete(1)));
    assert_eq!(second, first);

    let actions = server.sleep(2000);
    assert_eq!(
        actions[0],
        Action::Finished(Finished::ConfirmRkey(Err(RkeyError::TimedOut)))
    );
    assert_eq!(deletion(&actions[1]).1, Some(LinkNum(2)));
    let actions = server.sleep(2000);
    assert_eq!(deletion(&actions[2]).1, Some(LinkNum(1)));
    assert!(!server.llc.is_idle(), "the second deletion is under way");
    assert_eq!(server.sleep(2000).len(), 2);
    assert!(server.llc.is_idle());
}

#[test]
fn a_deletion_goes_on_without_an_answer_when_its_link_is_lost() {
    let mut server = End::new(Role::Server, Version::V2);
    server.deliver_body(Kind::Request, Body::DeleteLink(delete(2)));
    assert_eq!(
        list(server.llc.on_link_down(LinkIdx::ALL[5], server.now)),
        []
    );
    let done = [work(AGREED), Action::Finished(Finished::DeleteLink)];
    assert_eq!(list(server.llc.on_link_down(FIRST, server.now)), done);
}

#[test]
fn a_delayed_deletion_ends_with_its_link() {
    let mut server = End::new(Role::Server, Version::V2);
    server.confirm_rkey(1).unwrap();
    server.deliver_body(Kind::Request, Body::DeleteLink(delete(2)));
    assert_eq!(list(server.llc.on_link_down(SECOND, server.now)), []);
    assert_eq!(server.sleep(2000).len(), 1);
    assert!(server.llc.is_idle());
}
