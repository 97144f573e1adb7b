//! Where a client may come from.

use std::net::IpAddr;

/// A network: an address and how many of its bits count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Network {
    address: IpAddr,
    bits: u8,
}

impl Network {
    /// `None` when the address has fewer bits.
    pub fn new(address: IpAddr, bits: u8) -> Option<Self> {
        (u32::from(bits) <= width(address)).then_some(Self { address, bits })
    }

    /// Of an address and its mask; `None` for one with a hole, or of the
    /// other family.
    pub fn with_mask(address: IpAddr, mask: IpAddr) -> Option<Self> {
        if address.is_ipv4() != mask.is_ipv4() {
            return None;
        }
        let ones = number(mask).leading_ones();
        let bits = ones.min(width(mask));
        let whole = number(mask) << bits.min(127);
        let is_plain = bits == 128 || whole == 0;
        is_plain.then(|| Self {
            address,
            bits: u8::try_from(bits).unwrap_or(128),
        })
    }

    /// Whether an address is in it.
    pub fn contains(&self, address: IpAddr) -> bool {
        if self.address.is_ipv4() != address.is_ipv4() {
            return false;
        }
        let differing = number(self.address) ^ number(address);
        self.bits == 0 || differing >> (128 - u32::from(self.bits)) == 0
    }

    /// Whether it has nothing but this machine's own addresses.
    pub fn is_loopback(&self) -> bool {
        self.address.is_loopback() && self.bits >= if self.address.is_ipv4() { 8 } else { 128 }
    }
}

/// The addresses of this machine's interfaces, with their networks.
#[derive(Clone, Debug, Default)]
pub struct Interfaces(pub Vec<Network>);

impl Interfaces {
    /// Those that are up now. Nothing where they cannot be listed.
    pub fn here() -> Self {
        let all = if_addrs::get_if_addrs().unwrap_or_default();
        let network = |interface: if_addrs::Interface| match interface.addr {
            if_addrs::IfAddr::V4(v4) => Network::with_mask(v4.ip.into(), v4.netmask.into()),
            if_addrs::IfAddr::V6(v6) => Network::with_mask(v6.ip.into(), v6.netmask.into()),
        };
        Self(all.into_iter().filter_map(network).collect())
    }

    pub(super) fn has(&self, address: IpAddr) -> bool {
        self.0.iter().any(|network| network.address == address)
    }

    pub(super) fn neighbours(&self, address: IpAddr) -> bool {
        self.0.iter().any(|network| network.contains(address))
    }
}

fn width(address: IpAddr) -> u32 {
    if address.is_ipv4() { 32 } else { 128 }
}

/// With its first bit as the number's first.
fn number(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(v4) => u128::from(u32::from(v4)) << 96,
        IpAddr::V6(v6) => u128::from(v6),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ip(text: &str) -> IpAddr {
        text.parse().expect("an address")
    }

    #[test]
    fn a_network_has_the_addresses_with_its_first_bits() {
        for (network, bits, address, expected) in [
            ("10.1.0.0", 16, "10.1.255.1", true),
            ("10.1.0.0", 16, "10.2.0.1", false),
            ("10.1.2.3", 32, "10.1.2.3", true),
            ("10.1.2.3", 32, "10.1.2.2", false),
            ("0.0.0.0", 0, "255.1.1.1", true),
            ("0.0.0.0", 0, "::1", false),
            ("fd00::", 8, "fdff::1", true),
            ("fd00::", 8, "fc00::1", false),
            ("::", 0, "fc00::1", true),
            ("::1", 128, "::1", true),
            ("::1", 128, "::2", false),
        ] {
            let network = Network::new(ip(network), bits).expect("a network");
            assert_eq!(
                network.contains(ip(address)),
                expected,
                "{network:?} {address}"
            );
        }
        assert_eq!(Network::new(ip("1.2.3.4"), 33), None);
        assert_eq!(Network::new(ip("::"), 129), None);
    }

    #[test]
    fn a_mask_counts_its_leading_ones_and_has_no_hole() {
        for (mask, bits) in [
            ("255.255.0.0", Some(16)),
            ("255.255.255.255", Some(32)),
            ("0.0.0.0", Some(0)),
            ("255.0.255.0", None),
            ("ffff::", None),
        ] {
            let network = Network::with_mask(ip("10.1.0.0"), ip(mask));
            assert_eq!(network.map(|network| network.bits), bits, "{mask}");
        }
        for (mask, bits) in [
            ("ffff::", 16),
            ("ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", 128),
        ] {
            let network = Network::with_mask(ip("::1"), ip(mask)).expect("a mask");
            assert_eq!(network.bits, bits);
        }
    }
}
