//! The one error of this crate.

use crate::codes::{ErrorKind, Fix};
use std::fmt;

/// A call or a run failed. Programs look at `kind()` and `fix()`; the sentence is for logs.
#[derive(Debug)]
pub struct Error {
    pub(crate) kind: ErrorKind,
    pub(crate) fix: Fix,
    pub(crate) needed: u64,
    pub(crate) available: u64,
    pub(crate) position: u64,
    pub(crate) message: String,
    pub(crate) system: Option<std::io::Error>,
}

impl Error {
    pub(crate) fn new(kind: ErrorKind, fix: Fix, message: String) -> Self {
        Error { kind, fix, needed: 0, available: 0, position: 0, message, system: None }
    }

    pub(crate) fn argument(message: String) -> Self {
        Error::new(ErrorKind::Argument, Fix::Input, message)
    }

    /// What went wrong.
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// What a program can do about it.
    pub fn fix(&self) -> Fix {
        self.fix
    }

    /// Bytes or tokens, with errors about room.
    pub fn needed(&self) -> u64 {
        self.needed
    }

    /// Bytes or tokens, with errors about room.
    pub fn available(&self) -> u64 {
        self.available
    }

    /// A byte offset, with errors about text and files.
    pub fn position(&self) -> u64 {
        self.position
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.system.as_ref().map(|error| error as _)
    }
}
