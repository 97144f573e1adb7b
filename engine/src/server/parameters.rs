//! The settings that a server reports by itself.

use crate::settings::Entries;
use protocol::backend::ParameterStatus;
use protocol::encode::EncodeError;

/// Names and values as last reported, in the order of their first report.
#[derive(Clone, Debug, Default)]
pub struct Parameters {
    values: Entries,
    changed: bool,
}

impl Parameters {
    /// Reads the body of a `ParameterStatus`; one that does not parse is
    /// dropped, as libpq would drop the value.
    pub fn read(&mut self, body: &[u8]) {
        if let Ok(ParameterStatus { name, value }) = ParameterStatus::decode(body) {
            self.changed = true;
            match self.values.iter().position(|(known, _)| **known == *name) {
                Some(at) => self.values[at].1 = value.into(),
                None if self.values.len() < REPORTED_MAX => {
                    self.values.push((name.into(), value.into()))
                }
                None => {}
            }
        }
    }

    /// Whether something was reported since this was last asked.
    pub fn take_changed(&mut self) -> bool {
        std::mem::take(&mut self.changed)
    }

    /// All of them as messages.
    pub fn encode(&self, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        self.values
            .iter()
            .try_for_each(|(name, value)| ParameterStatus { name, value }.encode(out))
    }

    /// Those whose values are not what they were, as messages.
    pub fn encode_changes(&self, before: &Self, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        self.values
            .iter()
            .filter(|(name, value)| before.get(name) != Some(value))
            .try_for_each(|(name, value)| ParameterStatus { name, value }.encode(out))
    }

    /// The last value of one.
    pub fn get(&self, name: &[u8]) -> Option<&[u8]> {
        self.values
            .iter()
            .find(|(known, _)| known.eq_ignore_ascii_case(name))
            .map(|(_, value)| &**value)
    }
}

/// PostgreSQL 18 reports 15; extensions may add some.
const REPORTED_MAX: usize = 128;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_has_changed_is_told() {
        let mut now = Parameters::default();
        now.read(b"a\0x\0");
        now.read(b"b\0y\0");
        let before = now.clone();
        now.read(b"b\0z\0");
        let mut out = Vec::new();
        now.encode_changes(&before, &mut out).expect("short");
        assert_eq!(out, b"S\0\0\0\x08b\0z\0");
    }

    #[test]
    fn what_does_not_parse_is_dropped() {
        let mut parameters = Parameters::default();
        parameters.read(b"a");
        assert!(!parameters.take_changed());
    }
}
