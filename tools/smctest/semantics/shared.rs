// SPDX-License-Identifier: GPL-2.0

//! A socket that several threads use at once, and signals that it sends.

use std::net::SocketAddr;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering;
use std::sync::mpsc;
use std::thread;
use std::time::Instant;

use anyhow::Context as _;
use anyhow::Result;
use nix::sys::signal::SigSet;
use nix::sys::signal::Signal;
use nix::sys::signalfd::SfdFlags;
use nix::sys::signalfd::SignalFd;
use nix::unistd::gettid;
use smc_tools::path::Path;
use smc_user::interrupt_calls_by;
use smc_user::Errno;
use smc_user::Socket;
use smc_user::Unserved;

use crate::semantics::answer::answer;
use crate::semantics::interrupted::interrupted;
use crate::semantics::rig::await_events;
use crate::semantics::rig::await_true;
use crate::semantics::rig::blocked;
use crate::semantics::rig::events;
use crate::semantics::rig::fill;
use crate::semantics::rig::is_blocked;
use crate::semantics::rig::Pair;
use crate::semantics::rig::Rig;
use crate::semantics::rig::FIONREAD;
use crate::semantics::rig::SIOCOUTQ;
use crate::semantics::rig::SOON;
use crate::semantics::rig::WHILE;
use crate::semantics::Row;

const DONTWAIT: i32 = libc::MSG_DONTWAIT;
const TCP_FASTOPEN_CONNECT: i32 = 30;
const F_SETSIG: i32 = 10;

/// Returns whether a thread that sends with `send` on a closed connection gets SIGPIPE.
fn raises_sigpipe(rig: &Rig<'_>, send: impl Fn(&Socket) -> Option<Errno> + Sync) -> Result<bool> {
    let pair = rig.pair()?;
    pair.client.shutdown(libc::SHUT_WR)?;
    // Ignored signals do not become pending.
    interrupt_calls_by(libc::SIGPIPE)?;
    // The signal mask belongs to the thread.
    thread::scope(|scope| {
        let sender = scope.spawn(|| -> Result<bool> {
            let mut mask = SigSet::empty();
            mask.add(Signal::SIGPIPE);
            mask.thread_block()?;
            let signals = SignalFd::with_flags(&mask, SfdFlags::SFD_NONBLOCK)?;
            anyhow::ensure!(send(&pair.client) == Some(Errno::EPIPE), "no EPIPE");
            Ok(signals.read_signal()?.is_some())
        });
        sender
            .join()
            .unwrap_or_else(|_| anyhow::bail!("the sending thread panicked"))
    })
}

/// Has the peer reset the connection while a thread is blocked in send. Returns its first error and whether SIGPIPE
/// came with it, then the same of a further send.
fn errors_of_blocked_send(pair: Pair) -> Result<[(Errno, bool); 2]> {
    // Ignored signals do not become pending.
    interrupt_calls_by(libc::SIGPIPE)?;
    let Pair { client, server, .. } = pair;
    // The call that is blocked has sent nothing then.
    fill(&client);
    let (tell, told) = mpsc::channel();
    thread::scope(|scope| {
        let writer = scope.spawn(|| {
            as_owner(Signal::SIGPIPE, |signals| {
                tell.send(gettid())?;
                let first = loop {
                    if let Err(error) = write(&client, b"x") {
                        break (error, signals.read_signal()?.is_some());
                    }
                };
                let second = write(&client, b"x").err().context("no error")?;
                Ok([first, (second, signals.read_signal()?.is_some())])
            })
        });
        let writing = told.recv()?;
        await_true("a blocked send", || is_blocked(writing))?;
        server.set_linger(true, 0)?;
        drop(server);
        writer
            .join()
            .unwrap_or_else(|_| anyhow::bail!("the writer panicked"))
    })
}

/// write(2), which has no flags against SIGPIPE.
fn write(socket: &Socket, data: &[u8]) -> Result<usize, Errno> {
    nix::unistd::write(socket, data).map_err(|error| Errno(error as i32))
}

/// Returns whether the socket owner that `prepare` sets gets `signal` when data arrives.
fn signals(
    signal: Signal,
    pair: &Pair,
    prepare: impl Fn(&Socket) -> smc_user::Result<()> + Sync,
    flags: i32,
) -> Result<bool> {
    as_owner(signal, |signals| {
        prepare(&pair.server)?;
        pair.client.send(b"x", flags)?;
        await_events(&pair.server, libc::POLLIN | libc::POLLPRI)?;
        thread::sleep(WHILE);
        Ok(signals.read_signal()?.is_some())
    })
}

/// Returns whether SIGIO comes when a socket with no space has some again, and whether it came before.
fn signals_space(pair: &Pair) -> Result<(bool, bool)> {
    as_owner(Signal::SIGIO, |signals| {
        pair.client.set_owner_to_this_thread()?;
        pair.client.set_signal_driven(true)?;
        let len = fill(&pair.client);
        // Acknowledgements may have made space for a moment.
        while signals.read_signal()?.is_some() {}
        thread::sleep(WHILE);
        let early = signals.read_signal()?.is_some();
        pair.server
            .recv(&mut vec![0; len], libc::MSG_WAITALL)
            .context("the data")?;
        await_events(&pair.client, libc::POLLOUT)?;
        Ok((band(signals).is_some(), early))
    })
}

/// Returns whether SIGIO comes when there is space again of which poll(2) has said that there is none.
fn signals_polled_space(pair: &Pair) -> Result<bool> {
    as_owner(Signal::SIGIO, |signals| {
        pair.client.set_owner_to_this_thread()?;
        pair.client.set_signal_driven(true)?;
        let mut len = 0;
        // No call finds the buffer full. What was on its way may make space, of which a signal tells, after poll(2).
        while events(&pair.client) & libc::POLLOUT != 0 {
            len += pair.client.send(&[0x11; 4096], DONTWAIT)?;
            if events(&pair.client) & libc::POLLOUT == 0 {
                while signals.read_signal()?.is_some() {}
            }
        }
        pair.server
            .recv(&mut vec![0; len], libc::MSG_WAITALL)
            .context("the data")?;
        await_true("SIGIO", || matches!(signals.read_signal(), Ok(Some(_))))?;
        Ok(true)
    })
}

/// What the next signal is for (`si_code`: POLL_IN 1, POLL_OUT 2, POLL_HUP 6), if one comes soon.
fn band(signals: &SignalFd) -> Option<i32> {
    let mut band = None;
    let _ = await_true("SIGIO", || {
        band = signals.read_signal().ok().flatten();
        band.is_some()
    });
    Some(band?.ssi_code)
}

/// Returns what the signals of a connection are for: that it is there, data, its own shutdown, the peer's end, and in
/// another connection the peer's end first.
fn bands(rig: &Rig<'_>) -> Result<[Option<i32>; 5]> {
    as_owner(Signal::SIGIO, |signals| {
        let prepare = |socket: &Socket| -> Result<()> {
            socket.fcntl(F_SETSIG, libc::SIGIO)?;
            socket.set_owner_to_this_thread()?;
            Ok(socket.set_signal_driven(true)?)
        };
        let (listener, address) = rig.listener()?;
        let client = rig.open()?;
        prepare(&client)?;
        client.set_nonblocking(true)?;
        let _ = client.connect(address);
        let connected = band(signals);
        let server = listener.accept(0)?;
        server.send(b"x", 0)?;
        let data = band(signals);
        client.shutdown(libc::SHUT_WR)?;
        thread::sleep(WHILE);
        let own = signals.read_signal()?.map(|signal| signal.ssi_code);
        server.shutdown(libc::SHUT_WR)?;
        let both = band(signals);
        let other = rig.pair()?;
        prepare(&other.client)?;
        other.server.shutdown(libc::SHUT_WR)?;
        Ok([connected, data, own, both, band(signals)])
    })
}

/// Returns how many bytes a call gets that waits for all while their arrival may raise SIGIO.
fn reads_despite_signals(pair: &Pair) -> Result<usize> {
    interrupt_calls_by(libc::SIGIO)?;
    pair.server.set_owner_to_this_thread()?;
    pair.server.set_signal_driven(true)?;
    let reader = gettid();
    thread::scope(|scope| {
        scope.spawn(move || {
            let _ = await_true("a blocked receive", || is_blocked(reader));
            for _ in 0..2 {
                let _ = pair.client.send(&[0x11; 4096], 0);
                thread::sleep(WHILE);
            }
        });
        Ok(pair.server.recv(&mut [0; 8192], libc::MSG_WAITALL)?)
    })
}

/// Runs `run` in a thread that may own sockets, and gets `signal` by a file descriptor.
fn as_owner<R: Send>(signal: Signal, run: impl FnOnce(&SignalFd) -> Result<R> + Send) -> Result<R> {
    thread::scope(|scope| {
        let owner = scope.spawn(|| {
            let mut mask = SigSet::empty();
            mask.add(signal);
            mask.thread_block()?;
            run(&SignalFd::with_flags(&mask, SfdFlags::SFD_NONBLOCK)?)
        });
        owner
            .join()
            .unwrap_or_else(|_| anyhow::bail!("the owner panicked"))
    })
}

/// Makes a call that neither blocks nor changes the state of the connection.
fn any_call(socket: &Socket, kind: u32) {
    match kind {
        0 => {
            let _ = socket.set_option_int(libc::IPPROTO_TCP, libc::TCP_NODELAY, 1);
            let _ = socket.option(libc::IPPROTO_TCP, libc::TCP_INFO, &mut [0; 64]);
        }
        1 => {
            let _ = socket.set_option_int(libc::SOL_SOCKET, libc::SO_KEEPALIVE, 1);
            let _ = socket.peer_address();
            let _ = socket.local_address();
        }
        2 => {
            let _ = events(socket);
            let _ = socket.ioctl_int(FIONREAD);
            let _ = socket.ioctl_int(SIOCOUTQ);
        }
        _ => {
            let _ = socket.recv(&mut [0; 64], DONTWAIT | libc::MSG_PEEK);
            let _ = socket.send(b"x", DONTWAIT);
        }
    }
}

/// Connects in one of several ways, and closes the connection at one of the two ends.
fn connect_and_end(
    socket: &Socket,
    listener: &Socket,
    address: SocketAddr,
    round: u32,
) -> Result<()> {
    if round % 3 == 2 {
        // Forces a fallback to TCP, if still possible.
        let _ = socket.set_option_int(libc::IPPROTO_TCP, TCP_FASTOPEN_CONNECT, 1);
    }
    socket.connect(address)?;
    socket.send(b"x", 0)?;
    let server = listener.accept(0)?;
    server.set_timeout(SOON)?;
    server.send(b"hello", 0)?;
    thread::sleep(WHILE / 3);
    match round % 2 {
        0 => drop(server),
        _ => drop(socket.shutdown(libc::SHUT_RDWR)),
    }
    thread::sleep(WHILE / 3);
    Ok(())
}

/// Connects while other threads send and receive on the socket; returns whether the usual path was
/// used, and whether all data that was accepted arrived.
fn connect_among_calls(rig: &Rig<'_>, usual: bool) -> Result<(bool, bool)> {
    let (listener, address) = rig.listener()?;
    let socket = rig.open()?;
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        let receiver = scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                let _ = socket.recv(&mut [0; 64], DONTWAIT);
            }
        });
        let sender = scope.spawn(|| {
            let mut sent = 0;
            while !over.load(Ordering::Relaxed) {
                sent += socket.send(b"x", DONTWAIT).unwrap_or(0);
            }
            sent
        });
        thread::yield_now();
        let connected = socket.connect(address);
        over.store(true, Ordering::Relaxed);
        let _ = receiver.join();
        let sent = sender.join().unwrap_or(usize::MAX);
        connected?;
        socket.shutdown(libc::SHUT_WR)?;
        let server = listener.accept(0)?;
        server.set_timeout(SOON)?;
        let mut received = 0;
        while let len @ 1.. = server.recv(&mut [0; 512], 0)? {
            received += len;
        }
        Ok((Path::of(&server)?.is_smc() == usual, received == sent))
    })
}

/// Sends a page that is not there yet, and meanwhile `len` bytes by another thread. Returns the results, and how the
/// data arrived.
fn send_behind_late_page(pair: &Pair, len: usize) -> Result<String> {
    let page = Unserved::new()?;
    let sent = thread::scope(|scope| {
        let first = scope.spawn(|| page.send(&pair.client, 0));
        let is_wanted = page.is_wanted(SOON);
        let second = scope.spawn(|| pair.client.send(&[b'x'; 3000][..len], 0));
        thread::sleep(WHILE);
        // In any case, or the thread would never end.
        let served = page.serve();
        let sent = [first.join(), second.join()];
        is_wanted.and(served).map(|()| sent)
    })?;
    let [first, second] = sent.map(|sent| sent.unwrap_or(Err(Errno::EINTR)));
    let mut all = vec![b'?'; 4096 + len];
    pair.server.recv(&mut all, libc::MSG_WAITALL)?;
    let (zeroes, others) = all.split_at(4096);
    let is_whole = zeroes.iter().all(|byte| *byte == 0) && others.iter().all(|byte| *byte == b'x');
    let order = match is_whole {
        true => "behind each other",
        false => "mixed up",
    };
    Ok(format!("{first:?} {second:?}, {order}"))
}

pub(super) const ROWS: &[Row] = &[
    Row::same(
        "a receive that does not wait passes one that does",
        "EAGAIN true 5",
        |rig| {
            let pair = rig.pair()?;
            thread::scope(|scope| {
                let reader = blocked(scope, || pair.server.recv(&mut [0; 8], 0))?;
                let start = Instant::now();
                let result = pair.server.recv(&mut [0; 8], DONTWAIT);
                let is_prompt = start.elapsed() < SOON / 4;
                pair.client.send(b"hello", 0)?;
                answer![
                    result,
                    is_prompt,
                    reader.join().unwrap_or(Err(Errno::EINTR))
                ]
            })
        },
    ),
    Row::same(
        "a send that does not wait passes one that does",
        "EAGAIN true",
        |rig| {
            let pair = rig.pair()?;
            fill(&pair.client);
            thread::scope(|scope| {
                blocked(scope, || pair.client.send(&[0; 8], 0))?;
                // Data in flight may still free space for some bytes.
                let (mut result, mut start) = (Ok(1), Instant::now());
                while result.is_ok() {
                    start = Instant::now();
                    result = pair.client.send(b"x", DONTWAIT);
                }
                let is_prompt = start.elapsed() < SOON / 4;
                // Ends the blocked send.
                drop(pair.server);
                answer![result, is_prompt]
            })
        },
    ),
    Row::same(
        "those who send wait for one whose memory is not there yet",
        "Ok(4096) Ok(3000), behind each other; Ok(4096) Ok(100), behind each other",
        |rig| {
            let pair = rig.pair()?;
            let [long, short] = [3000, 100].map(|len| send_behind_late_page(&pair, len));
            Ok(format!("{}; {}", long?, short?))
        },
    ),
    Row::same("two who receive get all of it together", "20", |rig| {
        let pair = rig.pair()?;
        thread::scope(|scope| {
            let readers = [(); 2].map(|()| {
                scope.spawn(|| {
                    let mut total = 0;
                    while let Ok(len @ 1..) = pair.server.recv(&mut [0; 3], 0) {
                        total += len;
                    }
                    total
                })
            });
            for _ in 0..10 {
                pair.client.send(b"ab", 0)?;
            }
            pair.client.shutdown(libc::SHUT_WR)?;
            let total: usize = readers
                .map(|reader| reader.join().unwrap_or(0))
                .iter()
                .sum();
            answer![total]
        })
    }),
    Row::same(
        "SIGPIPE comes with EPIPE, unless the flags say not",
        "true false",
        |rig| {
            let write = |socket: &Socket| write(socket, b"x").err();
            let send = |socket: &Socket| socket.send(b"x", libc::MSG_NOSIGNAL).err();
            answer![raises_sigpipe(rig, write)?, raises_sigpipe(rig, send)?]
        },
    )
    .c_is_wrong("no signal comes"),
    Row::same(
        "a blocked send is reset: the error, then EPIPE with SIGPIPE",
        "ECONNRESET false EPIPE true",
        |rig| {
            let [(first, signal), (second, later)] = errors_of_blocked_send(rig.pair()?)?;
            answer![Err::<(), _>(first), signal, Err::<(), _>(second), later]
        },
    )
    .c_is_wrong("it closes in order"),
    Row::same("SIGURG comes to the owner", "true", |rig| {
        let pair = rig.pair()?;
        let set = |server: &Socket| server.set_owner_to_this_thread();
        answer![signals(Signal::SIGURG, &pair, set, libc::MSG_OOB)?]
    }),
    Row::same(
        "SIGIO comes to the owner, if it wants it",
        "false true",
        |rig| {
            let (first, second) = (rig.pair()?, rig.pair()?);
            let silent = |server: &Socket| server.set_owner_to_this_thread();
            let signal = |server: &Socket| {
                server.set_owner_to_this_thread()?;
                server.set_signal_driven(true)
            };
            interrupt_calls_by(libc::SIGIO)?;
            answer![
                signals(Signal::SIGIO, &first, silent, 0)?,
                signals(Signal::SIGIO, &second, signal, 0)?,
            ]
        },
    ),
    Row::same(
        "SIGIO comes when there is space to write again",
        "true false",
        |rig| {
            let (comes, early) = signals_space(&rig.pair()?)?;
            answer![comes, early]
        },
    ),
    Row::same(
        "SIGIO comes when there is space again after poll has said that there is none",
        "true",
        |rig| answer![signals_polled_space(&rig.pair()?)?],
    ),
    Row::same(
        "SIGIO says what it is for: a connection, data, nothing for one's own end, the end of both, the peer's",
        "2 1 none 6 1",
        |rig| {
            let bands = bands(rig)?.map(|band| band.map_or("none".to_string(), |b| b.to_string()));
            answer![bands.join(" ")]
        },
    )
    .c_is_wrong("no signal for a connection; the end of both is like the peer's"),
    Row::same(
        "a receive that waits for all is not cut short by SIGIO for its data",
        "8192",
        |rig| answer![reads_despite_signals(&rig.pair()?)?],
    ),
    Row::same(
        "an error that ends recvmmsg after a message is the next call's",
        "1 EINTR EAGAIN 0x4",
        |rig| {
            let pair = rig.pair()?;
            pair.deliver(b"hello")?;
            let (mut first, mut second) = ([0; 5], [0; 5]);
            let mut parts = [&mut first[..], &mut second[..]];
            let read = interrupted(|| pair.server.recv_messages(&mut parts, 0, None))?;
            let read = read.map(|parts| parts.len());
            let next = pair.server.recv(&mut [0; 5], DONTWAIT);
            let last = pair.server.recv(&mut [0; 5], DONTWAIT);
            answer![read, next, last, events(&pair.server)]
        },
    ),
    // For these, reports of the kernel's memory checker are the result.
    Row::same(
        "data before the connection does not get into the handshake",
        "true true",
        |rig| {
            let usual = rig.path()?.is_smc();
            let start = Instant::now();
            while start.elapsed() < SOON / 3 {
                let (is_usual, is_whole) = connect_among_calls(rig, usual)?;
                if !(is_usual && is_whole) {
                    return answer![is_usual, is_whole];
                }
            }
            answer![true, true]
        },
    ),
    Row::same(
        "calls of all kinds while it connects and ends",
        "done",
        |rig| {
            for round in 0..6 {
                let (listener, address) = rig.listener()?;
                let socket = rig.open()?;
                let over = AtomicBool::new(false);
                thread::scope(|scope| -> Result<()> {
                    for kind in 0..4 {
                        let (socket, over) = (&socket, &over);
                        scope.spawn(move || {
                            while !over.load(Ordering::Relaxed) {
                                any_call(socket, kind);
                            }
                        });
                    }
                    let ended = connect_and_end(&socket, &listener, address, round);
                    over.store(true, Ordering::Relaxed);
                    ended
                })?;
            }
            answer!["done"]
        },
    ),
];
