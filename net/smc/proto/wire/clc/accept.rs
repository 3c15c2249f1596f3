// SPDX-License-Identifier: GPL-2.0

//! CLC (connection layer control) ACCEPT and CONFIRM: each side's end of the first link, and its
//! RMB element.
//!
//! RFC 7609 appendices A.2.3 and A.2.4. The two messages differ only in their type, and in a list of GIDs (global
//! identifiers of RDMA ports) that a version 2 CONFIRM adds on first contact. QP is a queue pair, RMB a remote memory
//! buffer, RMBE its element, EID an enterprise id.

use crate::buffer::SizeClass;
use crate::error::Malformed;
use crate::id::{
    AlertToken,
    Eid,
    Gid,
    Mac,
    Mtu,
    PeerId,
    Psn,
    QpNum,
    RemoteAddr,
    Rkey,
    RmbeIndex, //
};
use crate::wire::{
    List,
    NoSpace,
    Reader,
    Version,
    Writer, //
};

use super::extension::Form;
use super::{
    begin,
    open,
    ClcType,
    FirstContactExt,
    Header,
    FIRST_CONTACT,
    HEADER_LEN,
    SMCD,
    SMCR,
    TRAILER_LEN, //
};

mod raw;

/// The server's choice, and its end of the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Accept {
    /// The sender's end, in the technology that the server chose.
    pub endpoint: Endpoint,
    /// The version, and its specific fields.
    pub mode: Mode,
}

/// The client's agreement, and its end of the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Confirm<'a> {
    /// The sender's end.
    pub endpoint: Endpoint,
    /// The version, and its specific fields.
    pub mode: Mode,
    /// GIDs at which the client can add links: that of the first link, then alternatives. Only in version 2 SMC-R
    /// messages of a first contact; otherwise [`Confirm::emit`] omits them.
    pub gids: List<'a, Gid, 255>,
}

/// One side's end of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Endpoint {
    /// Over RDMA.
    SmcR(SmcR),
    /// Over shared memory of one host. Not supported; parsed to be declined with its reason.
    SmcD(SmcD),
}

/// One side's end of a link, and of a connection on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SmcR {
    /// The sender.
    pub peer_id: PeerId,
    /// GID of the link used: a RoCE v1 GID in version 1, a RoCE v2 GID in version 2.
    pub gid: Gid,
    /// Ethernet address of the link's port.
    pub mac: Mac,
    /// Queue pair of the link.
    pub qp_num: QpNum,
    /// Key of the RMB on that link.
    pub rkey: Rkey,
    /// The connection's element in the RMB.
    pub rmbe_index: RmbeIndex,
    /// Token to put into every CDC message for this connection.
    pub token: AlertToken,
    /// Size of the element.
    pub rmbe_size: SizeClass,
    /// Path MTU that the sender supports.
    pub mtu: Mtu,
    /// Address of the start of the RMB, relative to the key.
    pub rmb_addr: RemoteAddr,
    /// First packet sequence number that the sender's queue pair will use.
    pub psn: Psn,
}

/// One side's end of an SMC-D connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SmcD {
    /// GID of the device.
    pub gid: u64,
    /// Token of the memory buffer.
    pub token: u64,
    /// Element of the buffer.
    pub index: u8,
    /// Size of the element.
    pub size: SizeClass,
    /// Link id, for diagnosis.
    pub link_id: u32,
    /// Version 2: channel of the device; 0 in version 1.
    pub chid: u16,
    /// Version 2: the rest of an emulated device's GID; 0 in version 1.
    pub gid_ext: u64,
}

/// The version in use, and the fields that only that version has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Version 1.
    V1 {
        /// A new link group is created. Ignored in a CONFIRM.
        first_contact: bool,
    },
    /// Version 2.
    V2 {
        /// The common enterprise id; [`Eid::NONE`] if none is needed.
        eid: Eid,
        /// The first contact extension, if a new link group is created. `None` if one is reused.
        first_contact: Option<FirstContactExt>,
    },
}

impl Mode {
    /// Returns the version.
    pub const fn version(&self) -> Version {
        match self {
            Self::V1 { .. } => Version::V1,
            Self::V2 { .. } => Version::V2,
        }
    }

    /// Returns true if a new link group is created.
    pub const fn is_first_contact(&self) -> bool {
        match self {
            Self::V1 { first_contact } => *first_contact,
            Self::V2 { first_contact, .. } => first_contact.is_some(),
        }
    }
}

impl Accept {
    /// Parses a whole message, or the first [`MAX_LEN`](super::MAX_LEN) bytes of a longer one.
    ///
    /// # Errors
    ///
    /// [`Malformed`]; [`Malformed::RmbeIndex`] and [`Malformed::Mtu`] are answered with a DECLINE.
    pub fn parse(bytes: &[u8]) -> Result<Self, Malformed> {
        let (header, mut reader) = open(bytes, ClcType::Accept)?;
        let (endpoint, mode) = read(&header, &mut reader)?;
        Ok(Self { endpoint, mode })
    }

    /// Writes the message into `buf` and returns its bytes, at most 160.
    ///
    /// # Errors
    ///
    /// [`NoSpace`] if they do not fit.
    pub fn emit<'b>(&self, buf: &'b mut [u8]) -> Result<&'b [u8], NoSpace> {
        write(buf, ClcType::Accept, &self.endpoint, &self.mode, None)
    }
}

impl<'a> Confirm<'a> {
    /// Parses a whole message, or the first [`MAX_LEN`](super::MAX_LEN) bytes of a longer one.
    ///
    /// # Errors
    ///
    /// [`Malformed`]; [`Malformed::RmbeIndex`] and [`Malformed::Mtu`] are answered with a DECLINE.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, Malformed> {
        let (header, mut reader) = open(bytes, ClcType::Confirm)?;
        let (endpoint, mode) = read(&header, &mut reader)?;
        let mut gids = List::EMPTY;
        if has_gids(&endpoint, &mode) {
            let head: &raw::GidList = reader.take()?;
            gids = reader.list(usize::from(head.count))?;
        }
        Ok(Self {
            endpoint,
            mode,
            gids,
        })
    }

    /// Writes the message into `buf` and returns its bytes: 164 and 16 per GID on a first contact of
    /// version 2, else at most 108.
    ///
    /// # Errors
    ///
    /// [`NoSpace`] if they do not fit.
    pub fn emit<'b>(&self, buf: &'b mut [u8]) -> Result<&'b [u8], NoSpace> {
        let gids = has_gids(&self.endpoint, &self.mode).then_some(self.gids);
        write(buf, ClcType::Confirm, &self.endpoint, &self.mode, gids)
    }
}

/// Returns true if a CONFIRM has the list of GIDs.
const fn has_gids(endpoint: &Endpoint, mode: &Mode) -> bool {
    matches!(endpoint, Endpoint::SmcR(_))
        && matches!(
            mode,
            Mode::V2 {
                first_contact: Some(_),
                ..
            }
        )
}

fn read(header: &Header, reader: &mut Reader<'_>) -> Result<(Endpoint, Mode), Malformed> {
    match header.type_v1() {
        SMCR_TYPE => read_smcr(header, reader),
        SMCD_TYPE => read_smcd(header, reader),
        _ => Err(Malformed::Technology),
    }
}

fn read_smcr(header: &Header, reader: &mut Reader<'_>) -> Result<(Endpoint, Mode), Malformed> {
    let base: &raw::SmcR = reader.take()?;
    let first_contact = header.types & FIRST_CONTACT != 0;
    let mode = match header.version {
        Version::V1 => {
            reader.finish()?;
            Mode::V1 { first_contact }
        }
        Version::V2 => {
            let v2: &raw::SmcRV2 = reader.take()?;
            Mode::V2 {
                eid: v2.eid,
                first_contact: read_first_contact(first_contact, reader, Form::Full)?,
            }
        }
    };
    Ok((Endpoint::SmcR(base.parse()?), mode))
}

fn read_smcd(header: &Header, reader: &mut Reader<'_>) -> Result<(Endpoint, Mode), Malformed> {
    let base: &raw::SmcD = reader.take()?;
    let first_contact = header.types & FIRST_CONTACT != 0;
    match header.version {
        Version::V1 => {
            reader.skip(raw::SMCD_V1_RESERVED)?;
            reader.finish()?;
            Ok((
                Endpoint::SmcD(base.parse(0, 0)?),
                Mode::V1 { first_contact },
            ))
        }
        Version::V2 => {
            let v2: &raw::SmcDV2 = reader.take()?;
            let mode = Mode::V2 {
                eid: v2.eid,
                first_contact: read_first_contact(first_contact, reader, Form::ByRelease)?,
            };
            let smcd = base.parse(v2.chid.get(), v2.gid_ext.get())?;
            Ok((Endpoint::SmcD(smcd), mode))
        }
    }
}

fn read_first_contact(
    is_there: bool,
    reader: &mut Reader<'_>,
    form: Form,
) -> Result<Option<FirstContactExt>, Malformed> {
    // Additions of later releases are unknown and skipped, as in the C module.
    if !is_there {
        return Ok(None);
    }
    FirstContactExt::read(reader, form).map(Some)
}

fn write<'b>(
    buf: &'b mut [u8],
    message_type: ClcType,
    endpoint: &Endpoint,
    mode: &Mode,
    gids: Option<List<'_, Gid, 255>>,
) -> Result<&'b [u8], NoSpace> {
    let (technology, eye_catcher, form) = match endpoint {
        Endpoint::SmcR(_) => (SMCR_TYPE, SMCR, Form::Full),
        Endpoint::SmcD(_) => (SMCD_TYPE, SMCD, Form::ByRelease),
    };
    let types = match mode.is_first_contact() {
        true => technology | FIRST_CONTACT,
        false => technology,
    };
    let len = message_len(endpoint, mode, form, gids);
    let mut writer = begin(buf, message_type, mode.version(), types, eye_catcher, len)?;
    write_endpoint(&mut writer, endpoint, mode)?;
    if let Mode::V2 {
        first_contact: Some(first_contact),
        ..
    } = mode
    {
        first_contact.write(&mut writer, form)?;
    }
    if let Some(gids) = gids {
        writer.put(&raw::GidList {
            count: gids.count(),
            reserved: [0; 3],
        })?;
        writer.put(gids.as_slice())?;
    }
    writer.put(&eye_catcher)?;
    writer.finish()
}

fn write_endpoint(
    writer: &mut Writer<'_>,
    endpoint: &Endpoint,
    mode: &Mode,
) -> Result<(), NoSpace> {
    match (endpoint, mode) {
        (Endpoint::SmcR(end), Mode::V1 { .. }) => writer.put(&raw::SmcR::new(end)),
        (Endpoint::SmcR(end), Mode::V2 { eid, .. }) => {
            writer.put(&raw::SmcR::new(end))?;
            writer.put(&raw::SmcRV2::new(*eid))
        }
        (Endpoint::SmcD(end), Mode::V1 { .. }) => {
            writer.put(&raw::SmcD::new(end))?;
            writer.put(&[0u8; raw::SMCD_V1_RESERVED])
        }
        (Endpoint::SmcD(end), Mode::V2 { eid, .. }) => {
            writer.put(&raw::SmcD::new(end))?;
            writer.put(&raw::SmcDV2::new(end, *eid))
        }
    }
}

/// Returns the length of the whole message in bytes.
fn message_len(
    endpoint: &Endpoint,
    mode: &Mode,
    form: Form,
    gids: Option<List<'_, Gid, 255>>,
) -> usize {
    let body = match (endpoint, mode.version()) {
        (Endpoint::SmcR(_), Version::V1) => size_of::<raw::SmcR>(),
        (Endpoint::SmcR(_), Version::V2) => raw::SMCR_V2_LEN,
        (Endpoint::SmcD(_), Version::V1) => raw::SMCD_V1_LEN,
        (Endpoint::SmcD(_), Version::V2) => raw::SMCD_V2_LEN,
    };
    let extension = match mode {
        Mode::V2 {
            first_contact: Some(first_contact),
            ..
        } => first_contact.len(form),
        Mode::V1 { .. } | Mode::V2 { .. } => 0,
    };
    let list = gids.map_or(0, |gids| {
        size_of_val(gids.as_slice()).saturating_add(size_of::<raw::GidList>())
    });
    // OVERFLOW: each of the four is below 5000.
    [HEADER_LEN, body, extension, list, TRAILER_LEN]
        .into_iter()
        .fold(0, usize::saturating_add)
}

const SMCR_TYPE: u8 = 0;
const SMCD_TYPE: u8 = 1;
