use super::*;

/// As much of a certificate as is read.
fn certificate(subject: &[(&[u8], u8, &[u8])], algorithm: &[u8]) -> Vec<u8> {
    let names: Vec<u8> = subject
        .iter()
        .flat_map(|(oid, tag, text)| {
            let attribute = [value(OID, oid), value(*tag, text)].concat();
            value(SET, &value(SEQUENCE, &attribute))
        })
        .collect();
    let signed = [
        value(VERSION, &[2, 1, 2]),
        value(der::INTEGER, &[7]),
        value(SEQUENCE, algorithm),
        value(SEQUENCE, &[]),
        value(SEQUENCE, &[]),
        value(SEQUENCE, &names),
    ]
    .concat();
    let whole = [
        value(SEQUENCE, &signed),
        value(SEQUENCE, algorithm),
        value(3, &[0; 200]),
    ]
    .concat();
    value(SEQUENCE, &whole)
}

fn value(tag: u8, content: &[u8]) -> Vec<u8> {
    let length = content.len();
    let head = match length {
        0..128 => vec![tag, length as u8],
        128..256 => vec![tag, 0x81, length as u8],
        _ => vec![tag, 0x82, (length >> 8) as u8, length as u8],
    };
    [&head[..], content].concat()
}

fn read(subject: &[(&[u8], u8, &[u8])]) -> Option<PeerCertificate> {
    PeerCertificate::read(&certificate(subject, &[]))
}

const COUNTRY: &[u8] = &[0x55, 4, 6];
const ORGANIZATION: &[u8] = &[0x55, 4, 10];

#[test]
fn the_subject_is_shown_from_its_end_with_what_is_odd_escaped() {
    let peer = read(&[
        (COUNTRY, PRINTABLE_STRING, b"DE"),
        (ORGANIZATION, UTF8_STRING, b" a, b+c "),
        (COMMON_NAME, UTF8_STRING, "J\u{f6}rg #1".as_bytes()),
        (&[0x2a, 0x86, 0x48, 0x01], TELETEX_STRING, b"x"),
    ]);
    let peer = peer.expect("a certificate");
    assert_eq!(peer.common_name.as_deref(), Some("J\u{f6}rg #1"));
    assert_eq!(
        peer.dn,
        "1.2.840.1=x,CN=J\\C3\\B6rg #1,O=\\ a\\, b\\+c\\ ,C=DE"
    );
}

#[test]
fn the_first_common_name_counts_in_any_string_type() {
    let wide: Vec<u8> = "app".encode_utf16().flat_map(u16::to_be_bytes).collect();
    let peer = read(&[
        (COMMON_NAME, BMP_STRING, &wide),
        (COMMON_NAME, UTF8_STRING, b"b"),
    ]);
    assert_eq!(
        peer.and_then(|peer| peer.common_name).as_deref(),
        Some("app")
    );
    let peer = read(&[(ORGANIZATION, UTF8_STRING, b"b")]).expect("a certificate");
    assert_eq!(peer.common_name, None);
}

#[test]
fn names_that_are_not_what_they_seem_are_refused() {
    assert_eq!(
        read(&[(COMMON_NAME, UTF8_STRING, b"postgres\0.evil")]),
        None
    );
    assert_eq!(read(&[(COMMON_NAME, UTF8_STRING, b"\xff")]), None);
    assert_eq!(read(&[(COMMON_NAME, PRINTABLE_STRING, b"\xe4")]), None);
    assert_eq!(read(&[(COMMON_NAME, 0x04, b"octets")]), None);
}

#[test]
fn whatever_is_cut_off_is_refused_or_read_as_before() {
    let whole = certificate(&[(COMMON_NAME, UTF8_STRING, b"app")], &[]);
    for end in 0..whole.len() {
        assert_eq!(PeerCertificate::read(&whole[..end]), None, "{end}");
        assert_eq!(endpoint_hash(&whole[..end]), None, "{end}");
    }
}

#[test]
fn the_hash_is_that_of_the_signature() {
    let rsa = |last| value(OID, &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 1, last]);
    let ecdsa = |end: &[u8]| value(OID, &[&[0x2a, 0x86, 0x48, 0xce, 0x3d, 4][..], end].concat());
    let pss = |hash: &[u8]| {
        let parameters = value(
            SEQUENCE,
            &value(VERSION, &value(SEQUENCE, &value(OID, hash))),
        );
        [rsa(10), parameters].concat()
    };
    let sha2 = |last| [0x60, 0x86, 0x48, 1, 0x65, 3, 4, 2, last];
    for (algorithm, bytes) in [
        (rsa(4), Some(32)),
        (rsa(5), Some(32)),
        (rsa(11), Some(32)),
        (rsa(12), Some(48)),
        (rsa(13), Some(64)),
        (rsa(14), Some(28)),
        (ecdsa(&[1]), Some(32)),
        (ecdsa(&[3, 2]), Some(32)),
        (ecdsa(&[3, 3]), Some(48)),
        (ecdsa(&[3, 4]), Some(64)),
        (pss(&sha2(1)), Some(32)),
        (pss(&sha2(3)), Some(64)),
        ([rsa(10), value(SEQUENCE, &[])].concat(), Some(32)),
        (rsa(10), None),
        (value(OID, &[0x2b, 0x65, 0x70]), None),
    ] {
        let hash = endpoint_hash(&certificate(&[], &algorithm));
        assert_eq!(hash.map(|hash| hash.len()), bytes, "{algorithm:?}");
    }
}
