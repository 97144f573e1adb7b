//! Bytes that mean nothing break no promise: what the fuzzers look for, a little in every run.

use proptest::collection::vec;
use proptest::prelude::*;
use protocol::backend::{ErrorResponse, NoticeResponse};
use protocol::fuzzing;

/// Bytes among which zeros and letters are as frequent as in messages.
fn noise() -> impl Strategy<Value = Vec<u8>> {
    let byte = prop_oneof![
        3 => Just(0_u8),
        2 => b'A'..=b'z',
        1 => 0..=16_u8,
        1 => Just(0xFF_u8),
        2 => any::<u8>(),
    ];
    vec(byte, 0..300)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(250))]

    #[test]
    fn as_a_client(data in noise()) {
        fuzzing::frontend(&data);
    }

    #[test]
    fn as_a_server(data in noise()) {
        fuzzing::backend(&data);
    }

    #[test]
    fn as_a_startup_packet(data in noise()) {
        fuzzing::startup(&data);
    }

    #[test]
    fn as_a_login(data in noise()) {
        fuzzing::sasl(&data);
    }

    #[test]
    fn as_an_error(data in noise()) {
        let error = ErrorResponse::decode(&data).unwrap();
        let notice = NoticeResponse::decode(&data).unwrap();
        prop_assert_eq!(error.fields, notice.fields);
        let kept: usize = error.fields.iter().map(|(_, text)| text.len() + 2).sum();
        prop_assert!(kept <= data.len());
        let _ = (error.severity(), error.code(), error.message(), error.fields.is_fatal());
    }

    #[test]
    fn passwords_survive_saslprep_or_stay(password in ".{0,40}") {
        let prepared = protocol::auth::saslprep(password.as_bytes());
        prop_assert!(std::str::from_utf8(&prepared).is_ok());
    }
}
