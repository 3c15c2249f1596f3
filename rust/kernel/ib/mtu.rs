// SPDX-License-Identifier: GPL-2.0

//! The path MTU of a port or a queue pair.

/// Path MTU, by its InfiniBand code.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum IbMtu {
    /// 256 bytes.
    B256 = 1,
    /// 512 bytes.
    B512 = 2,
    /// 1024 bytes.
    B1024 = 3,
    /// 2048 bytes.
    B2048 = 4,
    /// 4096 bytes.
    B4096 = 5,
}

impl IbMtu {
    /// The MTU with an InfiniBand code of 1 to 5.
    pub fn from_code(code: u8) -> Option<Self> {
        match code {
            1 => Some(Self::B256),
            2 => Some(Self::B512),
            3 => Some(Self::B1024),
            4 => Some(Self::B2048),
            5 => Some(Self::B4096),
            _ => None,
        }
    }

    /// Its InfiniBand code.
    pub fn code(self) -> u8 {
        match self {
            Self::B256 => 1,
            Self::B512 => 2,
            Self::B1024 => 3,
            Self::B2048 => 4,
            Self::B4096 => 5,
        }
    }

    /// As [`IbMtu::from_code`], but clamps codes out of range.
    pub(super) fn from_code_clamped(code: u32) -> Self {
        match code {
            0 | 1 => Self::B256,
            2 => Self::B512,
            3 => Self::B1024,
            4 => Self::B2048,
            _ => Self::B4096,
        }
    }
}
