//! Whatever can be encoded decodes to the same, for every message.

use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use protocol::backend::{self, Authentication, Field, TransactionStatus};
use protocol::frame::{Deframer, Side, Step};
use protocol::frontend::{self, Target};
use protocol::list::List;
use protocol::startup::{CancelRequest, ProtocolVersion, Startup, StartupPacket, first_packet};

/// Text without NUL.
fn text() -> impl Strategy<Value = Vec<u8>> {
    vec(1..=u8::MAX, 0..40)
}

fn name() -> impl Strategy<Value = Vec<u8>> {
    vec(1..=u8::MAX, 1..40)
}

fn bytes() -> impl Strategy<Value = Vec<u8>> {
    vec(any::<u8>(), 0..200)
}

fn values() -> impl Strategy<Value = Vec<Option<Vec<u8>>>> {
    vec(option::of(bytes()), 0..10)
}

fn borrow(values: &[Option<Vec<u8>>]) -> Vec<Option<&[u8]>> {
    values.iter().map(Option::as_deref).collect()
}

fn borrow_all(names: &[Vec<u8>]) -> Vec<&[u8]> {
    names.iter().map(Vec::as_slice).collect()
}

/// None, one, or one for each: what Bind and FunctionCall allow.
fn formats(count: usize, choice: u8, all: &[i16]) -> Vec<i16> {
    let wanted = [0, 1, count][usize::from(choice % 3)];
    all.iter().copied().cycle().take(wanted).collect()
}

/// Splits an encoded message into tag and body, by the deframer.
fn deframe(side: Side, wire: &[u8]) -> (u8, &[u8]) {
    let mut deframer = Deframer::new(side);
    let Ok(Step::Head(head)) = deframer.step(wire) else {
        panic!("no header");
    };
    let body = &wire[head.consumed..];
    assert_eq!(u32::try_from(body.len()), Ok(head.body_len));
    assert_eq!(head.bytes(), wire[..5]);
    (head.tag, body)
}

fn from_client(message: frontend::Message<'_>) {
    let mut out = Vec::new();
    message.encode(&mut out).expect("encodes");
    let (tag, body) = deframe(Side::Frontend, &out);
    assert_eq!(frontend::Message::decode(tag, body), Ok(message));
}

fn from_server(message: backend::Message<'_>) {
    let mut out = Vec::new();
    message.encode(&mut out).expect("encodes");
    let (tag, body) = deframe(Side::Backend, &out);
    assert_eq!(backend::Message::decode(tag, body), Ok(message));
}

proptest! {
    #[test]
    fn extended_protocol(
        portal in text(), statement in text(), query in text(), params in values(),
        some in vec(any::<i16>(), 1..5), choice in any::<u8>(), types in vec(any::<u32>(), 0..10),
        max_rows in any::<i32>(), is_portal in any::<bool>(),
    ) {
        let params = borrow(&params);
        let param_formats = formats(params.len(), choice, &some);
        from_client(frontend::Message::Bind(frontend::Bind {
            portal: &portal,
            statement: &statement,
            param_formats: List::new(&param_formats),
            params: List::new(&params),
            result_formats: List::new(&some),
        }));
        from_client(frontend::Message::Parse(frontend::Parse {
            name: &statement,
            query: &query,
            param_types: List::new(&types),
        }));
        from_client(frontend::Message::Execute(frontend::Execute { portal: &portal, max_rows }));
        let kind = if is_portal { Target::Portal } else { Target::Statement };
        from_client(frontend::Message::Describe(frontend::Describe { kind, name: &portal }));
        from_client(frontend::Message::Close(frontend::Close { kind, name: &statement }));
        from_server(backend::Message::ParameterDescription(backend::ParameterDescription {
            types: List::new(&types),
        }));
    }

    #[test]
    fn a_changed_head_leaves_the_rest_as_it_was(
        old in text(), new in text(), query in text(), params in values(), types in vec(any::<u32>(), 0..5),
    ) {
        let params = borrow(&params);
        let bind = frontend::Bind {
            portal: &old,
            statement: &old,
            param_formats: List::empty(),
            params: List::new(&params),
            result_formats: List::empty(),
        };
        let mut out = Vec::new();
        bind.encode(&mut out).unwrap();
        let head = frontend::Bind::split(&out[5..]).unwrap();
        prop_assert_eq!((head.portal, head.statement), (&old[..], &old[..]));
        let mut renamed = Vec::new();
        frontend::BindHead { statement: &new, ..head }.encode(&mut renamed).unwrap();
        let expected = frontend::Bind { statement: &new, ..bind };
        prop_assert_eq!(frontend::Bind::decode(&renamed[5..]), Ok(expected));

        let parse = frontend::Parse { name: &old, query: &query, param_types: List::new(&types) };
        let mut out = Vec::new();
        parse.encode(&mut out).unwrap();
        let head = frontend::Parse::split(&out[5..]).unwrap();
        let mut renamed = Vec::new();
        frontend::ParseHead { name: &new, ..head }.encode(&mut renamed).unwrap();
        let expected = frontend::Parse { name: &new, ..parse };
        prop_assert_eq!(frontend::Parse::decode(&renamed[5..]), Ok(expected));
    }

    #[test]
    fn simple_protocol_copy_and_calls(
        query in text(), data in bytes(), args in values(), some in vec(any::<i16>(), 1..5),
        choice in any::<u8>(), function in any::<u32>(), binary in any::<bool>(),
    ) {
        use frontend::Message;
        from_client(Message::Query(frontend::Query { text: &query }));
        from_client(Message::CopyData(frontend::CopyData { data: &data }));
        from_client(Message::CopyFail(frontend::CopyFail { reason: &query }));
        from_client(Message::Password(frontend::PasswordBody(&data)));
        let args = borrow(&args);
        let arg_formats = formats(args.len(), choice, &some);
        from_client(Message::FunctionCall(frontend::FunctionCall {
            function,
            arg_formats: List::new(&arg_formats),
            args: List::new(&args),
            result_format: some[0],
        }));

        use backend::Message as Reply;
        let formats = List::new(&some[..]);
        from_server(Reply::CopyData(backend::CopyData { data: &data }));
        from_server(Reply::CopyInResponse(backend::CopyInResponse { binary, formats }));
        from_server(Reply::CopyOutResponse(backend::CopyOutResponse { binary, formats }));
        from_server(Reply::CopyBothResponse(backend::CopyBothResponse { binary, formats }));
        let value = args.first().copied().flatten();
        from_server(Reply::FunctionCallResponse(backend::FunctionCallResponse { value }));
        from_server(Reply::CommandComplete(backend::CommandComplete { tag: &query }));
    }

    #[test]
    fn rows(columns in values(), column_name in text(), oid in any::<u32>(), small in any::<i16>(), wide in any::<i32>()) {
        let columns = borrow(&columns);
        from_server(backend::Message::DataRow(backend::DataRow { columns: List::new(&columns) }));
        let field = Field {
            name: &column_name,
            table_oid: oid,
            column: small,
            type_oid: !oid,
            type_size: !small,
            type_modifier: wide,
            format: small,
        };
        let fields = vec![field; columns.len()];
        from_server(backend::Message::RowDescription(backend::RowDescription { fields: List::new(&fields) }));
    }

    #[test]
    fn session_messages(
        pid in any::<u32>(), key in vec(any::<u8>(), 4..=256), a in text(), b in text(),
        names in vec(name(), 0..5), minor in any::<u16>(), data in bytes(), salt in any::<[u8; 4]>(),
    ) {
        use backend::Message;
        from_server(Message::BackendKeyData(backend::BackendKeyData { pid, key: &key }));
        from_server(Message::ParameterStatus(backend::ParameterStatus { name: &a, value: &b }));
        from_server(Message::NotificationResponse(backend::NotificationResponse { pid, channel: &a, payload: &b }));
        let names = borrow_all(&names);
        from_server(Message::NegotiateProtocolVersion(backend::NegotiateProtocolVersion {
            newest: ProtocolVersion { major: 3, minor },
            options: List::new(&names),
        }));
        for request in [
            Authentication::Ok,
            Authentication::CleartextPassword,
            Authentication::MD5Password { salt },
            Authentication::SASL(List::new(&names)),
            Authentication::SASLContinue(&data),
            Authentication::SASLFinal(&data),
            Authentication::GSS,
            Authentication::GSSContinue(&data),
        ] {
            from_server(Message::Authentication(request));
        }
        for status in [TransactionStatus::Idle, TransactionStatus::InTransaction, TransactionStatus::Failed] {
            from_server(Message::ReadyForQuery(backend::ReadyForQuery { status }));
        }
        let fields = protocol::error::Fields::new(&data);
        from_server(Message::ErrorResponse(backend::ErrorResponse { fields }));
        from_server(Message::NoticeResponse(backend::NoticeResponse { fields }));
    }

    #[test]
    fn startup_packets(
        minor in any::<u16>(), user in name(), others in vec((name(), text()), 0..6),
        pid in any::<u32>(), key in vec(any::<u8>(), 4..=256), behind in bytes(),
    ) {
        let mut parameters: Vec<(&[u8], &[u8])> = vec![(b"user", &user)];
        let known = [&b"user"[..], b"database", b"replication", b"options"];
        parameters.extend(
            others.iter().map(|(name, value)| (&name[..], &value[..])).filter(|(name, _)| !known.contains(name)),
        );
        let startup = Startup::new(ProtocolVersion { major: 3, minor }, &parameters);
        let mut out = Vec::new();
        startup.encode(&mut out).unwrap();
        let len = out.len();
        out.extend_from_slice(&behind);
        prop_assert_eq!(first_packet(&out), Ok(Some((StartupPacket::Startup(startup), len))));
        prop_assert_eq!(startup.user(), &user[..]);
        prop_assert_eq!(first_packet(&out[..len - 1]), Ok(None));

        let cancel = CancelRequest { pid, key: &key };
        let mut out = Vec::new();
        cancel.encode(&mut out).unwrap();
        prop_assert_eq!(first_packet(&out), Ok(Some((StartupPacket::Cancel(cancel), out.len()))));
    }
}
