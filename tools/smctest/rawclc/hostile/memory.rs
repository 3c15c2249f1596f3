// SPDX-License-Identifier: GPL-2.0

//! The RMB of a peer in user space: what the kernel may write to, and what it has written.

use crate::rawclc::packet::Reth;

/// One RMB of one element. The kernel has to fill it in order, and not beyond what it was told to have been read.
pub(super) struct Memory {
    pub(super) rkey: u32,
    pub(super) addr: u64,
    bytes: Vec<u8>,
    /// Stream position up to which the kernel has written.
    pub(super) written: u64,
    /// The highest position of which the kernel was told that everything before it was read.
    pub(super) read: u64,
    /// Whether the kernel may repeat what it does not know to have arrived: its link has failed.
    pub(super) may_repeat: bool,
    /// The kernel was told of an RMBE that there is not: what it writes is not looked at.
    pub(super) is_anywhere: bool,
    /// What the kernel did that no peer may do.
    pub(super) faults: Vec<String>,
}

impl Memory {
    pub(super) fn new(rkey: u32, addr: u64, size: u32) -> Self {
        Self {
            rkey,
            addr,
            // CAST: `usize` has 64 bits.
            bytes: vec![0; size as usize],
            written: 0,
            read: 0,
            may_repeat: false,
            is_anywhere: false,
            faults: Vec::new(),
        }
    }

    /// Returns it with the key and the address that it has on another link, by which the kernel may repeat what it does
    /// not know to have arrived.
    pub(super) fn on_link(self, rkey: u32, addr: u64) -> Self {
        Self {
            rkey,
            addr,
            may_repeat: true,
            ..self
        }
    }

    pub(super) fn size(&self) -> u32 {
        // CAST: made from a `u32`.
        self.bytes.len() as u32
    }

    pub(super) fn fault(&mut self, what: String) {
        // The first ones tell enough.
        if self.faults.len() < 4 {
            self.faults.push(what);
        }
    }

    /// Stores a packet of an RDMA WRITE; returns what is left of the write.
    pub(super) fn write(&mut self, reth: Reth, data: &[u8]) -> Option<Reth> {
        let len = u32::try_from(data.len()).ok()?.min(reth.len);
        match self.store(reth, data.get(..len as usize)?) {
            Err(what) if !self.is_anywhere => self.fault(what),
            Err(_) | Ok(()) => {}
        }
        (len < reth.len).then_some(Reth {
            addr: reth.addr + u64::from(len),
            len: reth.len - len,
            ..reth
        })
    }

    fn store(&mut self, reth: Reth, data: &[u8]) -> Result<(), String> {
        let at = reth.addr.wrapping_sub(self.addr);
        let size = u64::from(self.size());
        let len = data.len() as u64;
        if reth.rkey != self.rkey || at >= size || len > size - at {
            return Err(format!("it wrote {len} bytes outside the RMB: {reth:x?}"));
        }
        let due = self.written % size;
        // How many bytes before the next one it begins: where that is due, too, if a full ring may be repeated.
        let is_full = self.written == self.read + size;
        let back = match (due + size - at) % size {
            0 if is_full && self.may_repeat => size,
            back => back,
        };
        if back > 0 && !(self.may_repeat && back <= self.written) {
            return Err(format!("it wrote at {at} where {due} is next"));
        }
        let from = self.written - back;
        if from + len > self.read + size {
            let read = self.read;
            return Err(format!(
                "it wrote {len} bytes at {from} while {read} were read of {size}"
            ));
        }
        // CAST: within the buffer.
        let place = &mut self.bytes[at as usize..][..data.len()];
        let known = back.min(len) as usize;
        if place[..known] != data[..known] {
            return Err(format!("it repeated other bytes at {from}"));
        }
        place.copy_from_slice(data);
        self.written = self.written.max(from + len);
        Ok(())
    }

    /// Returns the bytes of the stream from `from` up to `to`, at most a ring.
    pub(super) fn stream(&self, from: u64, to: u64) -> Vec<u8> {
        let size = u64::from(self.size());
        // CAST: an index into the buffer.
        (from..to)
            .map(|at| self.bytes[(at % size) as usize])
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reth(addr: u64, len: u32) -> Reth {
        Reth { addr, rkey: 7, len }
    }

    #[test]
    fn a_write_of_several_packets_goes_on_behind_the_last_one() {
        let mut memory = Memory::new(7, 1000, 16);
        let rest = memory.write(reth(1000, 12), &[1; 8]).unwrap();
        assert_eq!(memory.write(rest, &[2; 8]), None);
        memory.read = 12;
        assert_eq!(memory.write(reth(1012, 4), &[3; 4]), None);
        assert_eq!(memory.write(reth(1000, 1), &[4]), None);
        assert_eq!(memory.stream(6, 17), [1, 1, 2, 2, 2, 2, 3, 3, 3, 3, 4]);
        assert!(memory.faults.is_empty(), "{:?}", memory.faults);
    }

    #[test]
    fn what_is_repeated_has_to_be_the_same() {
        let mut memory = Memory::new(7, 1000, 16);
        memory.write(reth(1000, 8), &[1; 8]);
        memory.may_repeat = true;
        memory.write(reth(1004, 6), &[1, 1, 1, 1, 2, 2]);
        assert_eq!(memory.written, 10);
        memory.write(reth(1000, 4), &[1; 4]);
        assert_eq!(memory.written, 10);
        assert!(memory.faults.is_empty(), "{:?}", memory.faults);
        memory.write(reth(1006, 2), &[1, 3]);
        assert_eq!(memory.faults.len(), 1, "another byte");
        memory.write(reth(1011, 2), &[0; 2]);
        assert_eq!(memory.faults.len(), 2, "a gap");
    }

    #[test]
    fn a_full_ring_may_be_repeated_from_its_beginning() {
        let mut memory = Memory::new(7, 1000, 16);
        memory.write(reth(1000, 16), &[1; 16]);
        memory.may_repeat = true;
        memory.write(reth(1000, 16), &[1; 16]);
        assert_eq!(memory.written, 16);
        assert!(memory.faults.is_empty(), "{:?}", memory.faults);
        memory.write(reth(1000, 1), &[2]);
        assert_eq!(memory.faults.len(), 1, "another byte");
    }

    #[test]
    fn what_the_kernel_may_not_write_is_a_fault() {
        for (write, len) in [
            (reth(999, 1), 1),
            (reth(1001, 1), 1),
            (reth(1000, 17), 17),
            (
                Reth {
                    rkey: 8,
                    ..reth(1000, 1)
                },
                1,
            ),
        ] {
            let mut memory = Memory::new(7, 1000, 16);
            memory.write(write, &vec![0; len]);
            assert_eq!(memory.faults.len(), 1, "{write:?}");
        }
        let mut memory = Memory::new(7, 1000, 16);
        memory.write(reth(1000, 16), &[0; 16]);
        memory.write(reth(1000, 1), &[0]);
        assert_eq!(memory.faults.len(), 1, "over what was not read");
    }
}
