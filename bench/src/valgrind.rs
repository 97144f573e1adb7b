//! Programs with several threads and io_uring under valgrind.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use crate::machine::find_program;
use crate::process::output;

/// The words in front of a program that runs it under a tool of valgrind.
///
/// `dir` is where the library that makes its threads take turns is built, with the C compiler that Rust links
/// by as well. Without it a program with one waiting thread can still be watched.
pub fn under(dir: &Path, tool: &[String]) -> Result<Vec<String>> {
    let mut words = Vec::new();
    if let Some(library) = waits_library(dir)? {
        words.push("env".to_owned());
        words.push(format!("LD_PRELOAD={}", library.display()));
    }
    words.push("valgrind".to_owned());
    words.extend_from_slice(tool);
    Ok(words)
}

/// None without a C compiler.
fn waits_library(dir: &Path) -> Result<Option<PathBuf>> {
    let library = dir.join("waits.so");
    if library.is_file() {
        return Ok(Some(library));
    }
    let Some(compiler) = find_program(Path::new("cc")) else {
        return Ok(None);
    };
    let source = dir.join("waits.c");
    std::fs::write(&source, WAITS)?;
    let mut command = Command::new(compiler);
    command.args(["-O2", "-shared", "-fPIC", "-o"]);
    command.args([&library, &source]).arg("-ldl");
    output(&mut command).context("build the library that goes in front under valgrind")?;
    Ok(Some(library))
}

const WAITS: &str = include_str!("valgrind/waits.c");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_library_goes_in_front_where_it_can_be_built() {
        let dir = tempfile::tempdir().expect("temp dir");
        let words = under(dir.path(), &["--tool=none".to_owned()]).expect("words");
        let built = find_program(Path::new("cc")).is_some();
        assert_eq!(dir.path().join("waits.so").is_file(), built);
        assert_eq!(words.first().is_some_and(|word| word == "env"), built);
        assert_eq!(words[words.len() - 2..], ["valgrind", "--tool=none"]);
    }
}
