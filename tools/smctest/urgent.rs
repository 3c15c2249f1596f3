// SPDX-License-Identifier: GPL-2.0

//! Urgent data: three bytes, of which the last is urgent and not part of the stream.

use std::io::Read;
use std::io::Write;

use anyhow::ensure;
use anyhow::Context as _;
use anyhow::Result;
use smc_user::poll_fd;
use smc_user::Socket;

use crate::ending::Ending;
use crate::ending::NOTICE;

/// Sends three bytes with MSG_OOB.
pub(crate) fn send(socket: &Socket, text: &[u8; 3]) -> Result<()> {
    let sent = socket.send(text, libc::MSG_OOB).context("urgent send")?;
    ensure!(sent == text.len(), "{sent} of {} bytes sent", text.len());
    Ok(())
}

/// One piece in so many is urgent; the first is not, as the reader has to keep urgent data in the stream by then.
const RARE: u64 = 64;

/// Sends all of a piece, which is urgent if its number says so.
pub(crate) fn send_some(mut socket: &Socket, piece: &[u8], number: u64) -> Result<()> {
    if number % RARE != RARE - 1 {
        return Ok(socket.write_all(piece)?);
    }
    let mut left = piece;
    while !left.is_empty() {
        let sent = socket.send(left, libc::MSG_OOB).context("urgent send")?;
        left = &left[sent..];
    }
    Ok(())
}

/// Receives them: the urgent byte first, once POLLPRI is set.
pub(crate) fn receive(mut socket: &Socket, text: &[u8; 3]) -> Result<()> {
    let events = poll_fd(socket, libc::POLLPRI, NOTICE)?;
    ensure!(events & libc::POLLPRI != 0, "no urgent byte is announced");
    let mut urgent = [0];
    let got = socket
        .recv(&mut urgent, libc::MSG_OOB)
        .context("urgent receive")?;
    ensure!(got == 1 && urgent[0] == text[2], "urgent byte {urgent:?}");
    let mut rest = [0; 2];
    socket.read_exact(&mut rest).context("the bytes before")?;
    ensure!(rest == text[..2], "before the urgent byte: {rest:?}");
    Ok(())
}

/// The client's side: one such message in each direction, normal data, then a half-close.
pub(crate) fn run_client(mut socket: &Socket) -> Result<()> {
    send(socket, b"abc")?;
    receive(socket, b"xyz")?;
    socket.write_all(b"after")?;
    socket.shutdown(libc::SHUT_WR)?;
    let seen = Ending::receive(socket)?;
    ensure!(seen == Ending::of(b"after"), "the server saw {seen}");
    ensure!(socket.read(&mut [0])? == 0, "data after the end");
    Ok(())
}

/// The server's side.
pub(crate) fn run_server(socket: &Socket) -> Result<()> {
    receive(socket, b"abc")?;
    send(socket, b"xyz")?;
    Ending::of_reading(socket).send(socket)
}
