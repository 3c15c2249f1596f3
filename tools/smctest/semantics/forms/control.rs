// SPDX-License-Identifier: GPL-2.0

//! ioctl and fcntl.

use anyhow::Result;
use smc_user::interrupt_calls_by;
use smc_user::Socket;

use super::Form;
use super::SMC;
use crate::semantics::answer::answer;
use crate::semantics::answer::Text;
use crate::semantics::rig::fill;
use crate::semantics::rig::FIONREAD;
use crate::semantics::rig::SIOCATMARK;
use crate::semantics::rig::SIOCOUTQ;
use crate::semantics::rig::SIOCOUTQNSD;

const FIONBIO: u64 = libc::FIONBIO;
const FIOASYNC: u64 = 0x5452;
const SIOCSPGRP: u64 = 0x8902;
const SIOCGPGRP: u64 = 0x8904;
const SIOCGSTAMP: u64 = 0x8906;
const SIOCGIFCONF: u64 = 0x8912;
const TCGETS: u64 = 0x5401;
const F_SETSIG: i32 = 10;
const F_GETSIG: i32 = 11;

/// The ioctl requests for the queues of a socket.
const QUEUES: [u64; 4] = [FIONREAD, SIOCOUTQ, SIOCOUTQNSD, SIOCATMARK];

fn queues(socket: &Socket) -> String {
    let answers = QUEUES.map(|request| socket.ioctl_int(request).text());
    answers.join(" ")
}

/// Waits until the send queue is empty.
fn settled(socket: &Socket) -> Result<()> {
    crate::semantics::rig::await_true("an empty send queue", || {
        socket.ioctl_int(SIOCOUTQ) == Ok(0)
    })
}

pub(super) const FORMS: &[Form] = &[
    Form::new("queues of a fresh socket", |rig| Ok(queues(&rig.open()?))),
    Form::new("queues of a listener", |rig| Ok(queues(&rig.listener()?.0))),
    Form::new("queues of one that connects", |rig| {
        let socket = rig.open()?;
        socket.set_nonblocking(true)?;
        let _ = socket.connect(rig.silent());
        // The send queue is not compared: that of TCP contains the SYN.
        answer![socket.ioctl_int(FIONREAD), socket.ioctl_int(SIOCATMARK)]
    }),
    Form::new("queues with nothing in them", |rig| {
        let pair = rig.pair()?;
        settled(&pair.client)?;
        answer![queues(&pair.client), queues(&pair.server)]
    }),
    Form::new("bytes that wait", |rig| {
        let pair = rig.pair()?;
        pair.deliver(b"hello")?;
        let all = pair.server.ioctl_int(FIONREAD);
        pair.server.recv(&mut [0; 2], 0)?;
        let rest = pair.server.ioctl_int(FIONREAD);
        pair.server.recv(&mut [0; 3], 0)?;
        answer![all, rest, pair.server.ioctl_int(FIONREAD)]
    }),
    Form::new("bytes that wait, after the end of the stream", |rig| {
        let pair = rig.pair()?;
        pair.deliver(b"hello")?;
        pair.client.shutdown(libc::SHUT_WR)?;
        pair.await_end()?;
        answer![queues(&pair.server)]
    }),
    Form::new("a send queue that is full", |rig| {
        let pair = rig.pair()?;
        fill(&pair.client);
        answer![
            pair.client.ioctl_int(SIOCOUTQ)? > 0,
            pair.client.send(b"x", libc::MSG_DONTWAIT)
        ]
    }),
    Form::new("FIONBIO and O_NONBLOCK are one thing", |rig| {
        let pair = rig.pair()?;
        let flag = |socket: &Socket| {
            socket
                .fcntl(libc::F_GETFL, 0)
                .map(|flags| flags & libc::O_NONBLOCK != 0)
        };
        let before = flag(&pair.server);
        let on = pair.server.ioctl_set(FIONBIO, 1);
        let got = pair.server.recv(&mut [0; 1], 0);
        let during = flag(&pair.server);
        let off = pair.server.ioctl_set(FIONBIO, 0);
        pair.deliver(b"x")?;
        answer![
            before,
            on,
            got,
            during,
            off,
            flag(&pair.server),
            pair.server.recv(&mut [0; 1], 0)
        ]
    }),
    Form::new("FIOASYNC and O_ASYNC are one thing", |rig| {
        let pair = rig.pair()?;
        interrupt_calls_by(libc::SIGIO)?;
        let flag = |socket: &Socket| {
            socket
                .fcntl(libc::F_GETFL, 0)
                .map(|flags| flags & libc::O_ASYNC != 0)
        };
        let on = pair.server.ioctl_set(FIOASYNC, 1);
        let during = flag(&pair.server);
        let off = pair.server.fcntl(libc::F_SETFL, 0);
        answer![on, during, off, flag(&pair.server)]
    }),
    Form::new("the owner: F_SETOWN, SIOCSPGRP", |rig| {
        let pair = rig.pair()?;
        // CAST: a process number.
        let own = std::process::id() as i32;
        let unset = pair.server.fcntl(libc::F_GETOWN, 0);
        let set = pair.server.fcntl(libc::F_SETOWN, own);
        let read = pair.server.ioctl_int(SIOCGPGRP)? == own;
        let cleared = pair.server.ioctl_set(SIOCSPGRP, 0);
        answer![
            unset,
            set,
            read,
            cleared,
            pair.server.fcntl(libc::F_GETOWN, 0),
            pair.server.ioctl_set(SIOCSPGRP, i32::MAX)
        ]
    }),
    Form::new("the signal: F_SETSIG", |rig| {
        let pair = rig.pair()?;
        let set = pair.server.fcntl(F_SETSIG, libc::SIGUSR1);
        answer![set, pair.server.fcntl(F_GETSIG, 0)? == libc::SIGUSR1]
    }),
    Form::new("O_APPEND and O_DIRECT mean nothing", |rig| {
        let pair = rig.pair()?;
        answer![
            pair.server.fcntl(libc::F_SETFL, libc::O_APPEND),
            pair.server.fcntl(libc::F_SETFL, libc::O_DIRECT)
        ]
    }),
    Form::new("the time of a packet", |rig| {
        answer![rig.pair()?.server.ioctl_int(SIOCGSTAMP).map(drop)]
    })
    .except(SMC, "ENOTTY", "no packets are received over RDMA"),
    Form::new("of network devices", |rig| {
        answer![rig.pair()?.server.ioctl_int(SIOCGIFCONF).map(drop)]
    }),
    Form::new("not for sockets", |rig| {
        let pair = rig.pair()?;
        answer![
            pair.server.ioctl_int(TCGETS),
            pair.server.ioctl_int(0xdead),
            pair.server.ioctl_int(0x89ff),
            rig.open()?.ioctl_int(TCGETS),
            pair.listener.ioctl_int(TCGETS)
        ]
    }),
];
