// SPDX-License-Identifier: GPL-2.0
//! How much of an RMBE may hold data when its connection has ended.

mod common;

use common::{
    duo::Duo,
    Side::{
        Client,
        Server, //
    },
};

/// Bytes of the rings that [`Duo::new`] makes.
const RING: u32 = 16_384;

/// Ends both connections, the client's first; returns how much of the server's RMBE may hold data.
fn used_at_the_end(duo: &mut Duo) -> u32 {
    duo.client().close(true);
    duo.settle();
    duo.server().close(true);
    duo.settle();
    assert!(duo.server().is_finished());
    duo.server().rmbe_used()
}

#[test]
fn what_a_closed_peer_wrote_is_known() {
    for (len, used) in [(0, 0), (1, 1), (5_000, 5_000), (RING, RING)] {
        let mut duo = Duo::new();
        duo.write(Client, len);
        duo.settle();
        duo.read(Server);
        duo.settle();
        assert_eq!(used_at_the_end(&mut duo), used);
    }
    let mut duo = Duo::new();
    for _ in 0..4 {
        duo.write(Client, 5_000);
        duo.settle();
        duo.read(Server);
        duo.settle();
    }
    assert_eq!(used_at_the_end(&mut duo), RING, "more than a ring");
    let mut duo = Duo::new();
    duo.write(Client, 10);
    duo.settle();
    duo.read(Server);
    duo.client().abort();
    assert_eq!(used_at_the_end(&mut duo), RING, "aborted");
}
