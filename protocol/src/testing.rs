//! What the byte tables in each message's file are made of.

/// The value is these bytes on the wire, in both directions; a body that ends early or goes on
/// longer is refused; encoding leaves what was there before alone.
macro_rules! assert_wire {
    ($type:ident, $value:expr, $wire:expr) => {{
        let wire: &[u8] = $wire;
        let body = crate::testing::assert_open_wire!($type, $value, wire);
        for end in 0..body.len() {
            assert!(
                $type::decode(&body[..end]).is_err(),
                "accepted {end} of {} bytes",
                body.len()
            );
        }
        let longer = [body, b"\0"].concat();
        assert!(
            $type::decode(&longer).is_err(),
            "accepted a byte behind the end"
        );
    }};
}

/// The same for messages whose last field has no end of its own.
macro_rules! assert_open_wire {
    ($type:ident, $value:expr, $wire:expr) => {{
        let value: $type = $value;
        let wire: &[u8] = $wire;
        let mut out = b"before".to_vec();
        value.encode(&mut out).expect("encodes");
        assert_eq!(
            out.escape_ascii().to_string(),
            [b"before", wire].concat().escape_ascii().to_string()
        );
        let (header, body) = wire.split_at(crate::frame::HEADER_LEN);
        assert_eq!(
            &header[1..],
            u32::try_from(body.len() + 4).unwrap().to_be_bytes()
        );
        assert!(
            $type::decode(body).as_ref() == Ok(&value),
            "decodes to something else"
        );
        body
    }};
}

/// The body is refused for this reason.
macro_rules! assert_refused {
    ($type:ident, $body:expr, $error:ident) => {{
        let body: &[u8] = $body;
        match $type::decode(body) {
            Ok(_) => panic!("accepted {}", body.escape_ascii()),
            Err(error) => assert_eq!(error, crate::cursor::ParseError::$error),
        }
    }};
}

/// The value cannot be encoded, and `out` is left as it was.
macro_rules! assert_unencodable {
    ($value:expr, $error:ident) => {{
        let mut out = b"before".to_vec();
        assert_eq!(
            $value.encode(&mut out),
            Err(crate::encode::EncodeError::$error)
        );
        assert_eq!(out, b"before");
    }};
}

pub(crate) use {assert_open_wire, assert_refused, assert_unencodable, assert_wire};
