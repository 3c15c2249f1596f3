// SPDX-License-Identifier: GPL-2.0

//! Several users of one socket: duplicates, processes, threads that are blocked while another one
//! closes it.

use std::fs::File;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::process::Command;
use std::process::Stdio;
use std::thread;

use anyhow::Result;
use smc_user::poll_fd;
use smc_user::Errno;
use smc_user::Socket;

use super::Form;
use crate::semantics::answer::answer;
use crate::semantics::answer::Text;
use crate::semantics::rig::blocked;
use crate::semantics::rig::fill;
use crate::semantics::rig::SOON;
use crate::semantics::rig::WHILE;

/// Closes `socket` while `call` is blocked on it in another thread, then calls `release` to end the
/// call.
fn closed_meanwhile<T: Text + Send>(
    socket: &Socket,
    call: impl FnOnce(&Socket) -> smc_user::Result<T> + Send,
    release: impl FnOnce() -> Result<()>,
) -> Result<String> {
    let nothing = File::open("/dev/null")?;
    thread::scope(|scope| {
        let caller = blocked(scope, || call(socket))?;
        let waits = !caller.is_finished();
        socket.replace_by(&nothing)?;
        thread::sleep(WHILE);
        let goes_on = !caller.is_finished();
        release()?;
        let result = caller.join().unwrap_or_else(|_| Err(Errno::EFAULT));
        answer![waits, goes_on, result]
    })
}

/// Starts `cat` with the socket as its input and output, so that it echoes.
fn echo_by_child(socket: Socket) -> Result<std::process::Child> {
    let output = OwnedFd::from(socket.duplicate()?);
    let child = Command::new("cat")
        .stdin(Stdio::from(OwnedFd::from(socket)))
        .stdout(Stdio::from(output))
        .spawn()?;
    Ok(child)
}

pub(super) const FORMS: &[Form] = &[
    Form::new("a duplicate goes on when the first is closed", |rig| {
        let pair = rig.pair()?;
        let other = pair.client.duplicate()?;
        drop(pair.client);
        let sent = other.send(b"hello", 0);
        let got = pair.server.recv(&mut [0; 8], 0);
        drop(other);
        answer![sent, got, pair.server.recv(&mut [0; 8], 0)]
    }),
    Form::new("duplicates share flags, and the shutdown", |rig| {
        let pair = rig.pair()?;
        let other = pair.client.duplicate()?;
        pair.client.set_nonblocking(true)?;
        let flags = other.recv(&mut [0; 8], 0);
        pair.client.shutdown(libc::SHUT_WR)?;
        answer![flags, other.send(b"x", 0)]
    }),
    Form::new("dup2 over a socket closes it", |rig| {
        let (first, second) = (rig.pair()?, rig.pair()?);
        first.client.replace_by(&second.client)?;
        let end = first.server.recv(&mut [0; 8], 0);
        first.client.send(b"hello", 0)?;
        answer![end, second.server.recv(&mut [0; 8], 0)]
    }),
    Form::new(
        "a child inherits it and goes on after the parent closed",
        |rig| {
            let pair = rig.pair()?;
            let mut child = echo_by_child(pair.server)?;
            let sent = pair.client.send(b"hello", 0);
            let mut buffer = [0; 8];
            let got = pair.client.recv(&mut buffer, 0);
            pair.client.shutdown(libc::SHUT_WR)?;
            let end = pair.client.recv(&mut [0; 8], 0);
            answer![
                sent,
                got,
                buffer.starts_with(b"hello"),
                end,
                child.wait()?.success()
            ]
        },
    ),
    Form::new("a listener is inherited", |rig| {
        let (listener, address) = rig.listener()?;
        // The child only holds the descriptor, so that the port stays in use until it exits.
        let mut child = Command::new("cat")
            .stdin(Stdio::piped())
            .stdout(Stdio::from(OwnedFd::from(listener.duplicate()?)))
            .spawn()?;
        drop(listener);
        let client = rig.open()?;
        let connected = client.connect(address);
        drop(child.stdin.take());
        child.wait()?;
        answer![connected, client.recv(&mut [0; 8], 0).is_err()]
    }),
    Form::new("descriptors go by SCM_RIGHTS", |rig| {
        let pair = rig.pair()?;
        let (left, right) = UnixStream::pair()?;
        let (left, right) = (
            Socket::from(OwnedFd::from(left)),
            Socket::from(OwnedFd::from(right)),
        );
        pair.server.pass(&left)?;
        drop(pair.server);
        let server = right.take_passed()?;
        let sent = pair.client.send(b"hello", 0);
        let got = server.recv(&mut [0; 8], 0);
        drop(server);
        answer![sent, got, pair.client.recv(&mut [0; 8], 0)]
    }),
    Form::new("a listener goes by SCM_RIGHTS, and accepts", |rig| {
        let (listener, address) = rig.listener()?;
        let (left, right) = UnixStream::pair()?;
        let (left, right) = (
            Socket::from(OwnedFd::from(left)),
            Socket::from(OwnedFd::from(right)),
        );
        listener.pass(&left)?;
        drop(listener);
        let listener = right.take_passed()?;
        let client = rig.open()?;
        client.connect(address)?;
        let server = listener.accept(0)?;
        client.send(b"hello", 0)?;
        answer![server.recv(&mut [0; 8], 0)]
    }),
    Form::new("closed while on its way by SCM_RIGHTS", |rig| {
        let pair = rig.pair()?;
        let (left, right) = UnixStream::pair()?;
        pair.server.pass(&Socket::from(OwnedFd::from(left)))?;
        drop(pair.server);
        drop(right);
        answer![pair.client.recv(&mut [0; 8], 0)]
    }),
    Form::new("closed while a receive waits", |rig| {
        let pair = rig.pair()?;
        closed_meanwhile(
            &pair.server,
            |socket| socket.recv(&mut [0; 8], 0),
            || Ok(pair.client.send(b"x", 0).map(drop)?),
        )
    }),
    Form::new("closed while a receive waits, then the peer ends", |rig| {
        let pair = rig.pair()?;
        closed_meanwhile(
            &pair.server,
            |socket| socket.recv(&mut [0; 8], 0),
            || Ok(pair.client.shutdown(libc::SHUT_RDWR)?),
        )
    }),
    Form::new("closed while a send waits", |rig| {
        let pair = rig.pair()?;
        fill(&pair.client);
        closed_meanwhile(
            &pair.client,
            |socket| socket.send(&[1; 1 << 20], 0).map(|len| len > 0),
            || {
                let mut buffer = vec![0; 1 << 16];
                while let Ok(1..) = pair.server.recv(&mut buffer, 0) {}
                Ok(())
            },
        )
    }),
    Form::new("closed while accept waits", |rig| {
        let (listener, address) = rig.listener()?;
        let client = rig.open()?;
        closed_meanwhile(
            &listener,
            |socket| socket.accept(0).map(drop),
            || Ok(client.connect(address)?),
        )
    }),
    Form::new("closed while poll waits", |rig| {
        let pair = rig.pair()?;
        closed_meanwhile(
            &pair.server,
            |socket| poll_fd(socket, libc::POLLIN, SOON),
            || Ok(pair.client.send(b"x", 0).map(drop)?),
        )
    }),
];
