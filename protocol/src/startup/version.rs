//! Protocol versions.

use std::fmt;

/// A version: the major in the upper 16 bits on the wire, the minor in the lower.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ProtocolVersion {
    /// Versions with different majors do not understand each other.
    pub major: u16,
    /// Versions with the same major can settle for the lower minor.
    pub minor: u16,
}

impl ProtocolVersion {
    /// 3.0, which everybody speaks.
    pub const V3_0: Self = Self { major: 3, minor: 0 };

    /// 3.2, with long cancel keys; the newest that this crate speaks.
    pub const V3_2: Self = Self { major: 3, minor: 2 };

    /// The version that a number on the wire means.
    pub const fn from_u32(version: u32) -> Self {
        let [a, b, c, d] = version.to_be_bytes();
        Self {
            major: u16::from_be_bytes([a, b]),
            minor: u16::from_be_bytes([c, d]),
        }
    }

    /// The number on the wire.
    pub const fn as_u32(self) -> u32 {
        let [a, b] = self.major.to_be_bytes();
        let [c, d] = self.minor.to_be_bytes();
        u32::from_be_bytes([a, b, c, d])
    }
}

impl fmt::Display for ProtocolVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_major_is_in_the_upper_half() {
        assert_eq!(
            ProtocolVersion::from_u32(0x0003_0002),
            ProtocolVersion::V3_2
        );
        assert_eq!(ProtocolVersion::V3_0.as_u32(), 196_608);
        assert_eq!(
            ProtocolVersion::from_u32(0x04D2_162F).to_string(),
            "1234.5679"
        );
    }

    #[test]
    fn versions_are_ordered_by_major_then_minor() {
        let v2_9 = ProtocolVersion { major: 2, minor: 9 };
        assert!(v2_9 < ProtocolVersion::V3_0 && ProtocolVersion::V3_0 < ProtocolVersion::V3_2);
    }
}
