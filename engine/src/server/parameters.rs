//! The settings that a server reports by itself.

use protocol::backend::ParameterStatus;
use protocol::encode::EncodeError;

/// Names and values as last reported, in the order of their first report.
#[derive(Debug, Default)]
pub struct Parameters(Vec<(Box<[u8]>, Box<[u8]>)>);

impl Parameters {
    /// Reads the body of a `ParameterStatus`; one that does not parse is
    /// dropped, as libpq would drop the value.
    pub fn read(&mut self, body: &[u8]) {
        if let Ok(ParameterStatus { name, value }) = ParameterStatus::decode(body) {
            match self.0.iter().position(|(known, _)| **known == *name) {
                Some(at) => self.0[at].1 = value.into(),
                None if self.0.len() < REPORTED_MAX => self.0.push((name.into(), value.into())),
                None => {}
            }
        }
    }

    /// All of them as messages.
    pub fn encode(&self, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        self.0
            .iter()
            .try_for_each(|(name, value)| ParameterStatus { name, value }.encode(out))
    }

    /// The last value of one.
    pub fn get(&self, name: &[u8]) -> Option<&[u8]> {
        self.0
            .iter()
            .find(|(known, _)| **known == *name)
            .map(|(_, value)| &**value)
    }
}

/// PostgreSQL 18 reports 15; extensions may add some.
const REPORTED_MAX: usize = 128;
