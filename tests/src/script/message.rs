//! The words of a script's line, and the messages that they make.

use crate::wire::frontend;

/// One word or one quoted string.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Token {
    /// A bare word.
    Word(String),
    /// The bytes of a quoted string.
    Quoted(Vec<u8>),
}

impl Token {
    /// As text.
    pub fn text(&self) -> String {
        match self {
            Self::Word(word) => word.clone(),
            Self::Quoted(bytes) => String::from_utf8_lossy(bytes).into_owned(),
        }
    }

    /// As `key=value`.
    pub fn pair(&self) -> Result<(String, String), String> {
        let text = self.text();
        let (key, value) = text
            .split_once('=')
            .ok_or_else(|| format!("key=value expected, not {text}"))?;
        Ok((key.into(), value.into()))
    }

    fn bytes(&self) -> Vec<u8> {
        match self {
            Self::Word(word) => word.clone().into_bytes(),
            Self::Quoted(bytes) => bytes.clone(),
        }
    }

    /// A value of Bind or FunctionCall: NULL, `0x…` bytes, or a string.
    fn value(&self) -> Result<Option<Vec<u8>>, String> {
        match self {
            Self::Word(word) if word == "NULL" => Ok(None),
            Self::Word(word) if word.starts_with("0x") => hex(&word[2..]).map(Some),
            other => Ok(Some(other.bytes())),
        }
    }
}

/// Splits a line. `#` outside of a string begins a comment.
pub fn tokens(line: &str) -> Result<Vec<Token>, String> {
    let mut found = Vec::new();
    let mut letters = line.chars().peekable();
    while let Some(letter) = letters.next() {
        match letter {
            '#' => break,
            letter if letter.is_whitespace() => {}
            '"' => found.push(Token::Quoted(quoted(&mut letters)?)),
            letter => {
                let mut word = String::from(letter);
                while let Some(next) = letters.next_if(|next| !next.is_whitespace()) {
                    match next {
                        // key="value with spaces"
                        '"' => word.push_str(&String::from_utf8_lossy(&quoted(&mut letters)?)),
                        next => word.push(next),
                    }
                }
                found.push(Token::Word(word));
            }
        }
    }
    Ok(found)
}

/// Builds the message that a `>` line names.
pub fn build(words: &[&Token]) -> Result<Vec<u8>, String> {
    let (name, rest) = words.split_first().ok_or("a message expected")?;
    let text = |index: usize| {
        let token: Option<&&Token> = rest.get(index);
        token
            .map(|token| token.text())
            .ok_or_else(|| format!("argument {} expected", index + 1))
    };
    Ok(match name.text().as_str() {
        "Query" => frontend::tagged(b'Q', &with_nul(rest)?),
        "Parse" => frontend::parse(&text(0)?, &text(1)?, &numbers(&rest[2..])?),
        "Bind" => bind(&text(0)?, &text(1)?, &rest[2..])?,
        "Describe" => frontend::describe(kind(&text(0)?)?, &text(1)?),
        "Close" => frontend::close(kind(&text(0)?)?, &text(1)?),
        "Execute" => frontend::execute(
            &text(0)?,
            rest.get(1).map_or(Ok(0), |token| parse(&token.text()))?,
        ),
        "Sync" => frontend::sync(),
        "Flush" => frontend::flush(),
        "Terminate" => frontend::terminate(),
        "FunctionCall" => {
            let values = rest[1..]
                .iter()
                .map(|token| token.value())
                .collect::<Result<Vec<_>, _>>()?;
            frontend::function_call(parse(&text(0)?)?, &values)
        }
        "CopyData" => frontend::copy_data(&rest.first().ok_or("data expected")?.bytes()),
        "CopyDone" => frontend::copy_done(),
        "CopyFail" => frontend::copy_fail(&text(0)?),
        "SSLRequest" => frontend::ssl_request(),
        "GSSENCRequest" => frontend::gssenc_request(),
        "Startup" => startup(&text(0)?, &rest[1..])?,
        "Message" => {
            let tag = *text(0)?.as_bytes().first().ok_or("a tag expected")?;
            frontend::tagged(tag, &raw(&rest[1..])?)
        }
        "Raw" => raw(rest)?,
        name => return Err(format!("unknown message {name}")),
    })
}

fn startup(version: &str, rest: &[&Token]) -> Result<Vec<u8>, String> {
    let (major, minor) = version
        .split_once('.')
        .ok_or("a version expected, like 3.0")?;
    let pairs = rest
        .iter()
        .map(|token| token.pair())
        .collect::<Result<Vec<_>, _>>()?;
    let pairs: Vec<_> = pairs
        .iter()
        .map(|(key, value)| (key.as_str(), value.as_str()))
        .collect();
    Ok(frontend::startup(parse(major)?, parse(minor)?, &pairs))
}

fn bind(portal: &str, statement: &str, rest: &[&Token]) -> Result<Vec<u8>, String> {
    let (mut formats, mut results, mut values) = (Vec::new(), Vec::new(), Vec::new());
    for token in rest {
        match token {
            Token::Word(word) if word.starts_with("in=") => formats = codes(&word[3..])?,
            Token::Word(word) if word.starts_with("out=") => results = codes(&word[4..])?,
            token => values.push(token.value()?),
        }
    }
    Ok(frontend::bind(
        portal, statement, &formats, &values, &results,
    ))
}

/// Bare words are hexadecimal digits, strings are themselves.
fn raw(rest: &[&Token]) -> Result<Vec<u8>, String> {
    let mut bytes = Vec::new();
    for token in rest {
        match token {
            Token::Word(word) => bytes.extend(hex(word)?),
            Token::Quoted(quoted) => bytes.extend(quoted),
        }
    }
    Ok(bytes)
}

fn with_nul(rest: &[&Token]) -> Result<Vec<u8>, String> {
    let mut bytes = rest.first().ok_or("text expected")?.bytes();
    bytes.push(0);
    Ok(bytes)
}

fn kind(word: &str) -> Result<u8, String> {
    match word.as_bytes() {
        [kind] => Ok(*kind),
        _ => Err("S or P expected".into()),
    }
}

fn numbers(rest: &[&Token]) -> Result<Vec<u32>, String> {
    rest.iter().map(|token| parse(&token.text())).collect()
}

fn codes(list: &str) -> Result<Vec<i16>, String> {
    list.split(',').map(parse).collect()
}

fn parse<T: std::str::FromStr>(text: &str) -> Result<T, String> {
    text.parse()
        .map_err(|_| format!("a number expected, not {text}"))
}

fn hex(digits: &str) -> Result<Vec<u8>, String> {
    let pairs: Vec<char> = digits.chars().collect();
    pairs
        .chunks(2)
        .map(|pair| {
            let pair: String = pair.iter().collect();
            u8::from_str_radix(&pair, 16)
                .map_err(|_| format!("hexadecimal digits expected, not {digits}"))
        })
        .collect()
}

fn quoted(letters: &mut impl Iterator<Item = char>) -> Result<Vec<u8>, String> {
    let mut bytes = Vec::new();
    let mut next = || letters.next().ok_or("a string without an end");
    loop {
        match next()? {
            '"' => return Ok(bytes),
            '\\' => match next()? {
                'n' => bytes.push(b'\n'),
                't' => bytes.push(b'\t'),
                'x' => {
                    let pair: String = [next()?, next()?].iter().collect();
                    bytes.extend(hex(&pair)?);
                }
                letter => bytes.extend(letter.to_string().bytes()),
            },
            letter => bytes.extend(letter.to_string().bytes()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn built(line: &str) -> Vec<u8> {
        let words = tokens(line).expect("words");
        build(&words.iter().collect::<Vec<_>>()).expect("a message")
    }

    #[test]
    fn messages_are_built_as_the_protocol_says() {
        assert_eq!(built("Query \"select 1\""), b"Q\0\0\0\x0dselect 1\0");
        assert_eq!(built("Describe S \"s\""), b"D\0\0\0\x07Ss\0");
        assert_eq!(
            built("Bind \"\" s NULL 0x00ff in=1,0 out=1"),
            b"B\0\0\0\x1d\0s\0\0\x02\0\x01\0\0\0\x02\xff\xff\xff\xff\0\0\0\x02\0\xff\0\x01\0\x01"
        );
        assert_eq!(built("Raw 51 00000003 \"a\\x00\""), b"Q\0\0\0\x03a\0");
    }
}
