// SPDX-License-Identifier: GPL-2.0

//! Calls on a socket while its handshake waits for the peer.

use std::env;
use std::net::SocketAddr;
use std::process::Command;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;
use std::time::Instant;

use anyhow::bail;
use anyhow::ensure;
use anyhow::Context as _;
use anyhow::Result;
use nix::sys::pthread::pthread_kill;
use nix::sys::pthread::pthread_self;
use nix::sys::signal::Signal;
use smc_user::interrupt_calls_by;
use smc_user::poll_fd;
use smc_user::Errno;
use smc_user::Socket;

use crate::netns;
use crate::watch::Watch;

use super::messages::Messages;
use super::peer::answer_exchange;
use super::peer::exchange;
use super::peer::Peer;
use super::peer::ANSWER;
use super::tcp::End;
use super::tcp::RawTcp;
use super::Test;

/// Longest duration of what need not wait for a peer.
const PROMPT: Duration = Duration::from_secs(3);

/// Time after which a call is certainly blocked.
const WHILE: Duration = Duration::from_millis(300);

/// Time that the kernel waits for a handshake message.
const HANDSHAKE: Duration = Duration::from_secs(6);

const IN: i16 = libc::POLLIN;
const OUT: i16 = libc::POLLOUT;

pub(super) const TESTS: &[Test] = &[
    (
        "a signal interrupts connect, and close ends the attempt",
        interrupted,
    ),
    ("a process that connects can be killed", killed),
    ("shutdown ends an attempt", shut_down),
    (
        "a send timeout bounds connect, which can be called again",
        timed,
    ),
    (
        "a non-blocking connect to a silent peer is TCP in time",
        silent,
    ),
    (
        "epoll set up before a decline: writable, then data, then the end",
        epoll,
    ),
    (
        "a listener that closes does not wait for handshakes",
        close_listener,
    ),
    (
        "connections meet a listener that comes and goes",
        flapping_listener,
    ),
    ("a listener of TCP alone does not offer SMC", plain_listener),
];

pub(super) fn fresh(peer: &Peer<'_>) -> Result<Socket> {
    let socket = peer.context.family.open(peer.context.addr)?;
    socket.set_timeout(ANSWER)?;
    Ok(socket)
}

/// A peer that sends nothing: receives the proposal and waits for the end of the connection.
fn hear_the_end(tcp: &mut RawTcp<'_>) -> Result<()> {
    tcp.message(ANSWER)?.context("no proposal")?;
    let start = Instant::now();
    let end = tcp.listen(ANSWER)?;
    ensure!(end != End::Open, "the kernel has not ended the connection");
    let took = start.elapsed();
    ensure!(took < PROMPT + 2 * WHILE, "it took {took:?}");
    tcp.reset()
}

fn interrupted(peer: &Peer<'_>, wire: &Socket) -> Result<()> {
    interrupt_calls_by(libc::SIGUSR1)?;
    let connect = |address| {
        let socket = fresh(peer)?;
        let thread = pthread_self();
        let results = thread::scope(|scope| {
            scope.spawn(move || {
                for _ in 0..2 {
                    thread::sleep(WHILE);
                    let _ = pthread_kill(thread, Signal::SIGUSR1);
                }
            });
            // The second call waits for the result of the same attempt.
            [socket.connect(address), socket.connect(address)]
        });
        ensure!(
            results == [Err(Errno::EINTR); 2],
            "connect gave {results:?}"
        );
        Ok(())
    };
    peer.serve(wire, connect, hear_the_end)
}

fn killed(peer: &Peer<'_>, wire: &Socket) -> Result<()> {
    let netns = peer.context.server_netns.as_deref().unwrap_or_default();
    let family = peer.context.family.name();
    let (tell, told) = mpsc::channel();
    let connect = move |address: SocketAddr| {
        let mut child = Command::new(env::current_exe()?)
            .args([
                format!("--client-netns={netns}"),
                format!("--family={family}"),
            ])
            .args([
                format!("--addr={}", address.ip()),
                format!("--port={}", address.port()),
            ])
            .args(["--remote", "path"])
            .spawn()?;
        told.recv()?;
        let start = Instant::now();
        child.kill()?;
        child.wait()?;
        let took = start.elapsed();
        ensure!(took < PROMPT, "the process took {took:?} to die");
        Ok(())
    };
    peer.serve(wire, connect, |tcp| {
        tcp.message(ANSWER)?.context("no proposal")?;
        tell.send(())?;
        ensure!(
            tcp.listen(PROMPT)? != End::Open,
            "the connection has not ended"
        );
        tcp.reset()
    })
}

fn shut_down(peer: &Peer<'_>, wire: &Socket) -> Result<()> {
    let connect = |address| {
        let socket = fresh(peer)?;
        let result = thread::scope(|scope| {
            let connect = scope.spawn(|| socket.connect(address));
            thread::sleep(WHILE);
            let start = Instant::now();
            let _ = socket.shutdown(libc::SHUT_RDWR);
            (connect.join(), start.elapsed())
        });
        let (Ok(result), took) = result else {
            bail!("the connecting thread panicked");
        };
        ensure!(result.is_err(), "connect gave {result:?}");
        ensure!(took < PROMPT, "it took {took:?}");
        Ok(())
    };
    peer.serve(wire, connect, hear_the_end)
}

fn timed(peer: &Peer<'_>, wire: &Socket) -> Result<()> {
    let (tell, told) = mpsc::channel();
    let connect = move |address| {
        let socket = fresh(peer)?;
        socket.set_duration(libc::SO_SNDTIMEO, WHILE)?;
        let first = socket.connect(address);
        ensure!(first == Err(Errno::EINPROGRESS), "connect gave {first:?}");
        tell.send(())?;
        socket.set_timeout(ANSWER)?;
        let second = socket.connect(address);
        ensure!(second == Ok(()), "the second connect gave {second:?}");
        let third = socket.connect(address);
        ensure!(
            third == Err(Errno::EISCONN),
            "the third connect gave {third:?}"
        );
        exchange(&socket)
    };
    peer.serve(wire, connect, |tcp| {
        tcp.message(ANSWER)?.context("no proposal")?;
        told.recv()?;
        tcp.send(&Messages::of(peer.address, 1).decline)?;
        answer_exchange(tcp)?;
        tcp.listen(ANSWER)?;
        tcp.reset()
    })
}

fn silent(peer: &Peer<'_>, wire: &Socket) -> Result<()> {
    let connect = |address| {
        let socket = fresh(peer)?;
        socket.set_nonblocking(true)?;
        let start = Instant::now();
        let first = socket.connect(address);
        ensure!(first == Err(Errno::EINPROGRESS), "connect gave {first:?}");
        let early = poll_fd(&socket, IN | OUT, WHILE)?;
        ensure!(early == 0, "{early:#x} came while the handshake ran");
        let again = socket.connect(address);
        ensure!(
            again == Err(Errno::EALREADY),
            "connect again gave {again:?}"
        );
        let events = poll_fd(&socket, IN | OUT, ANSWER)?;
        ensure!(events == OUT, "{events:#x} came");
        let took = start.elapsed();
        ensure!(took >= HANDSHAKE, "it took only {took:?}");
        ensure!(took < HANDSHAKE * 2, "it took {took:?}");
        let error = socket.take_error()?;
        ensure!(error.is_none(), "the error is {error:?}");
        socket.set_nonblocking(false)?;
        exchange(&socket)
    };
    peer.serve(wire, connect, |tcp| {
        tcp.message(ANSWER)?.context("no proposal")?;
        ensure!(
            tcp.listen(ANSWER)? != End::Open,
            "the connection has not ended"
        );
        tcp.reset()?;
        let mut other = tcp.again()?;
        ensure!(!other.peer_has_smc, "the kernel offers SMC again");
        answer_exchange(&mut other)?;
        other.reset()
    })
}

fn epoll(peer: &Peer<'_>, wire: &Socket) -> Result<()> {
    use nix::sys::epoll::EpollFlags as Flags;

    let flags = Flags::EPOLLIN | Flags::EPOLLOUT | Flags::EPOLLRDHUP | Flags::EPOLLET;
    let (tell, told) = mpsc::channel();
    let connect = move |address| {
        let socket = fresh(peer)?;
        socket.set_nonblocking(true)?;
        let watch = Watch::new(&socket, flags)?;
        watch.settle()?;
        let _ = socket.connect(address);
        for wanted in ["0x4", "0x5", "0x2005"] {
            // EPOLLIN and EPOLLOUT may be reported one after the other.
            let got = watch.soon()?;
            ensure!(got == wanted, "{got} came where {wanted} is due");
            watch.settle()?;
            tell.send(())?;
        }
        Ok(())
    };
    peer.serve(wire, connect, |tcp| {
        tcp.message(ANSWER)?.context("no proposal")?;
        tcp.send(&Messages::of(peer.address, 2).decline)?;
        told.recv_timeout(ANSWER)?;
        tcp.send(b"data")?;
        told.recv_timeout(ANSWER)?;
        tcp.close()?;
        told.recv_timeout(ANSWER)?;
        tcp.reset()
    })
}

/// Opens a further listener in the server's namespace.
pub(super) fn listener(
    peer: &Peer<'_>,
    prepare: fn(&Socket) -> Result<()>,
    backlog: i32,
) -> Result<Socket> {
    netns::inside(peer.context.server_netns.as_deref(), || {
        let listener = fresh(peer)?;
        prepare(&listener)?;
        listener.bind(SocketAddr::new(peer.context.addr, 0))?;
        listener.listen(backlog)?;
        Ok(listener)
    })
}

pub(super) fn port_of(socket: &Socket) -> Result<u16> {
    let address = socket.local_address()?.to_ip();
    Ok(address.context("not an IP address")?.port())
}

fn close_listener(peer: &Peer<'_>, wire: &Socket) -> Result<()> {
    let listener = listener(peer, |_| Ok(()), 8)?;
    let mut tcp = peer.connect_to(wire, port_of(&listener)?)?;
    tcp.send(&Messages::of(peer.address, 3).proposal[..20])?;
    thread::sleep(WHILE);
    listener.set_nonblocking(true)?;
    let early = listener.accept(0).map(drop);
    ensure!(early == Err(Errno::EAGAIN), "accept gave {early:?}");
    let start = Instant::now();
    drop(listener);
    let took = start.elapsed();
    ensure!(took < PROMPT, "close took {took:?}");
    ensure!(
        tcp.listen(ANSWER)? != End::Open,
        "the connection has not ended"
    );
    tcp.reset()
}

/// A listener opens and closes repeatedly while clients connect and send a proposal or part of one.
fn flapping_listener(peer: &Peer<'_>, wire: &Socket) -> Result<()> {
    let first = listener(peer, |_| Ok(()), 8)?;
    let address = SocketAddr::new(peer.context.addr, port_of(&first)?);
    drop(first);
    let flap = || -> Result<u32> {
        netns::enter(peer.context.server_netns.as_deref())?;
        let start = Instant::now();
        let mut rounds = 0;
        while start.elapsed() < PROMPT {
            let listener = fresh(peer)?;
            listener.set_option_int(libc::SOL_SOCKET, libc::SO_REUSEADDR, 1)?;
            // Connections of the previous round may still occupy the port.
            if listener
                .bind(address)
                .and_then(|()| listener.listen(8))
                .is_ok()
            {
                thread::sleep(Duration::from_millis(rounds % 5));
                rounds += 1;
            }
        }
        Ok(u32::try_from(rounds)?)
    };
    let proposal = Messages::of(peer.address, 4).proposal;
    thread::scope(|scope| {
        let flapping = scope.spawn(flap);
        let mut met = 0;
        while !flapping.is_finished() {
            // ECONNREFUSED while there is no listener.
            if let Ok(mut tcp) = peer.connect_to(wire, address.port()) {
                met += 1;
                tcp.send(&proposal[..met % proposal.len()])?;
                tcp.reset()?;
            }
        }
        let rounds = flapping.join().unwrap_or(Ok(0))?;
        println!("# {rounds} listeners met {met} connections");
        ensure!(rounds > 1 && met > 1, "they did not meet");
        Ok(())
    })
}

fn plain_listener(peer: &Peer<'_>, wire: &Socket) -> Result<()> {
    let prepare = |listener: &Socket| {
        Ok(listener.set_option_int(libc::IPPROTO_TCP, libc::TCP_FASTOPEN, 5)?)
    };
    let listener = listener(peer, prepare, 8)?;
    let mut tcp = peer.connect_to(wire, port_of(&listener)?)?;
    ensure!(!tcp.peer_has_smc, "the SYN-ACK has the SMC option");
    tcp.send(b"data")?;
    let server = listener.accept(0)?;
    server.set_timeout(ANSWER)?;
    let got = server.recv(&mut [0; 4], libc::MSG_WAITALL);
    ensure!(got == Ok(4), "the server received {got:?}");
    tcp.reset()
}
