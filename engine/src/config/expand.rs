//! `${NAME}` in values: the environment's text in its place. `$${` writes a literal `${`.

/// Text with its variables replaced, or the sentence that says what is wrong.
pub(super) fn expand(
    text: &str,
    lookup: &dyn Fn(&str) -> Option<String>,
) -> Result<String, String> {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find("${") {
        if rest[..at].ends_with('$') {
            out.push_str(&rest[..at - 1]);
            out.push_str("${");
            rest = &rest[at + 2..];
            continue;
        }
        out.push_str(&rest[..at]);
        let name_on = &rest[at + 2..];
        let end = name_on
            .find('}')
            .ok_or("expected a } after ${ (write $${ for a literal ${)")?;
        let name = &name_on[..end];
        if !is_name(name) {
            return Err(format!(
                "expected a variable's name in ${{{name}}}: letters, digits and _ (write $${{ for a literal ${{)"
            ));
        }
        let value =
            lookup(name).ok_or_else(|| format!("the environment variable {name} is not set"))?;
        out.push_str(&value);
        rest = &name_on[end + 1..];
    }
    out.push_str(rest);
    Ok(out)
}

fn is_name(name: &str) -> bool {
    let mut bytes = name.bytes();
    bytes
        .next()
        .is_some_and(|b| b.is_ascii_alphabetic() || b == b'_')
        && bytes.all(|b| b.is_ascii_alphanumeric() || b == b'_')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn expanded(text: &str) -> Result<String, String> {
        expand(text, &|name| match name {
            "A" => Some("alpha".to_owned()),
            "EMPTY" => Some(String::new()),
            "NEST" => Some("${A}".to_owned()),
            _ => None,
        })
    }

    #[test]
    fn variables_are_replaced_once() {
        let table = [
            ("", ""),
            ("plain $ and $A", "plain $ and $A"),
            ("${A}", "alpha"),
            ("<${A}${A}>", "<alphaalpha>"),
            ("x${EMPTY}y", "xy"),
            ("${NEST}", "${A}"),
            ("$${A}", "${A}"),
            ("$${A}${A}", "${A}alpha"),
            (
                "SCRAM-SHA-256$4096:c2FsdA==$a:b",
                "SCRAM-SHA-256$4096:c2FsdA==$a:b",
            ),
        ];
        for (text, want) in table {
            assert_eq!(expanded(text).as_deref(), Ok(want), "{text}");
        }
    }

    #[test]
    fn a_missing_variable_is_named() {
        assert_eq!(
            expanded("${NOPE}"),
            Err("the environment variable NOPE is not set".to_owned())
        );
    }

    #[test]
    fn broken_references_are_refused() {
        for text in ["${", "${A", "${}", "${A-b}", "${1A}", "${ A }"] {
            assert!(expanded(text).is_err(), "{text:?}");
        }
    }
}
