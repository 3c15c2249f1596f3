// SPDX-License-Identifier: GPL-2.0

//! What a link needs of an RDMA device, and whether a device has it.

use crate::cause::Cause;

/// Limits of a device, or the least that a link needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RdmaLimits {
    /// Memory ranges of a send or an RDMA write.
    pub send_sge: u32,
    /// Memory ranges of a receive.
    pub recv_sge: u32,
    /// Work requests in one queue of a queue pair.
    pub work_requests: u32,
    /// Entries of a completion queue.
    pub completions: u32,
    /// Completion vectors.
    pub comp_vectors: u32,
    /// Pages of one registration by a work request; 0 if the device has no such registrations.
    pub fast_reg_pages: u32,
}

/// A limit of a device that is lower than what a link needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shortage {
    /// What connections are told.
    pub cause: Cause,
    /// The limit, for the log.
    pub limit: &'static str,
    /// That of the device.
    pub has: u32,
    /// What a link needs.
    pub needs: u32,
}

impl RdmaLimits {
    /// Returns the first limit that is lower than in `needs`.
    pub fn shortage(&self, needs: &Self) -> Option<Shortage> {
        let shortage = |cause, limit, of: fn(&Self) -> u32| {
            let (has, needs) = (of(self), of(needs));
            (has < needs).then_some(Shortage {
                cause,
                limit,
                has,
                needs,
            })
        };
        let sge = Cause::DeviceSge;
        let queue = Cause::DeviceQueue;
        None.or_else(|| shortage(sge, "SGEs to send", |limits| limits.send_sge))
            .or_else(|| shortage(sge, "SGEs to receive", |limits| limits.recv_sge))
            .or_else(|| shortage(queue, "work requests", |limits| limits.work_requests))
            .or_else(|| shortage(queue, "completions", |limits| limits.completions))
            .or_else(|| shortage(queue, "completion vectors", |limits| limits.comp_vectors))
            .or_else(|| {
                let pages = |limits: &Self| limits.fast_reg_pages;
                shortage(Cause::DeviceFastReg, "pages of a fast registration", pages)
            })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NEEDS: RdmaLimits = RdmaLimits {
        send_sge: 2,
        recv_sge: 1,
        work_requests: 6,
        completions: 7,
        comp_vectors: 1,
        fast_reg_pages: 4,
    };

    #[test]
    fn a_device_with_just_what_is_needed_has_enough() {
        assert_eq!(NEEDS.shortage(&NEEDS), None);
    }

    #[test]
    fn each_limit_counts_alone() {
        let low: [(RdmaLimits, Cause, (&str, u32, u32)); 6] = [
            (
                RdmaLimits {
                    send_sge: 1,
                    ..NEEDS
                },
                Cause::DeviceSge,
                ("SGEs to send", 1, 2),
            ),
            (
                RdmaLimits {
                    recv_sge: 0,
                    ..NEEDS
                },
                Cause::DeviceSge,
                ("SGEs to receive", 0, 1),
            ),
            (
                RdmaLimits {
                    work_requests: 5,
                    ..NEEDS
                },
                Cause::DeviceQueue,
                ("work requests", 5, 6),
            ),
            (
                RdmaLimits {
                    completions: 6,
                    ..NEEDS
                },
                Cause::DeviceQueue,
                ("completions", 6, 7),
            ),
            (
                RdmaLimits {
                    comp_vectors: 0,
                    ..NEEDS
                },
                Cause::DeviceQueue,
                ("completion vectors", 0, 1),
            ),
            (
                RdmaLimits {
                    fast_reg_pages: 3,
                    ..NEEDS
                },
                Cause::DeviceFastReg,
                ("pages of a fast registration", 3, 4),
            ),
        ];
        for (limits, cause, (limit, has, needs)) in low {
            let shortage = Shortage {
                cause,
                limit,
                has,
                needs,
            };
            assert_eq!(limits.shortage(&NEEDS), Some(shortage));
        }
    }
}
