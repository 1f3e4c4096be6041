//! Declarations of `dsa_sdk.h`, one to one. The header is their manual; the crate `dsa-sdk` is the one to use.
#![allow(non_camel_case_types)]

#[rustfmt::skip]
#[allow(clippy::all)]
mod bindings;
pub use bindings::*;
