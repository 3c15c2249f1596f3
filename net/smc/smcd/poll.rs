// SPDX-License-Identifier: GPL-2.0

//! State of a connection for poll(2) and ioctls.

use smc_proto::{
    buffer::SizeClass,
    conn::{
        ConnInfo,
        EpollMask,
        IoctlQueues,
        ProducerFlags, //
    },
    cursor::Ring,
    smcd::view::Queues, //
};

use super::{
    pair::SmcdConn,
    pipe::Pipe, //
};

impl SmcdConn {
    /// Returns what poll(2) reports except errors: EPOLL bits. If there is no space to write, the socket is woken once
    /// there is.
    pub(crate) fn poll(&self) -> u32 {
        self.end_gathering();
        let ready = self.readiness();
        if ready.contains(EpollMask::OUT) {
            return ready.bits();
        }
        self.want_space();
        self.readiness().bits()
    }

    pub(super) fn readiness(&self) -> EpollMask {
        // Before the data: those that came before the end are not overlooked.
        let ends = self.ends();
        let pipe = self.rx();
        let mark = pipe.mark();
        ends.readiness(&Queues {
            readable: self.readable(),
            lowat: self.own().lowat(),
            has_urgent: mark.is_some_and(|mark| mark.byte().is_some()),
            is_full: pipe.is_full(),
            is_writeable: self.has_space(),
        })
    }

    /// Returns the values of the socket ioctls.
    pub(crate) fn queues(&self) -> IoctlQueues {
        let pipe = self.rx();
        let (at, end) = (pipe.consumed(), pipe.produced());
        let mark = pipe.mark();
        let inq = mark.map_or(end.saturating_sub(at), |mark| {
            mark.inq(at, end, self.own().is_urg_inline())
        });
        let tx = self.tx();
        let held = tx.written().saturating_sub(tx.produced());
        let held = u32::try_from(held).unwrap_or(u32::MAX);
        let unsent = self.unsent().max(held);
        IoctlQueues {
            inq: u32::try_from(inq).unwrap_or(u32::MAX),
            outq: unsent,
            outq_unsent: unsent,
            at_mark: mark.is_some_and(|mark| mark.is_at(at)),
        }
    }

    /// Returns the state of both directions, for diagnosis, as if each were one ring.
    #[cold]
    pub(crate) fn rings(&self) -> ConnInfo {
        let (tx, rx) = (self.tx(), self.rx());
        let class = |limit| SizeClass::for_bytes(limit);
        let (tx_class, rx_class) = (class(self.tx_limit()), class(self.rx_limit()));
        let (tx_ring, rx_ring) = (Ring::new(tx_class), Ring::new(rx_class));
        let producer = |pipe: &Pipe| {
            let mark = pipe.mark();
            let has_urgent = mark.is_some_and(|mark| mark.byte().is_some());
            ProducerFlags::default()
                .with(ProducerFlags::WRITE_BLOCKED, pipe.is_full())
                .with(ProducerFlags::URGENT_PRESENT, has_urgent)
        };
        let (peer, own) = self.ends().state_flags();
        ConnInfo {
            rmbe: rx_class.bytes(),
            peer_rmbe: tx_class.bytes(),
            sndbuf: tx_class.bytes(),
            rx_prod: rx_ring.cursor(rx.produced()),
            rx_cons: tx_ring.cursor(tx.consumed()),
            tx_prod: tx_ring.cursor(tx.produced()),
            tx_cons: rx_ring.cursor(rx.consumed()),
            tx_prep: tx_ring.cursor(tx.produced()),
            tx_sent: tx_ring.cursor(tx.produced()),
            tx_fin: tx_ring.cursor(tx.produced()),
            rx_flags: (producer(rx), peer),
            tx_flags: (producer(tx), own),
        }
    }

    /// Returns the number of bytes to read, for TCP_INQ; 1 at the end of the stream, so that the caller reads that.
    pub(crate) fn inq(&self) -> i32 {
        match self.readable() {
            0 => self.ends().is_read_shut().into(),
            bytes => i32::try_from(bytes).unwrap_or(i32::MAX),
        }
    }
}
