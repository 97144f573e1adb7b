//! What a text is: read, write, transaction control, session state, utility. What is not known is a write.
//!
//! There are two judges. [`by_words`] has only the scanner's tokens: it calls a read only what it can see to be one, and
//! takes many a read for a write. [`by_tree`] has PostgreSQL's own syntax tree, and is right but for what no text shows:
//! views, rules, row security, triggers, casts and operators can run functions that are not named in the text. A server
//! that is read-only is the last judge of all.
//!
//! A [`Classifier`] puts them behind one pass over the text ([`crate::survey`]) and a cache of verdicts by shape, so that
//! the tree is made once for each shape and shard.
//!
//! Neither judge looks into a literal. Where PostgreSQL would, the stricter reading counts: `EXPLAIN (ANALYZE 'off')` runs
//! its statement, for all we know, while `EXPLAIN (ANALYZE off)` does not.

//!
//! # Measured
//!
//! `cargo run --release -p router --example classify`: texts of 206 bytes and 46 tokens on average, the best of 30 batches.
//! Lowest and highest of four runs, on two cores that others were building on (load 2.5 to 10).
//!
//! | | a text | |
//! |---|---|---|
//! | tokens alone | 156 to 166 ns | 1.24 to 1.32 GB/s |
//! | survey: tokens, shape, hints, size | 249 to 315 ns | 0.65 to 0.83 GB/s |
//! | survey and a verdict from the cache | 258 to 264 ns | 0.78 to 0.80 GB/s |
//! | verdict by words, not cached | 419 to 435 ns | 0.47 to 0.49 GB/s |
//! | verdict by tree, not cached | 19.0 to 19.6 us | of which the parser 17.8 to 18.4 us |
//! | a look into the cache alone | 2.0 ns | among 9,000 verdicts |
//! | | 14 to 26 ns | among 270,000, in 16 MiB |
//!
//! The survey differs between runs by more than a look into the cache costs, so that the two rows with it cannot be told
//! apart. Tokens alone pass 1 GB/s, the survey does not: it adds about 100 ns, or 2 ns a token, for all that it does with
//! each. Which part of that costs most was not measured.

mod grammar;
mod options;
mod tree;
mod walk;
mod words;

use crate::cache::VerdictCache;
use crate::functions::Functions;
use crate::hint::Route;
use crate::scan::Options;
use crate::shape::{Shape, ShapeKey};
use crate::survey::survey;
use crate::verdict::Verdict;

pub use tree::{Refusal, by_tree};
pub use words::by_words;

/// What is said of a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Judged {
    /// What it is.
    pub verdict: Verdict,
    /// Where its hints want it to go. A write stays a write.
    pub route: Option<Route>,
    /// The text without its literals.
    pub shape: Shape,
}

/// What a text may have before it is not judged any more, but taken for a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Caps {
    /// Bytes of a text that is looked at.
    pub text_bytes: usize,
    /// Levels that its tree could have. The parser recurses over them: at 5,900 levels it overflows a stack of 2 MiB, and
    /// the process is gone.
    pub levels: usize,
}

impl Caps {
    /// 64 KiB; and levels for which the parser needs less than an eighth of the 2 MiB that a thread has by default (it
    /// refuses trees of more than about 50 by itself: the rest is for texts that are wide, not deep).
    pub const DEFAULT: Caps = Caps {
        text_bytes: 64 * 1024,
        levels: 1_000,
    };
}

impl Default for Caps {
    fn default() -> Self {
        Caps::DEFAULT
    }
}

/// The classifier of a shard.
#[derive(Debug)]
pub struct Classifier {
    key: ShapeKey,
    cache: VerdictCache,
    caps: Caps,
    parses: bool,
}

impl Classifier {
    /// One that asks the parser if `parses`, with a cache of at most so many bytes, and a secret of its own.
    pub fn new(parses: bool, cache_bytes_max: usize, caps: Caps, random: [u64; 4]) -> Self {
        Classifier {
            key: ShapeKey::new(random),
            cache: VerdictCache::new(cache_bytes_max),
            caps,
            parses,
        }
    }

    /// What `text` is. `functions` must be the same at every call, or [`Classifier::forget`] be called between.
    pub fn judge(&mut self, text: &[u8], options: Options, functions: &impl Functions) -> Judged {
        if text.len() > self.caps.text_bytes {
            return self.refused(text, options);
        }
        let survey = survey(text, options, &self.key);
        let judged = |verdict| Judged {
            verdict,
            route: survey.route,
            shape: survey.shape,
        };
        if survey.is_broken {
            return judged(Verdict::UNKNOWN);
        }
        if let Some(verdict) = self.cache.get(survey.shape) {
            return judged(verdict);
        }
        if !self.parses {
            let verdict = by_words(text, options, functions);
            self.cache.insert(survey.shape, verdict);
            return judged(verdict);
        }
        if survey.levels > self.caps.levels {
            return judged(Verdict::UNKNOWN);
        }
        match by_tree(text, options, functions) {
            Ok(verdict) => {
                self.cache.insert(survey.shape, verdict);
                judged(verdict)
            }
            // A literal may be the fault: texts of this shape with others must not be judged by it.
            Err(_) => judged(Verdict::UNKNOWN),
        }
    }

    /// Forgets all verdicts, as when functions have changed.
    pub fn forget(&mut self) {
        self.cache.clear();
    }

    /// The cache, to be looked at.
    pub fn cache(&self) -> &VerdictCache {
        &self.cache
    }

    /// A text that is too long is not looked at beyond its first bytes: its shape stands for these and its length, and no
    /// hint in it counts, for the only one that could matter asks for what a write gets anyway.
    #[cold]
    fn refused(&self, text: &[u8], options: Options) -> Judged {
        let head = &text[..self.caps.text_bytes.min(1_024)];
        Judged {
            verdict: Verdict::UNKNOWN,
            route: None,
            shape: survey(head, options, &self.key).shape.with_len(text.len()),
        }
    }
}
