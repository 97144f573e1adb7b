//! Every message says where PostgreSQL's manual describes it (a line with `Spec:`, which names the
//! section's id), and has a byte table of its own. So `grep -r Spec:` is the list of what is covered.

use std::fs;
use std::path::{Path, PathBuf};

fn sources(folder: &str) -> Vec<(PathBuf, String)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("src")
        .join(folder);
    fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .map(|path| (path.clone(), fs::read_to_string(path).unwrap()))
        .collect()
}

#[test]
fn every_message_cites_the_manual_and_has_a_table() {
    let mut messages = 0;
    for (path, text) in ["frontend", "backend", "startup"]
        .into_iter()
        .flat_map(sources)
    {
        let is_message = text.contains("fn decode(") && !path.ends_with("message.rs");
        if is_message || path.ends_with("startup_message.rs") {
            assert!(
                text.contains("//! Spec: "),
                "{} cites nothing",
                path.display()
            );
            assert!(
                text.contains("looks_like_this()"),
                "{} has no table",
                path.display()
            );
            messages += 1;
        }
    }
    assert_eq!(messages, 17 + 24 + 2);
}
