//! `engine.memory_max`: the memory at which pgmux sheds load, as a size or as a part of what it may have.

use serde::{Deserialize, Deserializer};

/// The memory that the process may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemoryMax {
    /// As much as it gets.
    Off,
    /// So many bytes.
    Bytes(u64),
    /// So much of what the machine or its cgroup gives, in percent.
    Percent(u8),
}

impl MemoryMax {
    /// Reads `0`, `512MB`, `80%`.
    pub fn parse(text: &str) -> Result<Self, String> {
        let how =
            || format!("expected a size such as 512MB, a part such as 80%, or 0, got {text:?}");
        if let Some(number) = text.strip_suffix('%') {
            return match number.parse::<u8>() {
                Ok(0) => Ok(Self::Off),
                Ok(percent) if percent <= 100 && !number.starts_with('+') => {
                    Ok(Self::Percent(percent))
                }
                _ => Err(how()),
            };
        }
        match super::parse_size(text) {
            Ok(0) => Ok(Self::Off),
            Ok(bytes) if bytes < LEAST => Err(format!(
                "expected 0 or at least 32MB, got {text:?}: pgmux itself takes nearly as much"
            )),
            Ok(bytes) => Ok(Self::Bytes(bytes)),
            Err(_) => Err(how()),
        }
    }
}

impl<'de> Deserialize<'de> for MemoryMax {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let text = String::deserialize(from)?;
        Self::parse(&text).map_err(serde::de::Error::custom)
    }
}

/// A shard has 8 MiB of receive buffers alone.
const LEAST: u64 = 32 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_a_size_or_a_part_or_nothing() {
        let table = [
            ("0", MemoryMax::Off),
            ("0%", MemoryMax::Off),
            ("80%", MemoryMax::Percent(80)),
            ("100%", MemoryMax::Percent(100)),
            ("512MB", MemoryMax::Bytes(512 << 20)),
        ];
        for (text, max) in table {
            assert_eq!(MemoryMax::parse(text), Ok(max), "{text}");
        }
        for text in ["", "101%", "%", "-1%", "+1%", "1.5%", "1MB", "many", "80 %"] {
            assert!(MemoryMax::parse(text).is_err(), "{text:?}");
        }
    }
}
