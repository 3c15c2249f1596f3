// SPDX-License-Identifier: GPL-2.0

//! The network device of an IP address.

use std::io;
use std::net::IpAddr;

use nix::ifaddrs::getifaddrs;
use nix::sys::socket::SockaddrStorage;

/// Returns the name of the network device of the caller's namespace that has this address.
pub fn device_of(ip: IpAddr) -> io::Result<Option<String>> {
    let has = |address: &SockaddrStorage| match ip {
        IpAddr::V4(ip) => address.as_sockaddr_in().is_some_and(|own| own.ip() == ip),
        IpAddr::V6(ip) => address.as_sockaddr_in6().is_some_and(|own| own.ip() == ip),
    };
    let found = getifaddrs()?.find(|entry| entry.address.as_ref().is_some_and(has));
    // For an address with a label, libc returns that instead of the device: its name, a colon and
    // more.
    Ok(found.map(|entry| entry.interface_name.split(':').take(1).collect()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_loopback_device_has_the_loopback_address() {
        let found = device_of("127.0.0.1".parse().unwrap());
        // A sandbox may not permit the call.
        if let Ok(found) = found {
            assert_eq!(found.as_deref(), Some("lo"));
        }
    }
}
