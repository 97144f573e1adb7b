//! As much of a certificate's encoding (X.690 DER, RFC 5280) as we look at.
//! rustls has read the whole of it before, so what is odd here is refused.

/// One value: its tag and its content.
#[derive(Clone, Copy)]
pub(super) struct Value<'a> {
    pub(super) tag: u8,
    pub(super) content: &'a [u8],
}

/// Reads values one after the other.
#[derive(Clone, Copy)]
pub(super) struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The next value, whatever it is.
    pub(super) fn value(&mut self) -> Option<Value<'a>> {
        let (&tag, rest) = self.0.split_first()?;
        let (&first, mut rest) = rest.split_first()?;
        let mut length = usize::from(first);
        if first >= 0x80 {
            let digits = usize::from(first & 0x7f);
            if !(1..=4).contains(&digits) || rest.len() < digits {
                return None;
            }
            let (head, tail) = rest.split_at(digits);
            length = head
                .iter()
                .fold(0, |sum, &digit| sum << 8 | usize::from(digit));
            rest = tail;
        }
        let content = rest.get(..length)?;
        self.0 = &rest[length..];
        Some(Value { tag, content })
    }

    /// The content of the next value, which must have this tag.
    pub(super) fn expect(&mut self, tag: u8) -> Option<&'a [u8]> {
        self.value()
            .filter(|value| value.tag == tag)
            .map(|value| value.content)
    }

    /// The content of the next value if it has this tag.
    pub(super) fn optional(&mut self, tag: u8) -> Option<&'a [u8]> {
        let mut ahead = *self;
        let content = ahead.expect(tag)?;
        *self = ahead;
        Some(content)
    }

    /// What is inside the next value, a sequence or a set.
    pub(super) fn inside(&mut self, tag: u8) -> Option<Reader<'a>> {
        self.expect(tag).map(Reader)
    }
}

/// What we need of a certificate.
pub(super) struct Parts<'a> {
    /// The names of the subject: a sequence of sets.
    pub(super) subject: Reader<'a>,
    /// The algorithm of the signature on it, and its parameters.
    pub(super) algorithm: Reader<'a>,
}

/// Takes a certificate apart (RFC 5280 section 4.1).
pub(super) fn parts(certificate: &[u8]) -> Option<Parts<'_>> {
    let mut certificate = Reader::new(certificate).inside(SEQUENCE)?;
    let mut signed = certificate.inside(SEQUENCE)?;
    let algorithm = certificate.inside(SEQUENCE)?;
    signed.optional(VERSION);
    signed.expect(INTEGER)?;
    let _signature = signed.expect(SEQUENCE)?;
    let _issuer = signed.expect(SEQUENCE)?;
    let _validity = signed.expect(SEQUENCE)?;
    let subject = signed.inside(SEQUENCE)?;
    Some(Parts { subject, algorithm })
}

pub(super) const INTEGER: u8 = 0x02;
pub(super) const OID: u8 = 0x06;
pub(super) const SEQUENCE: u8 = 0x30;
pub(super) const SET: u8 = 0x31;
/// `[0] EXPLICIT`: of a certificate the version, of RSASSA-PSS the hash.
pub(super) const VERSION: u8 = 0xa0;
