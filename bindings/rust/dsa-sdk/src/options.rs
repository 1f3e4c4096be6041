//! What a run may be told. Zero is the default of everything, as in `dsa_sdk.h`.

use crate::codes::{Effort, Priority};
use crate::raw::view_of;
use dsa_sdk_sys as sys;
use std::time::Duration;

/// How the next token is drawn.
#[derive(Clone, Debug)]
pub struct Sampling {
    mode: i32,
    numbers: Numbers,
    bias: Vec<(i32, f32)>,
}

#[derive(Clone, Debug)]
struct Numbers {
    temperature: f32,
    top_k: u32,
    top_p: f32,
    min_p: f32,
    repeat_penalty: f32,
    presence_penalty: f32,
    frequency_penalty: f32,
    repeat_window: u32,
}

macro_rules! numbers {
    ($($(#[$note:meta])* $name:ident: $kind:ty),+ $(,)?) => {
        $($(#[$note])*
        #[must_use]
        pub fn $name(mut self, value: $kind) -> Self {
            self.mode = sys::DSA_SAMPLE_CUSTOM;
            self.numbers.$name = value;
            self
        })+
    };
}

impl Default for Sampling {
    fn default() -> Self {
        Sampling::model()
    }
}

impl Sampling {
    /// As the package advises. Setting any number makes it one's own sampling, with neutral values for the others.
    pub fn model() -> Self {
        let numbers = Numbers {
            temperature: 1.0,
            top_k: 0,
            top_p: 1.0,
            min_p: 0.0,
            repeat_penalty: 1.0,
            presence_penalty: 0.0,
            frequency_penalty: 0.0,
            repeat_window: 64,
        };
        Sampling { mode: sys::DSA_SAMPLE_MODEL, numbers, bias: Vec::new() }
    }

    /// Always the most likely token.
    pub fn greedy() -> Self {
        Sampling { mode: sys::DSA_SAMPLE_GREEDY, ..Sampling::model() }
    }

    numbers! {
        /// 0: always the most likely token.
        temperature: f32,
        /// 0: off.
        top_k: u32,
        /// 1: off.
        top_p: f32,
        /// 0: off.
        min_p: f32,
        /// 1: off.
        repeat_penalty: f32,
        /// 0: off.
        presence_penalty: f32,
        /// 0: off.
        frequency_penalty: f32,
        /// Last tokens that penalties look at.
        repeat_window: u32,
    }

    /// Added to the logit of one token; negative infinity forbids it.
    #[must_use]
    pub fn bias(mut self, token: i32, value: f32) -> Self {
        self.mode = sys::DSA_SAMPLE_CUSTOM;
        self.bias.push((token, value));
        self
    }
}

/// Options of one run.
#[derive(Clone, Debug, Default)]
pub struct RunOptions {
    sampling: Sampling,
    stops: Vec<String>,
    seed: u64,
    max_tokens: u32,
    deadline_ms: u32,
    effort: i32,
    priority: i32,
}

impl RunOptions {
    /// All defaults.
    pub fn new() -> Self {
        Self::default()
    }

    #[must_use]
    pub fn sampling(mut self, sampling: Sampling) -> Self {
        self.sampling = sampling;
        self
    }

    /// Text that ends the answer and is not part of it. May be given several times.
    #[must_use]
    pub fn stop(mut self, text: impl Into<String>) -> Self {
        self.stops.push(text.into());
        self
    }

    /// 0: draw one; the result names it.
    #[must_use]
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = seed;
        self
    }

    /// 0: until the model stops.
    #[must_use]
    pub fn max_tokens(mut self, tokens: u32) -> Self {
        self.max_tokens = tokens;
        self
    }

    /// From the start of the run; 0: no limit.
    #[must_use]
    pub fn deadline(mut self, time: Duration) -> Self {
        self.deadline_ms = u32::try_from(time.as_millis()).unwrap_or(u32::MAX);
        self
    }

    #[must_use]
    pub fn effort(mut self, effort: Effort) -> Self {
        self.effort = effort.code();
        self
    }

    #[must_use]
    pub fn priority(mut self, priority: Priority) -> Self {
        self.priority = priority.code();
        self
    }

    /// Hands the C structs to `call`; they point into values that live as long.
    pub(crate) fn with<R>(&self, call: impl FnOnce(&mut sys::dsa_run_options) -> R) -> R {
        let (tokens, values): (Vec<i32>, Vec<f32>) = self.sampling.bias.iter().copied().unzip();
        let stops: Vec<sys::dsa_str> = self.stops.iter().map(|text| view_of(text.as_bytes())).collect();
        let numbers = &self.sampling.numbers;
        let mut sampling = sys::dsa_sampling::init();
        sampling.mode = self.sampling.mode;
        sampling.temperature = numbers.temperature;
        sampling.top_k = numbers.top_k;
        sampling.top_p = numbers.top_p;
        sampling.min_p = numbers.min_p;
        sampling.typical_p = 1.0;
        sampling.repeat_penalty = numbers.repeat_penalty;
        sampling.presence_penalty = numbers.presence_penalty;
        sampling.frequency_penalty = numbers.frequency_penalty;
        sampling.repeat_window = numbers.repeat_window;
        sampling.num_bias = u32::try_from(tokens.len()).unwrap_or(u32::MAX);
        sampling.bias_tokens = tokens.as_ptr();
        sampling.bias_values = values.as_ptr();
        let mut options = sys::dsa_run_options::init();
        options.sampling = &sampling;
        options.stops = stops.as_ptr();
        options.num_stops = stops.len();
        options.seed = self.seed;
        options.max_tokens = self.max_tokens;
        options.deadline_ms = self.deadline_ms;
        options.effort = self.effort;
        options.priority = self.priority;
        call(&mut options)
    }
}
