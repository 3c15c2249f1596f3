// SPDX-License-Identifier: GPL-2.0

//! A socket as a file: all kinds of read and write, and transfers that bypass user space.

use std::fs::File;
use std::io::Seek;
use std::io::SeekFrom;
use std::io::Write;
use std::os::fd::OwnedFd;

use anyhow::Result;
use nix::fcntl::splice;
use nix::fcntl::tee;
use nix::fcntl::vmsplice;
use nix::fcntl::OFlag;
use nix::fcntl::SpliceFFlags;
use nix::sys::sendfile::sendfile;
use smc_user::Errno;
use smc_user::Socket;

use super::Form;
use super::SMC;
use crate::semantics::answer::answer;
use crate::semantics::rig::await_true;
use crate::semantics::rig::events;
use crate::semantics::rig::Rig;
use crate::semantics::Pair;

/// More bytes than a pipe or one send can hold.
const BULK: usize = 300_000;

/// Converts a result of nix.
fn ours<T>(result: nix::Result<T>) -> smc_user::Result<T> {
    result.map_err(|error| Errno(error as i32))
}

/// Creates a file with these contents, and seeks to its beginning.
fn file(contents: &[u8]) -> Result<File> {
    let path = format!("/tmp/forms-{}", std::process::id());
    let mut file = File::options()
        .read(true)
        .write(true)
        .create(true)
        .truncate(true)
        .open(&path)?;
    std::fs::remove_file(path)?;
    file.write_all(contents)?;
    file.seek(SeekFrom::Start(0))?;
    Ok(file)
}

fn pipe() -> Result<(OwnedFd, OwnedFd)> {
    Ok(nix::unistd::pipe2(OFlag::O_CLOEXEC)?)
}

fn pattern(len: usize) -> Vec<u8> {
    // CAST: the remainder is a byte.
    (0..len).map(|at| (at % 251) as u8).collect()
}

/// Receives until the end of the stream; returns the length, and whether the data is the pattern.
fn drain(socket: &Socket) -> Result<(usize, bool)> {
    let (mut all, mut buffer) = (Vec::new(), vec![0; 65536]);
    while let len @ 1.. = socket.recv(&mut buffer, 0)? {
        all.extend_from_slice(&buffer[..len]);
    }
    Ok((all.len(), all == pattern(all.len())))
}

/// Sends [`BULK`] bytes with `send` while the server receives and checks them.
fn bulk(rig: &Rig<'_>, send: impl Fn(&Socket) -> Result<()> + Sync) -> Result<String> {
    let pair = rig.pair()?;
    std::thread::scope(|scope| {
        let receiver = scope.spawn(|| drain(&pair.server));
        send(&pair.client)?;
        pair.client.shutdown(libc::SHUT_WR)?;
        let (len, is_right) = receiver
            .join()
            .unwrap_or_else(|_| anyhow::bail!("the receiver panicked"))?;
        answer![len, is_right]
    })
}

/// Splices received data of `socket` into a pipe.
fn into_pipe(socket: &Socket, pipe: &OwnedFd, flags: SpliceFFlags) -> smc_user::Result<usize> {
    ours(splice(socket, None, pipe, None, 4096, flags))
}

pub(super) const FORMS: &[Form] = &[
    Form::new("read and write", |rig| {
        let pair = rig.pair()?;
        let sent = pair.client.write(b"hello");
        pair.await_queued(5)?;
        let mut buffer = [0; 3];
        answer![
            sent,
            pair.server.read(&mut buffer),
            buffer == *b"hel",
            pair.server.read(&mut buffer)
        ]
    }),
    Form::new("readv and writev", |rig| {
        let pair = rig.pair()?;
        let sent = pair.client.write_parts(&[b"he", b"", b"llo"]);
        pair.await_queued(5)?;
        let (mut a, mut b) = ([0; 1], [0; 9]);
        let got = pair.server.read_parts(&mut [&mut a, &mut b]);
        answer![
            sent,
            got,
            pair.client.write_parts(&[]),
            pair.server.read_parts(&mut [])
        ]
    }),
    Form::new("preadv2 and pwritev2, without an offset", |rig| {
        let pair = rig.pair()?;
        let sent = pair.client.write_parts_at(&[b"he", b"llo"], -1, 0);
        pair.await_queued(5)?;
        let got = pair
            .server
            .read_parts_at(&mut [&mut [0; 2], &mut [0; 9]], -1, 0);
        answer![sent, got]
    }),
    Form::new("preadv2 and pwritev2, with an offset", |rig| {
        let pair = rig.pair()?;
        answer![
            pair.client.write_parts_at(&[b"x"], 0, 0),
            pair.server.read_parts_at(&mut [&mut [0; 2]], 0, 0)
        ]
    }),
    Form::new("preadv2 and pwritev2, without waiting", |rig| {
        const RWF_NOWAIT: i32 = 8;
        let pair = rig.pair()?;
        let empty = pair
            .server
            .read_parts_at(&mut [&mut [0; 2]], -1, RWF_NOWAIT);
        let sent = pair.client.write_parts_at(&[b"x"], -1, RWF_NOWAIT);
        pair.await_queued(1)?;
        let got = pair
            .server
            .read_parts_at(&mut [&mut [0; 2]], -1, RWF_NOWAIT);
        answer![empty, sent, got]
    }),
    Form::new("what files can do and sockets cannot", |rig| {
        let pair = rig.pair()?;
        answer![
            ours(nix::unistd::lseek(
                &pair.client,
                0,
                nix::unistd::Whence::SeekCur
            ))
            .map(drop),
            ours(nix::unistd::ftruncate(&pair.client, 0)),
            ours(nix::unistd::fsync(&pair.client)),
        ]
    }),
    Form::new("mmap", |rig| answer![rig.pair()?.client.map()]).except(
        SMC,
        "ENODEV",
        "what is received lies in the RMB, which TCP's zero-copy receive cannot map",
    ),
    Form::new("sendfile, from a file", |rig| {
        let file = file(&pattern(BULK))?;
        bulk(rig, |socket| {
            let mut left = BULK;
            while left > 0 {
                left -= sendfile(socket, &file, None, left)?;
            }
            Ok(())
        })
    }),
    Form::new("sendfile, from an offset, and past the end", |rig| {
        let (file, pair) = (file(b"hello")?, rig.pair()?);
        let mut offset = 3;
        let sent = ours(sendfile(&pair.client, &file, Some(&mut offset), 100));
        let past = ours(sendfile(&pair.client, &file, Some(&mut offset), 100));
        pair.await_queued(2)?;
        answer![
            sent,
            past,
            offset.to_string(),
            pair.server.recv(&mut [0; 9], 0)
        ]
    }),
    Form::new("sendfile, to a peer that has closed", |rig| {
        let (file, Pair { client, server, .. }) = (file(b"hello")?, rig.pair()?);
        drop(server);
        await_true("the end", || events(&client) & libc::POLLRDHUP != 0)?;
        let first = ours(sendfile(&client, &file, Some(&mut 0), 5));
        await_true("the answer", || events(&client) & libc::POLLHUP != 0)?;
        answer![first, ours(sendfile(&client, &file, Some(&mut 0), 5))]
    }),
    Form::new("sendfile, no connection", |rig| {
        let file = file(b"hello")?;
        answer![ours(sendfile(rig.open()?, &file, None, 5))]
    }),
    Form::new("sendfile, from a socket", |rig| {
        let (file, pair) = (file(b"")?, rig.pair()?);
        pair.deliver(b"hello")?;
        answer![ours(sendfile(&file, &pair.server, None, 5))]
    }),
    Form::new("splice, from a pipe", |rig| {
        bulk(rig, |socket| {
            let (reader, writer) = pipe()?;
            std::thread::scope(|scope| {
                scope.spawn(move || {
                    let mut writer = File::from(writer);
                    let _ = writer.write_all(&pattern(BULK));
                });
                let mut left = BULK;
                while left > 0 {
                    left -= splice(
                        &reader,
                        None,
                        socket,
                        None,
                        left,
                        SpliceFFlags::SPLICE_F_MORE,
                    )?;
                }
                Ok(())
            })
        })
    }),
    Form::new("splice, into a pipe, and tee", |rig| {
        let pair = rig.pair()?;
        let ((first, first_in), (second, second_in)) = (pipe()?, pipe()?);
        pair.server.set_nonblocking(true)?;
        let none = into_pipe(&pair.server, &first_in, SpliceFFlags::SPLICE_F_NONBLOCK);
        pair.deliver(b"hello")?;
        let got = into_pipe(&pair.server, &first_in, SpliceFFlags::empty());
        let copied = ours(tee(&first, &second_in, 4096, SpliceFFlags::empty()));
        let (mut a, mut b) = ([0; 8], [0; 8]);
        let read = (
            ours(nix::unistd::read(&first, &mut a)),
            ours(nix::unistd::read(&second, &mut b)),
        );
        answer![none, got, copied, read.0, read.1, a == b]
    }),
    Form::new("splice, from one socket to another by a pipe", |rig| {
        let (from, to) = (rig.pair()?, rig.pair()?);
        let (reader, writer) = pipe()?;
        from.deliver(b"hello")?;
        let taken = into_pipe(&from.server, &writer, SpliceFFlags::SPLICE_F_MOVE);
        let given = ours(splice(
            &reader,
            None,
            &to.client,
            None,
            5,
            SpliceFFlags::empty(),
        ));
        answer![taken, given, to.server.recv(&mut [0; 8], 0)]
    }),
    Form::new("splice, at the end of the stream", |rig| {
        let pair = rig.pair()?;
        let (_reader, writer) = pipe()?;
        pair.client.shutdown(libc::SHUT_WR)?;
        answer![into_pipe(&pair.server, &writer, SpliceFFlags::empty())]
    }),
    Form::new("splice, no connection", |rig| {
        let (reader, writer) = pipe()?;
        let socket = rig.open()?;
        nix::unistd::write(&writer, b"x")?;
        answer![
            into_pipe(&socket, &writer, SpliceFFlags::empty()),
            ours(splice(
                &reader,
                None,
                &socket,
                None,
                1,
                SpliceFFlags::empty()
            ))
        ]
    }),
    Form::new("vmsplice, and on to a socket", |rig| {
        let pair = rig.pair()?;
        let (reader, writer) = pipe()?;
        let data = std::io::IoSlice::new(b"hello");
        let given = ours(vmsplice(&writer, &[data], SpliceFFlags::empty()));
        let sent = ours(splice(
            &reader,
            None,
            &pair.client,
            None,
            5,
            SpliceFFlags::empty(),
        ));
        answer![given, sent, pair.server.recv(&mut [0; 8], 0)]
    }),
    Form::new("fstat and the name in /proc", |rig| {
        use std::os::fd::AsRawFd;
        let pair = rig.pair()?;
        let stat = nix::sys::stat::fstat(&pair.client)?;
        let link = std::fs::read_link(format!("/proc/self/fd/{}", pair.client.as_raw_fd()))?;
        answer![
            format!("{:o}", stat.st_mode),
            stat.st_size.to_string(),
            link.to_string_lossy() == format!("socket:[{}]", stat.st_ino)
        ]
    }),
];
