//! Addresses that are public by their number, but this machine's own or on its link.
//!
//! A laptop with IPv6 has a public address, and its local services listen there too.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Whether the address is one of this machine's, or of its IPv6 links'. (An IPv4 link may be a provider's whole
/// network, with strangers on it.) Read anew each time: machines move.
pub(super) fn is_own(address: IpAddr) -> bool {
    let mut list: *mut libc::ifaddrs = std::ptr::null_mut();
    // SAFETY: the pointer is to a pointer the call fills.
    if unsafe { libc::getifaddrs(&raw mut list) } != 0 {
        return true; // Nobody knows: as if it were.
    }
    let mut found = false;
    let mut next = list;
    while !next.is_null() {
        // SAFETY: an element of the list, which is freed only below.
        let entry = unsafe { &*next };
        // SAFETY: as above; its addresses are null or socket addresses of the family they say.
        let (own, mask) = unsafe { (read(entry.ifa_addr), read(entry.ifa_netmask)) };
        found |= match (own, mask, address) {
            (Some(IpAddr::V6(own)), Some(IpAddr::V6(mask)), IpAddr::V6(address)) => {
                u128::from(mask) != 0 && u128::from(own) & u128::from(mask) == u128::from(address) & u128::from(mask)
            }
            (own, _, address) => own == Some(address),
        };
        next = entry.ifa_next;
    }
    // SAFETY: the list came from getifaddrs, and nothing refers to it any more.
    unsafe { libc::freeifaddrs(list) };
    found
}

/// # Safety
/// The pointer is null, or to a socket address as long as its family demands.
unsafe fn read(address: *const libc::sockaddr) -> Option<IpAddr> {
    if address.is_null() {
        return None;
    }
    // SAFETY: by this function's own condition; read unaligned, since a cast promises no more.
    unsafe {
        match i32::from((*address).sa_family) {
            libc::AF_INET => {
                let address = address.cast::<libc::sockaddr_in>().read_unaligned();
                Some(Ipv4Addr::from(u32::from_be(address.sin_addr.s_addr)).into())
            }
            libc::AF_INET6 => {
                let address = address.cast::<libc::sockaddr_in6>().read_unaligned();
                Some(Ipv6Addr::from(address.sin6_addr.s6_addr).into())
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_loopback_is_own_and_a_stranger_is_not() {
        assert!(is_own(Ipv4Addr::LOCALHOST.into()));
        assert!(!is_own("1.1.1.1".parse().unwrap()));
    }
}
