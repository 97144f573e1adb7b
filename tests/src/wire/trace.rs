//! Messages of a server as lines of text that can be compared, stored and read.

use std::fmt::Write as _;

use super::Message;

/// The first object id that PostgreSQL gives to users' objects. Such ids differ between runs.
const FIRST_USER_OID: u32 = 16_384;
/// Values longer than this are shown by their length and a checksum.
const LONG_VALUE: usize = 200;
/// Where in PostgreSQL's source an error was raised: differs between versions and says nothing to a client.
const SOURCE_FIELDS: &[u8] = b"FLR";

/// One message as one line. Process ids, keys, users' object ids and source positions are masked.
pub fn describe(message: &Message) -> String {
    let mut reader = Reader::new(&message.body);
    let reader = &mut reader;
    match message.tag {
        b'R' => authentication(reader),
        b'S' => format!(
            "ParameterStatus {} {}",
            quote(reader.cstr()),
            quote(reader.cstr())
        ),
        b'K' => "BackendKeyData".into(),
        b'Z' => format!("ReadyForQuery {}", char::from(reader.u8())),
        b'v' => negotiate(reader),
        b'1' => "ParseComplete".into(),
        b'2' => "BindComplete".into(),
        b'3' => "CloseComplete".into(),
        b'n' => "NoData".into(),
        b's' => "PortalSuspended".into(),
        b'I' => "EmptyQueryResponse".into(),
        b'c' => "CopyDone".into(),
        b't' => parameter_description(reader),
        b'T' => row_description(reader),
        b'D' => data_row(reader),
        b'C' => format!("CommandComplete {}", quote(reader.cstr())),
        b'E' => format!("ErrorResponse{}", fields(&message.body)),
        b'N' => format!("NoticeResponse{}", fields(&message.body)),
        b'A' => notification(reader),
        b'G' => format!("CopyInResponse{}", copy_formats(reader)),
        b'H' => format!("CopyOutResponse{}", copy_formats(reader)),
        b'W' => format!("CopyBothResponse{}", copy_formats(reader)),
        b'd' => format!("CopyData {}", quote(&message.body)),
        b'V' => format!("FunctionCallResponse {}", value(reader.value())),
        tag => format!("Unknown {:?} {}", char::from(tag), quote(&message.body)),
    }
}

/// One field of an ErrorResponse's or NoticeResponse's body.
pub fn error_field(body: &[u8], field: u8) -> Option<String> {
    error_fields(body)
        .into_iter()
        .find(|(code, _)| *code == field)
        .map(|(_, text)| text)
}

/// Bytes in double quotes; what is not printable ASCII is escaped, what is long is shortened.
pub fn quote(bytes: &[u8]) -> String {
    if bytes.len() > LONG_VALUE {
        return format!("long:{}:{:016x}", bytes.len(), fnv1a(bytes));
    }
    let mut text = String::from("\"");
    match std::str::from_utf8(bytes) {
        Ok(valid) => valid
            .chars()
            .for_each(|letter| quote_char(&mut text, letter)),
        Err(_) => bytes.iter().for_each(|byte| {
            let _ = write!(text, "\\x{byte:02x}");
        }),
    }
    text.push('"');
    text
}

/// A cursor that gives zeros and empty slices past the end: a trace shows broken messages too.
#[derive(Debug)]
pub struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    /// Starts at the beginning of a body.
    pub fn new(body: &'a [u8]) -> Self {
        Self(body)
    }

    /// The next `count` bytes, or what is left.
    pub fn take(&mut self, count: usize) -> &'a [u8] {
        let (head, tail) = self.0.split_at(count.min(self.0.len()));
        self.0 = tail;
        head
    }

    /// One byte.
    pub fn u8(&mut self) -> u8 {
        self.take(1).first().copied().unwrap_or(0)
    }

    /// A 16-bit number.
    pub fn i16(&mut self) -> i16 {
        i16::from_be_bytes(self.take(2).try_into().unwrap_or([0; 2]))
    }

    /// A 32-bit number.
    pub fn u32(&mut self) -> u32 {
        u32::from_be_bytes(self.take(4).try_into().unwrap_or([0; 4]))
    }

    /// Bytes up to a NUL, which is skipped.
    pub fn cstr(&mut self) -> &'a [u8] {
        let end = self
            .0
            .iter()
            .position(|byte| *byte == 0)
            .unwrap_or(self.0.len());
        let text = self.take(end);
        self.take(1);
        text
    }

    /// A value with its length in front; NULL is `None`.
    pub fn value(&mut self) -> Option<&'a [u8]> {
        let length = self.u32();
        (length != u32::MAX).then(|| self.take(usize::try_from(length).unwrap_or(usize::MAX)))
    }

    fn rest(&mut self) -> &'a [u8] {
        self.take(self.0.len())
    }
}

fn authentication(reader: &mut Reader<'_>) -> String {
    match reader.u32() {
        0 => "AuthenticationOk".into(),
        3 => "AuthenticationCleartextPassword".into(),
        5 => "AuthenticationMD5Password".into(),
        10 => {
            let mut text = String::from("AuthenticationSASL");
            loop {
                match reader.cstr() {
                    b"" => return text,
                    name => {
                        let _ = write!(text, " {}", quote(name));
                    }
                }
            }
        }
        11 => "AuthenticationSASLContinue".into(),
        12 => "AuthenticationSASLFinal".into(),
        code => format!("Authentication {code} {}", quote(reader.rest())),
    }
}

fn negotiate(reader: &mut Reader<'_>) -> String {
    let mut text = format!("NegotiateProtocolVersion {}", reader.u32());
    for _ in 0..reader.u32().min(100) {
        let _ = write!(text, " {}", quote(reader.cstr()));
    }
    text
}

fn parameter_description(reader: &mut Reader<'_>) -> String {
    let mut text = String::from("ParameterDescription");
    for _ in 0..reader.i16() {
        let _ = write!(text, " {}", oid(reader.u32()));
    }
    text
}

fn row_description(reader: &mut Reader<'_>) -> String {
    let count = reader.i16();
    let mut text = String::from("RowDescription");
    if count > 50 {
        let _ = write!(text, " {count} columns");
        return text;
    }
    for _ in 0..count {
        let name = quote(reader.cstr());
        let table = reader.u32();
        let attribute = reader.i16();
        let type_oid = oid(reader.u32());
        let _length = reader.i16();
        let modifier = reader.u32();
        let format = reader.i16();
        let _ = write!(text, " {name}:{type_oid}");
        if table != 0 {
            let _ = write!(text, "@{}.{attribute}", oid(table));
        }
        if modifier != u32::MAX {
            let _ = write!(text, "({modifier})");
        }
        if format != 0 {
            let _ = write!(text, "/binary");
        }
    }
    text
}

fn data_row(reader: &mut Reader<'_>) -> String {
    let count = reader.i16();
    let mut text = String::from("DataRow");
    if count > 50 {
        let _ = write!(text, " {count} columns");
        return text;
    }
    for _ in 0..count {
        let _ = write!(text, " {}", value(reader.value()));
    }
    text
}

fn notification(reader: &mut Reader<'_>) -> String {
    reader.u32();
    format!(
        "NotificationResponse {} {}",
        quote(reader.cstr()),
        quote(reader.cstr())
    )
}

fn copy_formats(reader: &mut Reader<'_>) -> String {
    let mut text = format!(" {}", reader.u8());
    for _ in 0..reader.i16().min(100) {
        let _ = write!(text, " {}", reader.i16());
    }
    text
}

fn fields(body: &[u8]) -> String {
    let all = error_fields(body);
    let one = |field: u8| {
        all.iter()
            .find(|(code, _)| *code == field)
            .map_or("", |(_, text)| text.as_str())
    };
    let mut text = format!(
        " {} {} {}",
        one(b'S'),
        one(b'C'),
        quote(one(b'M').as_bytes())
    );
    for (code, field) in &all {
        if !b"SVCM".contains(code) && !SOURCE_FIELDS.contains(code) {
            let _ = write!(text, " {}={}", char::from(*code), quote(field.as_bytes()));
        }
    }
    text
}

fn error_fields(body: &[u8]) -> Vec<(u8, String)> {
    let mut reader = Reader::new(body);
    let mut all = Vec::new();
    loop {
        match reader.u8() {
            0 => return all,
            code => all.push((code, String::from_utf8_lossy(reader.cstr()).into_owned())),
        }
    }
}

fn oid(number: u32) -> String {
    if number >= FIRST_USER_OID {
        "*".into()
    } else {
        number.to_string()
    }
}

fn value(bytes: Option<&[u8]>) -> String {
    bytes.map_or_else(|| "NULL".into(), quote)
}

fn quote_char(text: &mut String, letter: char) {
    match letter {
        '"' => text.push_str("\\\""),
        '\\' => text.push_str("\\\\"),
        '\n' => text.push_str("\\n"),
        '\t' => text.push_str("\\t"),
        letter if letter < ' ' || letter == '\u{7f}' => {
            let _ = write!(text, "\\x{:02x}", u32::from(letter));
        }
        letter => text.push(letter),
    }
}

fn fnv1a(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_is_shown_without_its_place_in_the_source() {
        let message = Message {
            tag: b'E',
            body: b"SERROR\0VERROR\0C22012\0Mdivision by zero\0Fint.c\0L7\0Rdiv\0\0".to_vec(),
        };
        assert_eq!(
            describe(&message),
            "ErrorResponse ERROR 22012 \"division by zero\""
        );
    }

    #[test]
    fn a_broken_message_is_shown_and_does_not_panic() {
        for tag in 0..=255 {
            let body = vec![0x7f; 3];
            describe(&Message { tag, body });
        }
    }
}
