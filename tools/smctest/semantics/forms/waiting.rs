// SPDX-License-Identifier: GPL-2.0

//! Waiting for a socket: select, poll, ppoll, epoll.

use std::os::fd::AsFd;
use std::time::Duration;

use anyhow::Result;
use nix::poll::ppoll;
use nix::poll::PollFd;
use nix::poll::PollFlags;
use nix::sys::epoll::EpollFlags;
use nix::sys::select::select;
use nix::sys::select::FdSet;
use nix::sys::time::TimeSpec;
use nix::sys::time::TimeVal;
use nix::sys::time::TimeValLike;
use smc_user::poll_fd;
use smc_user::Socket;

use super::Form;
use crate::semantics::answer::answer;
use crate::semantics::rig::fill;
use crate::semantics::rig::SOON;
use crate::semantics::rig::WHILE;
use crate::watch::Watch;

/// Returns in which of the three sets of select(2) the socket is, after at most `ms` milliseconds.
fn selected(socket: &Socket, ms: i64) -> Result<String> {
    let (mut read, mut write, mut except) = (FdSet::new(), FdSet::new(), FdSet::new());
    for set in [&mut read, &mut write, &mut except] {
        set.insert(socket.as_fd());
    }
    let mut time = TimeVal::milliseconds(ms);
    let count = select(None, &mut read, &mut write, &mut except, &mut time)?;
    let has = |set: &FdSet<'_>| u8::from(set.contains(socket.as_fd()));
    let (read, write, except) = (has(&read), has(&write), has(&except));
    Ok(format!("{count}:{read}{write}{except}"))
}

/// Returns whether a socket is readable according to each of the calls, without blocking.
fn readable(socket: &Socket) -> Result<String> {
    let mut read = FdSet::new();
    read.insert(socket.as_fd());
    let mut now = TimeVal::milliseconds(0);
    let by_select = select(None, &mut read, None, None, &mut now)?;
    let by_poll = poll_fd(socket, libc::POLLIN, Duration::ZERO)?;
    let mut fds = [PollFd::new(socket.as_fd(), PollFlags::POLLIN)];
    let by_ppoll = ppoll(
        &mut fds,
        Some(TimeSpec::from_duration(Duration::ZERO)),
        None,
    )?;
    Ok(format!("{by_select} {by_poll:#x} {by_ppoll}"))
}

pub(super) const FORMS: &[Form] = &[
    Form::new("select, fresh", |rig| selected(&rig.open()?, 0)),
    Form::new("select, a listener without and with a connection", |rig| {
        let (listener, address) = rig.listener()?;
        let before = selected(&listener, 0)?;
        let client = rig.open()?;
        client.connect(address)?;
        poll_fd(&listener, libc::POLLIN, SOON)?;
        answer![before, selected(&listener, 0)?]
    }),
    Form::new("select, both ends", |rig| {
        let pair = rig.pair()?;
        let before = selected(&pair.server, 0)?;
        pair.deliver(b"x")?;
        answer![before, selected(&pair.server, 1000)?]
    }),
    Form::new("select, with nothing to be sent", |rig| {
        let pair = rig.pair()?;
        fill(&pair.client);
        answer![selected(&pair.client, 0)?]
    }),
    Form::new("select, after the peer has closed", |rig| {
        let pair = rig.pair()?;
        drop(pair.client);
        poll_fd(&pair.server, libc::POLLIN, SOON)?;
        answer![selected(&pair.server, 0)?]
    }),
    Form::new("readable, by all calls", |rig| {
        let pair = rig.pair()?;
        let before = readable(&pair.server)?;
        pair.deliver(b"x")?;
        let with = readable(&pair.server)?;
        pair.server.recv(&mut [0], 0)?;
        let without = readable(&pair.server)?;
        pair.client.shutdown(libc::SHUT_WR)?;
        pair.await_end()?;
        answer![before, with, without, readable(&pair.server)?]
    }),
    Form::new("poll, for nothing at all", |rig| {
        let pair = rig.pair()?;
        let open = poll_fd(&pair.server, 0, Duration::ZERO);
        drop(pair.client);
        poll_fd(&pair.server, libc::POLLIN, SOON)?;
        answer![open, poll_fd(&pair.server, 0, Duration::ZERO)]
    }),
    Form::new("epoll, level and edge", |rig| {
        let pair = rig.pair()?;
        let level = Watch::new(&pair.server, EpollFlags::EPOLLIN)?;
        let edge = Watch::new(&pair.server, EpollFlags::EPOLLIN | EpollFlags::EPOLLET)?;
        pair.deliver(b"xy")?;
        let first = (level.wait(WHILE)?, edge.wait(WHILE)?);
        pair.server.recv(&mut [0], 0)?;
        let second = (level.wait(WHILE)?, edge.wait(WHILE)?);
        answer![first.0, first.1, second.0, second.1]
    }),
    Form::new("epoll, once", |rig| {
        let pair = rig.pair()?;
        let once = Watch::new(&pair.server, EpollFlags::EPOLLIN | EpollFlags::EPOLLONESHOT)?;
        pair.deliver(b"x")?;
        let first = once.wait(SOON)?;
        pair.client.send(b"x", 0)?;
        pair.await_queued(2)?;
        answer![first, once.wait(WHILE)?]
    }),
];
