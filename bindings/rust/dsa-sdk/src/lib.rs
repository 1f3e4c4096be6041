//! Language models with sparse attention inside your own program.
//!
//! ```no_run
//! use dsa_sdk::{Event, Prompt, Runtime};
//!
//! fn main() -> Result<(), dsa_sdk::Error> {
//!     let runtime = Runtime::new()?;
//!     let model = runtime.load("models/tiny")?;
//!     let mut chat = model.session().build()?;
//!     let prompt = Prompt::new(&runtime)?.system("Be brief.")?.user("Who are you?")?;
//!     let mut run = chat.run(&prompt)?;
//!     let stop = run.cancel_token(); // for another thread
//!     std::thread::spawn(move || stop.cancel());
//!     for event in &mut run {
//!         if let Event::Text { text, .. } = event? {
//!             print!("{text}");
//!         }
//!     }
//!     println!("{:?}", run.result()?.finish);
//!     Ok(())
//! }
//! ```
//!
//! Parents are counted in the library: sessions keep their model, models their package and runtime, so everything may be
//! dropped in any order. Nothing here panics, and dropping never waits.
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
    Bound, Channel, Effort, ErrorKind, Finish, Fix, LogLevel, ModelState, Notice, Overflow, Priority, Role,
    SessionState, Stage, Stop,
};
pub use error::Error;
pub use image::{Image, ImageOptions, Operation, PixelFormat, Pixels};
pub use options::{RunOptions, Sampling};
pub use prompt::Prompt;
pub use runtime::{api_level, has_feature, version, Loader, Model, Package, Runtime, RuntimeBuilder};
pub use session::{CancelToken, NextEvent, OwnedRun, Run, Session, SessionBuilder};
pub use values::{
    DeviceInfo, Event, ModelStats, PackageInfo, Progress, PromptCost, RunResult, RunStats, SessionInfo,
};
