#![doc = include_str!("../README.md")]
#![deny(unsafe_code)]
#![warn(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

mod codes;
mod error;
mod image;
mod options;
mod prompt;
mod raw;
mod runtime;
mod session;
mod values;

pub use codes::{
    Bound, Channel, Effort, ErrorKind, Finish, Fix, KvFormat, LogLevel, ModelState, Notice, Overflow, Priority,
    Role, SessionState, Stage, Stop,
};
pub use error::Error;
pub use image::{Image, ImageOptions, Operation, PixelFormat, Pixels};
pub use options::{RunOptions, Sampling};
pub use prompt::Prompt;
pub use runtime::{
    api_level, has_feature, version, Loader, Model, Package, Plan, PlanBuilder, Runtime, RuntimeBuilder,
};
pub use session::{CancelToken, NextEvent, OwnedRun, Run, Session, SessionBuilder};
pub use values::{
    DeviceInfo, Event, ModelStats, PackageInfo, PlanSummary, Progress, PromptCost, RunResult, RunStats,
    SessionInfo,
};

// The programs of the pages compile.
#[cfg(doctest)]
mod pages {
    #[doc = include_str!("../../../../README.md")]
    struct Readme;
    #[doc = include_str!("../../../../docs/rust.md")]
    struct Rust;
}
