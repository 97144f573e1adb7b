//! Builders of the messages that a client sends. They build wrong messages as willingly as right ones.

/// A message with a tag, a length and a body.
pub fn tagged(tag: u8, body: &[u8]) -> Vec<u8> {
    let mut bytes = vec![tag];
    bytes.extend_from_slice(&length_of(body));
    bytes.extend_from_slice(body);
    bytes
}

/// A message of the startup family: a length and a body, no tag.
pub fn untagged(body: &[u8]) -> Vec<u8> {
    let mut bytes = length_of(body).to_vec();
    bytes.extend_from_slice(body);
    bytes
}

/// A startup packet with these parameters in this order.
pub fn startup(major: u16, minor: u16, params: &[(&str, &str)]) -> Vec<u8> {
    let mut body = Vec::new();
    body.extend_from_slice(&major.to_be_bytes());
    body.extend_from_slice(&minor.to_be_bytes());
    for (key, value) in params {
        body.extend_from_slice(&cstr(key));
        body.extend_from_slice(&cstr(value));
    }
    body.push(0);
    untagged(&body)
}

/// SSLRequest.
pub fn ssl_request() -> Vec<u8> {
    untagged(&80_877_103_u32.to_be_bytes())
}

/// GSSENCRequest.
pub fn gssenc_request() -> Vec<u8> {
    untagged(&80_877_104_u32.to_be_bytes())
}

/// CancelRequest with a key of any length.
pub fn cancel_request(pid: i32, key: &[u8]) -> Vec<u8> {
    let mut body = 80_877_102_u32.to_be_bytes().to_vec();
    body.extend_from_slice(&pid.to_be_bytes());
    body.extend_from_slice(key);
    untagged(&body)
}

/// Query.
pub fn query(sql: &str) -> Vec<u8> {
    tagged(b'Q', &cstr(sql))
}

/// Parse.
pub fn parse(name: &str, sql: &str, types: &[u32]) -> Vec<u8> {
    let mut body = cstr(name);
    body.extend_from_slice(&cstr(sql));
    body.extend_from_slice(&count(types.len()));
    for oid in types {
        body.extend_from_slice(&oid.to_be_bytes());
    }
    tagged(b'P', &body)
}

/// Bind.
pub fn bind(
    portal: &str,
    statement: &str,
    formats: &[i16],
    values: &[Option<Vec<u8>>],
    results: &[i16],
) -> Vec<u8> {
    let mut body = cstr(portal);
    body.extend_from_slice(&cstr(statement));
    body.extend_from_slice(&codes(formats));
    body.extend_from_slice(&count(values.len()));
    for value in values {
        match value {
            None => body.extend_from_slice(&(-1_i32).to_be_bytes()),
            Some(bytes) => {
                body.extend_from_slice(
                    &u32::try_from(bytes.len())
                        .expect("a short value")
                        .to_be_bytes(),
                );
                body.extend_from_slice(bytes);
            }
        }
    }
    body.extend_from_slice(&codes(results));
    tagged(b'B', &body)
}

/// Bind of text parameters, results as text.
pub fn bind_text(portal: &str, statement: &str, values: &[&str]) -> Vec<u8> {
    let values: Vec<_> = values
        .iter()
        .map(|value| Some(value.as_bytes().to_vec()))
        .collect();
    bind(portal, statement, &[], &values, &[])
}

/// Describe: kind `S` (statement) or `P` (portal).
pub fn describe(kind: u8, name: &str) -> Vec<u8> {
    tagged(b'D', &kind_and_name(kind, name))
}

/// Close: kind `S` (statement) or `P` (portal).
pub fn close(kind: u8, name: &str) -> Vec<u8> {
    tagged(b'C', &kind_and_name(kind, name))
}

/// Execute; 0 rows means all.
pub fn execute(portal: &str, rows: i32) -> Vec<u8> {
    let mut body = cstr(portal);
    body.extend_from_slice(&rows.to_be_bytes());
    tagged(b'E', &body)
}

/// Sync.
pub fn sync() -> Vec<u8> {
    tagged(b'S', &[])
}

/// Flush.
pub fn flush() -> Vec<u8> {
    tagged(b'H', &[])
}

/// Terminate.
pub fn terminate() -> Vec<u8> {
    tagged(b'X', &[])
}

/// FunctionCall with text arguments and a text result.
pub fn function_call(oid: u32, values: &[Option<Vec<u8>>]) -> Vec<u8> {
    let mut body = oid.to_be_bytes().to_vec();
    body.extend_from_slice(&count(0));
    body.extend_from_slice(&count(values.len()));
    for value in values {
        match value {
            None => body.extend_from_slice(&(-1_i32).to_be_bytes()),
            Some(bytes) => {
                body.extend_from_slice(
                    &u32::try_from(bytes.len())
                        .expect("a short value")
                        .to_be_bytes(),
                );
                body.extend_from_slice(bytes);
            }
        }
    }
    body.extend_from_slice(&count(0));
    tagged(b'F', &body)
}

/// CopyData.
pub fn copy_data(bytes: &[u8]) -> Vec<u8> {
    tagged(b'd', bytes)
}

/// CopyDone.
pub fn copy_done() -> Vec<u8> {
    tagged(b'c', &[])
}

/// CopyFail.
pub fn copy_fail(reason: &str) -> Vec<u8> {
    tagged(b'f', &cstr(reason))
}

/// PasswordMessage.
pub fn password(text: &str) -> Vec<u8> {
    tagged(b'p', &cstr(text))
}

/// SASLInitialResponse.
pub fn sasl_initial(mechanism: &str, response: &[u8]) -> Vec<u8> {
    let mut body = cstr(mechanism);
    body.extend_from_slice(&length(response.len()));
    body.extend_from_slice(response);
    tagged(b'p', &body)
}

/// SASLResponse.
pub fn sasl_response(response: &[u8]) -> Vec<u8> {
    tagged(b'p', response)
}

/// The bytes of a string and a NUL.
pub fn cstr(text: &str) -> Vec<u8> {
    let mut bytes = text.as_bytes().to_vec();
    bytes.push(0);
    bytes
}

fn kind_and_name(kind: u8, name: &str) -> Vec<u8> {
    let mut body = vec![kind];
    body.extend_from_slice(&cstr(name));
    body
}

fn codes(formats: &[i16]) -> Vec<u8> {
    let mut bytes = count(formats.len()).to_vec();
    for format in formats {
        bytes.extend_from_slice(&format.to_be_bytes());
    }
    bytes
}

fn count(number: usize) -> [u8; 2] {
    u16::try_from(number).expect("at most 65,535").to_be_bytes()
}

fn length(number: usize) -> [u8; 4] {
    u32::try_from(number).expect("below 4 GiB").to_be_bytes()
}

fn length_of(body: &[u8]) -> [u8; 4] {
    length(body.len() + 4)
}
