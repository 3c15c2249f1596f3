// SPDX-License-Identifier: GPL-2.0

//! Data transfer by other calls than send and receive: splice, tee, sendfile, vectors of buffers.

use std::fs::File;
use std::io::pipe;
use std::io::IoSlice;
use std::io::IoSliceMut;
use std::io::Read;
use std::io::Write;
use std::os::fd::OwnedFd;
use std::thread;

use anyhow::Context as _;
use anyhow::Result;
use nix::fcntl::splice;
use nix::fcntl::tee;
use nix::fcntl::SpliceFFlags;
use nix::sys::sendfile::sendfile;
use smc_user::Errno;
use smc_user::Socket;

use crate::semantics::answer::answer;
use crate::semantics::Row;

/// A file that is long enough and does not change.
const LONG_FILE: &str = "/proc/self/exe";

/// Returns a duplicate of the socket as a file, for file operations.
fn as_file(socket: &Socket) -> Result<File> {
    Ok(File::from(OwnedFd::from(socket.duplicate()?)))
}

pub(super) const ROWS: &[Row] = &[
    Row::same("splice to a pipe", "7 spliced", |rig| {
        let pair = rig.pair()?;
        pair.deliver(b"spliced")?;
        let (mut reader, writer) = pipe()?;
        let moved = splice(&pair.server, None, &writer, None, 64, SpliceFFlags::empty());
        drop(writer);
        let mut text = String::new();
        reader.read_to_string(&mut text)?;
        answer![moved.context("splice")?, text]
    }),
    Row::same("splice to a pipe with nothing there", "EAGAIN", |rig| {
        let pair = rig.pair()?;
        pair.server.set_nonblocking(true)?;
        let (_reader, writer) = pipe()?;
        let moved = splice(
            &pair.server,
            None,
            &writer,
            None,
            64,
            SpliceFFlags::SPLICE_F_NONBLOCK,
        );
        answer![moved.map_err(|error| Errno(error as i32))]
    }),
    Row::same(
        "splice of more than one buffer through a pipe",
        "true",
        |rig| {
            let pair = rig.pair()?;
            let data: Vec<u8> = (0..300_000u32).map(|i| (i % 251) as u8).collect();
            let (mut reader, writer) = pipe()?;
            thread::scope(|scope| {
                scope.spawn(|| (&pair.client).write_all(&data));
                scope.spawn(|| {
                    let mut left = data.len();
                    while left > 0 {
                        let moved = splice(
                            &pair.server,
                            None,
                            &writer,
                            None,
                            left,
                            SpliceFFlags::empty(),
                        );
                        match moved {
                            Ok(len) if len > 0 => left -= len,
                            _ => break,
                        }
                    }
                    drop(writer);
                });
                let mut got = Vec::new();
                reader.read_to_end(&mut got)?;
                answer![got == data]
            })
        },
    )
    .c_may_be_wrong("a later splice waits in vain"),
    Row::same("splice from a pipe", "7 spliced", |rig| {
        let pair = rig.pair()?;
        let (reader, mut writer) = pipe()?;
        writer.write_all(b"spliced")?;
        let moved = splice(&reader, None, &pair.client, None, 7, SpliceFFlags::empty());
        let mut buffer = [0; 7];
        pair.server.recv(&mut buffer, libc::MSG_WAITALL)?;
        answer![
            moved.context("splice")?,
            String::from_utf8_lossy(&buffer).into_owned()
        ]
    }),
    Row::same(
        "tee behind a splice: both have the data",
        "3 one one",
        |rig| {
            let pair = rig.pair()?;
            pair.deliver(b"one")?;
            let (mut first, into_first) = pipe()?;
            let (mut second, into_second) = pipe()?;
            let none = SpliceFFlags::empty();
            splice(&pair.server, None, &into_first, None, 64, none)?;
            let copied = tee(&first, &into_second, 64, none)?;
            drop((into_first, into_second));
            let (mut here, mut there) = (String::new(), String::new());
            first.read_to_string(&mut here)?;
            second.read_to_string(&mut there)?;
            answer![copied, here, there]
        },
    )
    .c_is_wrong("tee fails with EFAULT"),
    Row::same("sendfile", "true", |rig| {
        let pair = rig.pair()?;
        let file = File::open(LONG_FILE)?;
        let len = 300_000;
        let got = thread::scope(|scope| -> Result<Vec<u8>> {
            let sender = scope.spawn(|| -> Result<()> {
                let mut offset = 0;
                while usize::try_from(offset)? < len {
                    let left = len - usize::try_from(offset)?;
                    sendfile(&pair.client, &file, Some(&mut offset), left)?;
                }
                Ok(())
            });
            let mut got = vec![0; len];
            (&pair.server).read_exact(&mut got)?;
            match sender.join() {
                Ok(result) => result.map(|()| got),
                Err(_) => anyhow::bail!("the sending thread panicked"),
            }
        })?;
        let mut want = vec![0; len];
        File::open(LONG_FILE)?.read_exact(&mut want)?;
        answer![got == want]
    }),
    Row::same("vectors of buffers", "9 9 abc|defghi", |rig| {
        let pair = rig.pair()?;
        let parts = [b"ab".as_slice(), b"", b"cdefg", b"hi"].map(IoSlice::new);
        let sent = as_file(&pair.client)?.write_vectored(&parts)?;
        pair.await_queued(9)?;
        let (mut first, mut second) = ([0; 3], [0; 9]);
        let mut parts = [IoSliceMut::new(&mut first), IoSliceMut::new(&mut second)];
        let received = as_file(&pair.server)?.read_vectored(&mut parts)?;
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        answer![
            sent,
            received,
            format!("{}|{}", text(&first), text(&second[..6]))
        ]
    }),
    Row::same(
        "positions in the stream are refused",
        "ESPIPE ESPIPE",
        |rig| {
            use std::os::unix::fs::FileExt;

            let pair = rig.pair()?;
            let file = as_file(&pair.client)?;
            let errno = |error: std::io::Error| Errno(error.raw_os_error().unwrap_or(0));
            answer![
                file.write_at(b"x", 1).map_err(errno),
                file.read_at(&mut [0], 1).map_err(errno)
            ]
        },
    ),
];
