// SPDX-License-Identifier: GPL-2.0
//! A C peer (`net/smc` of Linux) as the sender of one connection, and what is between it and a [`Stream`].
//!
//! What counts here is what it does when it closes with data unsent (`smc_close_active`): its message says so at
//! once, and it goes on sending whenever our cursor moves, and when its last message is completed; and when it moves to
//! another link.

use std::collections::VecDeque;

use smc_proto::buffer::SizeClass;
use smc_proto::conn::{
    Cdc,
    CdcHold,
    Effects,
    ProducerFlags,
    Recv,
    RxVerdict,
    SentRecord,
    StateFlags,
    Stream, //
};
use smc_proto::cursor::Ring;

use super::rng::Rng;
use super::ReadNext as _;

/// What is on the way to our end, in order.
enum ToUs {
    Write { pos: u64, len: u64 },
    Message(Cdc),
    Answer(u64),
}

/// What is on the way to the C peer, in order.
enum ToThem {
    Message(Cdc, SentRecord),
    Echo(u64),
}

/// The C peer's end.
pub struct CPeer {
    ring: Ring,
    sndbuf: u64,
    /// Stream positions: taken from the application, written, completed, read by us.
    pub taken: u64,
    sent: u64,
    fin: u64,
    acked: u64,
    /// The B flag, which stays as it was until data are written.
    is_blocked: bool,
    seq: u16,
    flags: StateFlags,
    /// What each message that was not completed covers, and the number that its completion notes.
    pending: VecDeque<(u64, u16)>,
    /// The number of its last message that was completed, as it counts them (`tx_cdc_seq_fin`).
    seq_fin: u16,
    /// Messages that arrived, whose completion it has not looked at.
    completed: usize,
    /// We aborted.
    is_refused: bool,
    /// It has aborted. (It would go on sending until it is answered, which an answer at once forestalls.)
    has_aborted: bool,
    /// We have closed.
    has_heard_close: bool,
    /// It is no more.
    pub is_gone: bool,
}

impl CPeer {
    fn unsent(&self) -> u64 {
        self.taken - self.sent
    }

    fn space(&self) -> u64 {
        u64::from(self.ring.size()) - (self.sent - self.acked)
    }
}

/// Our end and the C peer's.
pub struct WithC {
    pub ours: Stream,
    pub peer: CPeer,
    rmbe: Vec<u64>,
    to_us: VecDeque<ToUs>,
    to_them: VecDeque<ToThem>,
    /// The number of the last TEST_LINK.
    echo: u64,
    /// Bytes read here.
    pub read: u64,
    /// Our reader saw the end.
    pub has_ended: bool,
    /// The peer reset the connection.
    pub is_reset: bool,
}

impl WithC {
    /// Our RMBE and the peer's send buffer are of these classes.
    pub fn new(rmbe: SizeClass, sndbuf: SizeClass) -> Self {
        let mut ours = Stream::new(rmbe);
        ours.establish(SizeClass::SMALLEST);
        ours.advertise_late();
        ours.expect_data_after_close();
        Self {
            ours,
            peer: CPeer {
                ring: Ring::new(rmbe),
                sndbuf: sndbuf.bytes().into(),
                taken: 0,
                sent: 0,
                fin: 0,
                acked: 0,
                is_blocked: false,
                seq: 0,
                seq_fin: 0,
                flags: StateFlags::default(),
                pending: VecDeque::new(),
                completed: 0,
                is_refused: false,
                has_aborted: false,
                has_heard_close: false,
                is_gone: false,
            },
            rmbe: vec![u64::MAX; rmbe.bytes() as usize],
            to_us: VecDeque::new(),
            to_them: VecDeque::new(),
            echo: 0,
            read: 0,
            has_ended: false,
            is_reset: false,
        }
    }

    // --- The C peer.

    /// Its application sends; says how much was taken.
    pub fn c_sends(&mut self, len: u64, is_corked: bool) -> u64 {
        let peer = &mut self.peer;
        let len = len.min(peer.sndbuf - (peer.taken - peer.fin));
        peer.taken += len;
        let autocork = !peer.pending.is_empty() && peer.unsent() <= peer.sndbuf / 2;
        if !autocork && !is_corked {
            self.push();
        }
        len
    }

    /// `smc_tx_pending`.
    fn push(&mut self) {
        let peer = &mut self.peer;
        let (to_send, space) = (peer.unsent(), peer.space());
        let is_over = peer.is_refused || peer.has_aborted || peer.is_gone;
        if to_send == 0 || space == 0 || is_over {
            return;
        }
        peer.is_blocked = to_send >= space;
        let (pos, len) = (peer.sent, to_send.min(space));
        peer.sent += len;
        self.to_us.push_back(ToUs::Write { pos, len });
        self.c_says();
    }

    fn c_says(&mut self) {
        let peer = &mut self.peer;
        // `smc_cdc_add_pending_send` comes before the message is counted.
        peer.pending.push_back((peer.sent, peer.seq));
        peer.seq = peer.seq.wrapping_add(1);
        self.to_us.push_back(ToUs::Message(Cdc {
            seq: peer.seq,
            prod: peer.ring.cursor(peer.sent),
            flags: ProducerFlags::default().with(ProducerFlags::WRITE_BLOCKED, peer.is_blocked),
            state: peer.flags,
            ..Cdc::default()
        }));
    }

    /// Its process exits, or closes after its patience.
    pub fn c_closes(&mut self) {
        self.peer.flags.insert(StateFlags::CLOSED);
        self.c_says();
    }

    /// Its application closes and has unread data (`smc_close_final`), or its group ends (`smc_conn_kill`).
    pub fn c_aborts(&mut self) {
        self.peer.flags.insert(StateFlags::ABORTED);
        self.peer.has_aborted = true;
        self.c_says();
    }

    /// Its application shuts down writing.
    pub fn c_is_done(&mut self) {
        self.push();
        self.peer.flags.insert(StateFlags::DONE_WRITING);
        self.c_says();
    }

    /// It looks at a completion.
    pub fn c_completes(&mut self) {
        if self.peer.completed == 0 {
            return;
        }
        self.peer.completed -= 1;
        (self.peer.fin, self.peer.seq_fin) = self.peer.pending.pop_front().expect("posted");
        if self.peer.pending.is_empty() {
            self.push();
        }
    }

    /// Its link fails, and it moves to another one (`smc_switch_cursor`): it repeats what was not completed. What it
    /// sent has arrived.
    pub fn c_moves(&mut self) {
        while !self.to_us.is_empty() {
            self.we_hear();
        }
        let peer = &mut self.peer;
        peer.pending.clear();
        peer.completed = 0;
        peer.fin = peer.fin.max(peer.acked);
        peer.sent = peer.fin;
        peer.pending.push_back((peer.sent, peer.seq));
        self.to_us.push_back(ToUs::Message(Cdc {
            seq: peer.seq_fin,
            flags: ProducerFlags::FAILOVER,
            ..Cdc::default()
        }));
        self.push();
    }

    /// It goes, if we have closed, too; it waits for its completions.
    pub fn c_goes(&mut self) {
        let peer = &mut self.peer;
        let has_closed = peer.has_heard_close && peer.flags.any_close();
        peer.is_gone |= has_closed && peer.pending.is_empty();
    }

    /// The next thing on the way to it arrives.
    pub fn c_hears(&mut self) {
        match self.to_them.pop_front() {
            Some(ToThem::Message(cdc, record)) => {
                let fx = self.ours.on_sent(&record, true);
                self.act(fx);
                self.c_takes(&cdc);
            }
            Some(ToThem::Echo(number)) => {
                // Its work comes after its tasklets.
                while self.peer.completed > 0 {
                    self.c_completes();
                }
                self.to_us.push_back(ToUs::Answer(number));
            }
            None => {}
        }
    }

    fn c_takes(&mut self, cdc: &Cdc) {
        let peer = &mut self.peer;
        if peer.is_gone {
            return;
        }
        let ahead = peer.ring.distance(peer.acked, cdc.cons).expect("inside");
        peer.is_refused |= cdc.state.contains(StateFlags::ABORTED);
        if ahead > 0 {
            peer.acked += ahead as u64;
            assert!(peer.acked <= peer.sent, "more read than written");
            self.push();
        }
        self.peer.has_heard_close |= cdc.state.any_close();
    }

    // --- Our end.

    /// The next thing on the way to us arrives.
    pub fn we_hear(&mut self) {
        match self.to_us.pop_front() {
            Some(ToUs::Write { pos, len }) => {
                assert!(!self.ours.is_finished(), "a write to a free element");
                let size = self.rmbe.len() as u64;
                (pos..pos + len).for_each(|pos| self.rmbe[(pos % size) as usize] = pos);
            }
            Some(ToUs::Message(cdc)) => {
                self.peer.completed += 1;
                let verdict = CdcHold::default().filter(&cdc, &mut self.ours, false);
                assert_eq!(verdict, RxVerdict::Deliver);
                let fx = self.ours.on_cdc(&cdc).expect("an honest peer");
                self.act(fx);
            }
            Some(ToUs::Answer(number)) if number == self.echo => {
                let fx = self.ours.on_silence();
                self.act(fx);
            }
            Some(ToUs::Answer(_)) | None => {}
        }
    }

    fn act(&mut self, fx: Effects) {
        self.is_reset |= fx.reset;
        self.transmit();
    }

    fn transmit(&mut self) {
        while let Some(plan) = self.ours.plan() {
            assert!(plan.is_empty());
            self.to_them
                .push_back(ToThem::Message(plan.cdc, plan.record));
        }
        if self.ours.begin_echo() {
            self.echo += 1;
            self.to_them.push_back(ToThem::Echo(self.echo));
        }
    }

    /// Our application reads at most `len` bytes, and each is the one that was sent.
    pub fn we_read(&mut self, len: u32) -> Recv {
        self.ours.skip_urgent();
        let state = self.ours.recv_state();
        self.has_ended |= state == Recv::Eof;
        if let Recv::Ready(_) = state {
            let chunks = self.ours.peek_chunks(0, len);
            for chunk in chunks {
                for at in chunk.offset..chunk.offset + chunk.len {
                    assert_eq!(self.rmbe[at as usize], self.read);
                    self.read += 1;
                }
            }
            self.ours.consume_next(chunks[0].len + chunks[1].len);
            self.transmit();
        }
        state
    }

    /// Our application closes.
    pub fn we_close(&mut self) {
        self.ours.close(true);
        self.transmit();
    }

    /// Everything that is on the way arrives, and what follows from it.
    pub fn settle(&mut self) {
        while !self.to_us.is_empty() || !self.to_them.is_empty() || self.peer.completed > 0 {
            self.we_hear();
            self.c_completes();
            self.c_hears();
        }
    }

    /// One thing happens that can, but for what applications do.
    pub fn step(&mut self, rng: &mut Rng) {
        match rng.below(4) {
            0 => self.we_hear(),
            1 => self.c_hears(),
            2 => self.c_completes(),
            _ => self.c_goes(),
        }
    }
}
