// SPDX-License-Identifier: GPL-2.0

//! connect(2) with AF_UNSPEC while other threads wait for the connection, as .NET ends blocking calls.

use std::thread;

use anyhow::Result;
use smc_user::Address;
use smc_user::Errno;
use smc_user::Result as Done;
use smc_user::Socket;

use crate::semantics::answer::answer;
use crate::semantics::rig::blocked;
use crate::semantics::rig::fill;
use crate::semantics::rig::WHILE;
use crate::semantics::Row;

pub(super) const ROWS: &[Row] = &[
    Row::same(
        "a connection that is undone while a call receives",
        "ok EPIPE ECONNRESET",
        |rig| {
            let pair = rig.pair()?;
            undo(&pair.client, |socket| socket.recv(&mut [0], 0).map(drop))
        },
    )
    .c_is_wrong("the call goes on"),
    Row::same(
        "a connection that is undone while a call sends",
        "ok ECONNRESET none",
        |rig| {
            let pair = rig.pair()?;
            fill(&pair.client);
            undo(&pair.client, |socket| loop {
                socket.send(&[0; 4096], 0)?;
            })
        },
    )
    .c_is_wrong("the call goes on"),
    Row::same(
        "an attempt that is undone while a call waits for it",
        "ok EPIPE ECONNRESET",
        |rig| {
            let socket = rig.open()?;
            undo(&socket, |socket| socket.connect(rig.silent()))
        },
    )
    .c_is_wrong("the call goes on"),
];

/// Undoes the connection while `call` is blocked. Returns the results of both, and the error of the socket after that.
fn undo(socket: &Socket, call: impl Fn(&Socket) -> Done<()> + Sync) -> Result<String> {
    thread::scope(|scope| {
        let caller = blocked(scope, || call(socket))?;
        // A call that sends may still find space for some data.
        thread::sleep(WHILE);
        let undone = socket.connect(Address::unspecified());
        let call = caller.join().unwrap_or(Err(Errno(0)));
        answer![undone, call, socket.take_error()?]
    })
}
