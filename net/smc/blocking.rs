// SPDX-License-Identifier: GPL-2.0

//! sendmsg and recvmsg of a connected socket: how long a call waits and when it returns, whatever carries the data (C
//! functions `tcp_sendmsg_locked`, `tcp_recvmsg_locked`).

use kernel_ext::{
    ib::Block,
    net::{
        Msg,
        Sk,
        WaitEnd,
        FOREVER, //
    },
    prelude::*,
    time, //
};
use smc_proto::{
    conn::SendError,
    cursor::Chunks,
    time::Duration, //
};

/// Options of one send call.
#[derive(Clone, Copy)]
pub(crate) struct SendOptions {
    /// MSG_DONTWAIT or O_NONBLOCK.
    pub(crate) nonblock: bool,
    /// MSG_OOB.
    pub(crate) oob: bool,
    /// MSG_MORE, or TCP_CORK of the socket.
    pub(crate) corked: bool,
    /// TCP_NODELAY.
    pub(crate) nodelay: bool,
    /// sysctl `autocorking_size`, in bytes.
    pub(crate) autocork_bytes: u32,
}

/// Options of one receive call.
#[derive(Clone, Copy)]
pub(crate) struct RecvOptions {
    /// MSG_DONTWAIT or O_NONBLOCK.
    pub(crate) nonblock: bool,
    /// MSG_PEEK.
    pub(crate) peek: bool,
    /// MSG_TRUNC: count, but do not copy.
    pub(crate) discard: bool,
    /// MSG_WAITALL.
    pub(crate) all: bool,
}

/// Result of one attempt to read.
pub(crate) enum ReadStep {
    Copied(usize),
    /// The read ends at the urgent mark.
    Mark(usize),
    Wait,
    Eof,
}

/// The sending side of a carrier.
pub(crate) trait StreamTx {
    /// Copies what fits now; returns 0 if nothing does.
    /// Context: may sleep.
    ///
    /// # Errors
    ///
    /// That of send(2).
    fn send_some(&self, sk: &Sk, msg: &mut Msg<'_>, how: &SendOptions) -> Result<usize>;

    /// Returns whether data may be sent now.
    ///
    /// # Errors
    ///
    /// Why not; [`SendError::PeerClosed`] is none for send(2).
    fn can_send(&self) -> Result<(), SendError>;

    /// Returns whether a writer can continue: there is space, or an error. If not, the socket is woken once it can.
    fn is_writer_due(&self) -> bool;
}

/// The receiving side of a carrier.
pub(crate) trait StreamRx {
    /// Copies what there is to read, or says why nothing was copied. `done` bytes were copied by this call before.
    /// SO_OOBINLINE counts as it is at this moment, as with TCP.
    /// Context: may sleep.
    ///
    /// # Errors
    ///
    /// That of recv(2).
    fn recv_some(
        &self,
        sk: &Sk,
        msg: &mut Msg<'_>,
        how: RecvOptions,
        done: usize,
    ) -> Result<ReadStep>;

    /// Returns whether a reader that has seen `skip` bytes can continue: more data, the end, or an error.
    fn is_reader_due(&self, skip: usize) -> bool;

    /// Returns whether poll(2) says that there is something to read: SO_RCVLOWAT bytes, or what there is room for.
    fn is_worth_reading(&self, sk: &Sk) -> bool;

    /// Returns whether the reader stands at an urgent byte, which a read would skip.
    fn is_at_hole(&self) -> bool;

    /// Returns whether the reader stands at an urgent byte, in line or not: a call that has read something ends there.
    fn is_at_mark(&self) -> bool;

    /// Returns whether the end of the stream was an orderly one, whatever error is pending.
    fn has_ended_in_order(&self) -> bool;

    /// Runs `wait`, during which the socket is woken whenever there is anything to read.
    fn while_reading<R>(&self, wait: impl FnOnce() -> R) -> R;
}

/// What a call reports while it goes on, which may take hours.
pub(crate) trait LongCall {
    /// Some bytes were copied.
    fn moved(&self);

    /// A writer waits for space, for which TCP would ask the peer again and again.
    fn waits(&self);
}

/// How often a writer reports that it waits for space.
const REPORT_INTERVAL: Duration = Duration::from_secs(10);

/// Sends data of the application. Sleeps unless `nonblock`. Calls `on_full` whenever there is no space.
///
/// Returns early, when space runs out after some bytes were copied, only if it may not wait. Other writers may run
/// while it waits.
///
/// # Errors
///
/// `EAGAIN`, `EPIPE`, `ECONNRESET`, `ENOTCONN`, `EFAULT`, or that of a signal; no error if some bytes were copied
/// before. `EPIPE` stands for the socket's error, if there is one.
pub(crate) fn send(
    tx: &impl StreamTx,
    sk: &Sk,
    msg: &mut Msg<'_>,
    how: &SendOptions,
    call: &impl LongCall,
    on_full: impl Fn(),
) -> Result<usize> {
    if msg.len() == 0 {
        let may_send = matches!(tx.can_send(), Ok(()) | Err(SendError::PeerClosed));
        return match may_send && !sk.has_err() {
            true => Ok(0),
            false => Err(EPIPE),
        };
    }
    let (mut timeout, mut done) = (None, 0);
    while msg.len() > 0 {
        match tx.send_some(sk, msg, how) {
            Ok(0) => on_full(),
            Ok(len) => {
                done += len;
                call.moved();
                continue;
            }
            Err(_) if done > 0 => break,
            Err(e) => return Err(e),
        }
        let left = timeout.unwrap_or_else(|| sk.sndtimeo(how.nonblock));
        if left == 0 {
            sk.set_nospace();
            // Space may have become free before SOCK_NOSPACE was set.
            if tx.is_writer_due() {
                continue;
            }
            return if done > 0 { Ok(done) } else { Err(EAGAIN) };
        }
        let part = left.min(time::timeout(REPORT_INTERVAL.as_nanos()));
        match sk.wait_until(part, false, || tx.is_writer_due()) {
            Ok(unused) => timeout = Some(left_after(left, part - unused)),
            Err(WaitEnd::Timeout) if part < left => {
                timeout = Some(left_after(left, part));
                call.waits();
            }
            Err(_) if done > 0 => break,
            // Whether the call begins again is for the whole of the timeout to say.
            Err(WaitEnd::Signal(_)) => return interrupted(sk, left, done),
            Err(end) => return Err(end.errno()),
        }
    }
    Ok(done)
}

/// What is left of a timeout after `used` jiffies, if it is one.
fn left_after(timeout: isize, used: isize) -> isize {
    match timeout {
        FOREVER => FOREVER,
        jiffies => jiffies - used,
    }
}

/// Takes data for a peer that has closed: as much as the send buffer would hold is lost without an error. Returns how
/// many bytes.
/// Context: may sleep.
///
/// # Errors
///
/// `EFAULT` if they cannot be read, as if they were to be sent.
pub(crate) fn discard(sk: &Sk, msg: &mut Msg<'_>) -> Result<usize> {
    let len = msg.len().min(sk.sndbuf() as usize);
    let mut done = 0;
    while done < len {
        let part = DISCARD_STEP.min(len - done);
        if !msg.read_away(part) {
            break;
        }
        done += part;
    }
    match done {
        0 if len > 0 => Err(EFAULT),
        _ => Ok(done),
    }
}

/// What TCP copies in one piece, of which nothing is sent unless all of it can be read.
const DISCARD_STEP: usize = 32 << 10;

/// Copies received data to the application. Sleeps unless `nonblock`; other readers may run meanwhile. Returns 0 at the
/// end of the stream. A call for zero bytes waits for data as well, as with TCP.
///
/// # Errors
///
/// `EAGAIN`, `ENOTCONN`, `EFAULT`, the socket's error or that of a signal; no error if some bytes were copied before.
pub(crate) fn recv(
    rx: &impl StreamRx,
    sk: &Sk,
    msg: &mut Msg<'_>,
    how: RecvOptions,
    call: &impl LongCall,
) -> Result<usize> {
    let target = sk.rcvlowat(how.all, msg.len());
    let mut timeout = sk.rcvtimeo(how.nonblock);
    let mut done = 0;
    let mut was_woken = false;
    let mut has_looked = false;
    loop {
        if !how.peek && kernel::current!().signal_pending() && rx.is_at_hole() {
            // The SIGURG handler may read the urgent byte, which this read would skip.
            return interrupted(sk, timeout, done);
        }
        match rx.recv_some(sk, msg, how, done) {
            Ok(ReadStep::Copied(len)) => {
                done += len;
                call.moved();
                was_woken = false;
                if msg.len() > 0 {
                    continue;
                }
                break;
            }
            Ok(ReadStep::Mark(len)) => {
                done += len;
                call.moved();
                break;
            }
            Ok(ReadStep::Eof) => {
                // The end of a reset connection is reported once as an error. For a connection that the peer closed it
                // is the end of the stream, whatever was sent after that.
                if done == 0 && !rx.has_ended_in_order() {
                    sk.take_err()?;
                }
                break;
            }
            Ok(ReadStep::Wait) if done >= target && done > 0 => break,
            // There is no room for more, whatever SO_RCVLOWAT says.
            Ok(ReadStep::Wait) if how.peek && !how.all && rx.is_worth_reading(sk) => break,
            Ok(ReadStep::Wait) => {}
            Err(_) if done > 0 => break,
            // The socket's error is more specific than the state's.
            Err(e) => return sk.take_err().and(Err(e)),
        }
        if sk.has_err() {
            if done > 0 {
                break;
            }
            if !has_looked {
                // What came before the error may have come after the look, and is read first.
                has_looked = true;
                continue;
            }
            return sk.take_err().map(|()| 0);
        }
        if timeout == 0 {
            return if done > 0 { Ok(done) } else { Err(EAGAIN) };
        }
        if was_woken && kernel::current!().signal_pending() {
            // What it was woken for is gone, time and again.
            return interrupted(sk, timeout, done);
        }
        let skip = if how.peek { done } else { 0 };
        let is_at_end = || done > 0 && !how.peek && rx.is_at_mark();
        let is_due = || rx.is_reader_due(skip) || sk.has_err() || is_at_end();
        let waited = rx.while_reading(|| sk.wait_data(timeout, is_due));
        match waited {
            Ok(left) => (timeout, was_woken) = (left, true),
            Err(_) if done > 0 => break,
            Err(end) => return Err(end.errno()),
        }
    }
    Ok(done)
}

/// The result of a call that a signal ends, after `done` bytes, with so many jiffies left to wait.
/// Context: process.
#[cold]
fn interrupted(sk: &Sk, timeout: isize, done: usize) -> Result<usize> {
    match sk.wait_until(timeout, false, || false) {
        _ if done > 0 => Ok(done),
        Ok(_) => Err(EAGAIN),
        Err(end) => Err(end.errno()),
    }
}

/// Copies data of the application into a ring; returns how many bytes, fewer than the chunks have if the memory cannot
/// be read.
/// Context: may sleep.
pub(crate) fn copy_in(msg: &mut Msg<'_>, ring: &Block, chunks: &Chunks) -> usize {
    copy(chunks, |offset, len| msg.copy_from_user(ring, offset, len))
}

/// Copies data from a ring to the application, or skips them if `discard`. Returns how many bytes.
/// Context: may sleep.
///
/// # Errors
///
/// `EFAULT` if nothing could be copied.
pub(crate) fn copy_out(
    msg: &mut Msg<'_>,
    ring: &Block,
    chunks: &Chunks,
    discard: bool,
) -> Result<usize> {
    let copied = copy(chunks, |offset, len| match discard {
        true => msg.skip(len),
        false => msg.copy_to_user(ring, offset, len),
    });
    match copied {
        0 => Err(EFAULT),
        _ => Ok(copied),
    }
}

/// Calls `part` with the offset and length of each chunk, until one is not done whole; returns the sum.
fn copy(chunks: &Chunks, mut part: impl FnMut(usize, usize) -> usize) -> usize {
    let mut copied = 0;
    for chunk in chunks.iter().filter(|chunk| chunk.len > 0) {
        let len = chunk.len as usize;
        let n = part(chunk.offset as usize, len);
        copied += n;
        if n < len {
            break;
        }
    }
    copied
}

/// Copies an urgent byte to the application (MSG_OOB); returns 1, or 0 if there is no room for it.
/// Context: may sleep.
///
/// # Errors
///
/// `EFAULT`.
pub(crate) fn put_urgent(msg: &mut Msg<'_>, byte: u8) -> Result<usize> {
    msg.set_oob();
    if msg.len() == 0 {
        msg.set_truncated();
        return Ok(0);
    }
    msg.copy_bytes_to_user(&[byte])?;
    Ok(1)
}
