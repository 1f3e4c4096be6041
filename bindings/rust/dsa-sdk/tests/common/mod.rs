//! What the tests share: the bundled model, loaded once for each test program.
#![allow(dead_code)]

use dsa_sdk::{Event, Model, Prompt, Runtime, Sampling};
use std::path::PathBuf;
use std::sync::{Mutex, Once};

pub const FRANCE: &str = "What is the capital of France?";
pub const END_OF_MESSAGE: i32 = 4;

pub fn model_folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../../samples/models/dsa-tiny")
}

pub fn shared() -> (Runtime, Model) {
    static ONCE: Once = Once::new();
    static SHARED: Mutex<Option<(Runtime, Model)>> = Mutex::new(None);
    ONCE.call_once(|| {
        let runtime = Runtime::new().unwrap();
        let model = runtime.load(model_folder()).unwrap();
        *SHARED.lock().unwrap() = Some((runtime, model));
    });
    SHARED.lock().unwrap().clone().unwrap()
}

pub fn question(runtime: &Runtime, text: &str) -> Prompt {
    Prompt::new(runtime).unwrap().user(text).unwrap()
}

/// Goes on until a limit or a cancel stops it.
pub fn endless() -> Sampling {
    Sampling::model().temperature(0.0).bias(END_OF_MESSAGE, f32::NEG_INFINITY)
}

pub fn is_text(event: &Event) -> bool {
    matches!(event, Event::Text { .. })
}
