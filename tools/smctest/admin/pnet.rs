// SPDX-License-Identifier: GPL-2.0

//! Valid and invalid netlink requests about physical networks (PNETIDs).

use anyhow::Context as _;
use anyhow::Result;
use smc_tools::genl::header;
use smc_tools::genl::Family;
use smc_tools::genl::PNET_FAMILY;
use smc_tools::netlink::put_attribute;
use smc_tools::netlink::NLM_F_ACK;
use smc_tools::netlink::NLM_F_DUMP;
use smc_uapi::SMC_PNETID_ADD as ADD;
use smc_uapi::SMC_PNETID_DEL as DEL;
use smc_uapi::SMC_PNETID_ETHNAME as NETDEV;
use smc_uapi::SMC_PNETID_FLUSH as FLUSH;
use smc_uapi::SMC_PNETID_GET as GET;
use smc_uapi::SMC_PNETID_IBNAME as DEVICE;
use smc_uapi::SMC_PNETID_IBPORT as PORT;
use smc_uapi::SMC_PNETID_NAME as NAME;

use super::show;

/// A request: title, command, attributes.
type Case<'a> = (&'a str, u8, &'a [(u16, &'a [u8])]);

/// The requests, in this order. After each that may change the table, the table is printed.
const CASES: &[Case<'_>] = &[
    ("no name", ADD, &[]),
    ("only a name", ADD, &[(NAME, b"NET1\0")]),
    ("a netdev", ADD, &[(NAME, b"NET1\0"), (NETDEV, b"eth7\0")]),
    ("it again", ADD, &[(NAME, b"NET1\0"), (NETDEV, b"eth7\0")]),
    (
        "it elsewhere",
        ADD,
        &[(NAME, b"NET2\0"), (NETDEV, b"eth7\0")],
    ),
    (
        "a netdev that is there",
        ADD,
        &[(NAME, b"NET1\0"), (NETDEV, b"lo\0")],
    ),
    (
        "small letters",
        ADD,
        &[(NAME, b"net3\0"), (NETDEV, b"eth3\0")],
    ),
    (
        "white space",
        ADD,
        &[(NAME, b" \tnet4 \n\0"), (NETDEV, b"eth4\0")],
    ),
    (
        "white space around a netdev",
        ADD,
        &[(NAME, b"NET4\0"), (NETDEV, b" eth4 \0")],
    ),
    ("an empty name", ADD, &[(NAME, b"\0"), (NETDEV, b"eth5\0")]),
    (
        "a blank name",
        ADD,
        &[(NAME, b"   \0"), (NETDEV, b"eth5\0")],
    ),
    ("a hyphen", ADD, &[(NAME, b"NET-5\0"), (NETDEV, b"eth5\0")]),
    (
        "a blank within",
        ADD,
        &[(NAME, b"NET 5\0"), (NETDEV, b"eth5\0")],
    ),
    (
        "16 characters",
        ADD,
        &[(NAME, b"ABCDEFGHIJKLMNOP\0"), (NETDEV, b"eth16\0")],
    ),
    (
        "17 characters",
        ADD,
        &[(NAME, b"ABCDEFGHIJKLMNOPQ\0"), (NETDEV, b"eth17\0")],
    ),
    ("no NUL", ADD, &[(NAME, b"NET6"), (NETDEV, b"eth6\0")]),
    (
        "an empty attribute",
        ADD,
        &[(NAME, b""), (NETDEV, b"eth6\0")],
    ),
    (
        "an empty netdev",
        ADD,
        &[(NAME, b"NET6\0"), (NETDEV, b"\0")],
    ),
    (
        "a netdev of 15 characters",
        ADD,
        &[(NAME, b"NET6\0"), (NETDEV, b"abcdefghijklmno\0")],
    ),
    (
        "a netdev of 16 characters",
        ADD,
        &[(NAME, b"NET6\0"), (NETDEV, b"abcdefghijklmnop\0")],
    ),
    (
        "an RDMA device",
        ADD,
        &[(NAME, b"NET1\0"), (DEVICE, b"mlx5_0\0")],
    ),
    ("it again", ADD, &[(NAME, b"NET1\0"), (DEVICE, b"mlx5_0\0")]),
    (
        "blanks around a device",
        ADD,
        &[(NAME, b"NET1\0"), (DEVICE, b" mlx5_1 \0"), (PORT, b"\x02")],
    ),
    (
        "port 0",
        ADD,
        &[(NAME, b"NET1\0"), (DEVICE, b"mlx5_2\0"), (PORT, b"\0")],
    ),
    (
        "port 3",
        ADD,
        &[(NAME, b"NET1\0"), (DEVICE, b"mlx5_2\0"), (PORT, b"\x03")],
    ),
    (
        "a netdev, and port 3",
        ADD,
        &[
            (NAME, b"NET1\0"),
            (NETDEV, b"eth8\0"),
            (DEVICE, b"mlx5_2\0"),
            (PORT, b"\x03"),
        ],
    ),
    (
        "a long port",
        ADD,
        &[
            (NAME, b"NET1\0"),
            (DEVICE, b"mlx5_3\0"),
            (PORT, b"\x01\0\0\0"),
        ],
    ),
    (
        "an empty port",
        ADD,
        &[(NAME, b"NET1\0"), (DEVICE, b"mlx5_4\0"), (PORT, b"")],
    ),
    (
        "both",
        ADD,
        &[
            (NAME, b"NET7\0"),
            (NETDEV, b"eth9\0"),
            (DEVICE, b"mlx5_5\0"),
        ],
    ),
    (
        "both, one of them again",
        ADD,
        &[
            (NAME, b"NET7\0"),
            (NETDEV, b"eth9\0"),
            (DEVICE, b"mlx5_6\0"),
        ],
    ),
    (
        "a device that is there",
        ADD,
        &[(NAME, b"NET7\0"), (DEVICE, b"rxe_a\0")],
    ),
    ("it again", ADD, &[(NAME, b"NET8\0"), (DEVICE, b"rxe_a\0")]),
    (
        "an unknown attribute",
        ADD,
        &[(NAME, b"NET8\0"), (NETDEV, b"eth10\0"), (9, b"x")],
    ),
    ("no name", GET, &[]),
    ("a name", GET, &[(NAME, b"NET1\0")]),
    ("a name and more", GET, &[(NAME, b"NET1 x\0")]),
    ("a blank first", GET, &[(NAME, b" NET1\0")]),
    ("small letters", GET, &[(NAME, b"net1\0")]),
    ("an unknown name", GET, &[(NAME, b"NONE\0")]),
    ("an empty name", GET, &[(NAME, b"\0")]),
    ("16 characters", GET, &[(NAME, b"ABCDEFGHIJKLMNOP\0")]),
    ("no name", DEL, &[]),
    ("small letters", DEL, &[(NAME, b"net1\0")]),
    ("an empty name", DEL, &[(NAME, b"\0")]),
    ("a name", DEL, &[(NAME, b"NET1\0")]),
    ("it again", DEL, &[(NAME, b"NET1\0")]),
    ("a device", DEL, &[(NAME, b"NET7\0")]),
    ("all", FLUSH, &[(NAME, b"NET2\0")]),
    ("all again", FLUSH, &[]),
    (
        "the device, now free",
        ADD,
        &[(NAME, b"NET9\0"), (DEVICE, b"rxe_a\0")],
    ),
    ("all", FLUSH, &[]),
];

pub(super) fn run() -> Result<()> {
    let mut family = open()?;
    for (name, command, attributes) in CASES {
        let mut payload = header(*command);
        for (attribute, value) in *attributes {
            put_attribute(&mut payload, *attribute, value);
        }
        let title = format!("command {command}, {name}");
        match *command {
            GET => show::answer(&title, &[], family.ask(0, &payload)),
            _ => {
                show::answer(&title, &[], family.ask(NLM_F_ACK, &payload));
                show::answer("  table", &[], family.dump(GET));
            }
        }
    }
    for command in [0, ADD, DEL, FLUSH, FLUSH + 1] {
        let answer = family.ask(NLM_F_DUMP, &header(command));
        show::answer(&format!("list {command}"), &[], answer);
    }
    let mut reserved = header(GET);
    reserved[2] = 1;
    show::answer(
        "reserved header field",
        &[],
        family.ask(NLM_F_DUMP, &reserved),
    );
    Ok(())
}

fn open() -> Result<Family> {
    Family::open(PNET_FAMILY).context("no SMC module")
}

/// Adds `count` network devices that do not exist, half of them to each of two physical networks.
pub(super) fn fill(count: u32) -> Result<()> {
    let mut family = open()?;
    for number in 0..count {
        let mut attributes = Vec::new();
        let name = [&b"MANY\0"[..], b"SOME\0"][usize::from(number % 2 == 0)];
        put_attribute(&mut attributes, NAME, name);
        put_attribute(
            &mut attributes,
            NETDEV,
            format!("many{number}\0").as_bytes(),
        );
        family.call(ADD, &attributes)?;
    }
    Ok(())
}

/// Removes half of the entries that [`fill`] added.
pub(super) fn thin() -> Result<()> {
    let mut attributes = Vec::new();
    put_attribute(&mut attributes, NAME, b"SOME\0");
    open()?.call(DEL, &attributes)?;
    Ok(())
}
