//! Events, results and descriptions: plain values that own their text.

use crate::codes::{Bound, ErrorKind, Finish, Fix, ModelState, Notice, SessionState, Stage};
use crate::error::Error;

/// What a run reports, in order: `Start`, `Prefill`, text and notices, `Done`.
#[non_exhaustive]
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// The run left the queue.
    #[non_exhaustive]
    Start { run_id: u64 },
    /// Tokens of the prompt that are computed.
    #[non_exhaustive]
    Prefill { done: u64, total: u64 },
    /// A piece of the answer: whole characters.
    #[non_exhaustive]
    Text { text: String, num_tokens: u32 },
    /// A piece of what the model thinks before it answers.
    #[non_exhaustive]
    Reasoning { text: String, num_tokens: u32 },
    /// A piece of a call that the model writes.
    #[non_exhaustive]
    ToolCall { text: String, num_tokens: u32 },
    /// Something that the reader should know.
    Notice(Notice),
    /// The last event of every run.
    #[non_exhaustive]
    Done { finish: Finish, stop_index: u32 },
    /// An event of a later library.
    #[non_exhaustive]
    Unknown { kind: i32 },
}

/// How a run ended and what it used.
#[non_exhaustive]
#[derive(Clone, Debug)]
pub struct RunResult {
    /// What it failed with, if it did.
    pub failure: Option<ErrorKind>,
    pub finish: Finish,
    /// With `Finish::StopText`: which; with `Finish::Stop`: the token.
    pub stop_index: u32,
    pub prompt_tokens: u32,
    pub reused_tokens: u32,
    pub image_tokens: u32,
    pub output_tokens: u32,
    pub reasoning_tokens: u32,
    pub seed: u64,
    pub run_id: u64,
}

/// Where the time of a run went.
#[non_exhaustive]
#[derive(Clone, Debug)]
pub struct RunStats {
    pub queue_ms: f64,
    pub prefill_ms: f64,
    pub first_token_ms: f64,
    pub decode_ms: f64,
    pub total_ms: f64,
    pub compute_ms: f64,
    pub copy_ms: f64,
    pub disk_ms: f64,
    pub sample_ms: f64,
    pub consumer_ms: f64,
    pub bound: Bound,
}

/// Bytes or tokens of a long call.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    pub done: u64,
    pub total: u64,
    pub stage: Stage,
}

/// What a prompt would cost.
#[non_exhaustive]
#[derive(Clone, Debug)]
pub struct PromptCost {
    pub text_tokens: u32,
    pub image_tokens: u32,
    pub num_tokens: u32,
    pub reusable_tokens: u32,
    pub fits: bool,
    pub prefill_seconds: f32,
}

/// One device; `why_not` says why it cannot be used.
#[non_exhaustive]
#[derive(Clone, Debug)]
pub struct DeviceInfo {
    pub id: String,
    pub name: String,
    pub driver: String,
    pub why_not: Option<(ErrorKind, String)>,
    pub integrated: bool,
    pub drives_display: bool,
    pub total_bytes: u64,
    pub free_bytes: u64,
}

/// Sizes and abilities of a package.
#[non_exhaustive]
#[derive(Clone, Debug)]
pub struct PackageInfo {
    pub name: String,
    pub family: String,
    pub license: String,
    pub content_id: String,
    pub parameters: u64,
    pub active_parameters: u64,
    pub weight_bytes: u64,
    pub expert_bytes: u64,
    pub layers: u32,
    pub experts: u32,
    pub experts_per_token: u32,
    pub max_context: u32,
    pub has_images: bool,
    pub has_tools: bool,
    pub has_reasoning: bool,
    pub has_draft: bool,
    pub kv_bytes_per_token: u64,
    pub checkpoint_bytes: u64,
}

/// A plan in short, with full contexts. Experts on no device and not in memory are read from the disk.
#[non_exhaustive]
#[derive(Clone, Debug)]
pub struct PlanSummary {
    pub feasible: bool,
    pub bound: Bound,
    pub context_tokens: u32,
    pub sessions: u32,
    pub device_bytes: u64,
    pub host_bytes: u64,
    pub disk_bytes_per_token: u64,
    pub experts_on_device: f32,
    pub experts_on_host: f32,
}

/// Present sizes of a model, and counters since it was loaded.
#[non_exhaustive]
#[derive(Clone, Debug)]
pub struct ModelStats {
    pub state: ModelState,
    pub device_bytes: u64,
    pub host_bytes: u64,
    pub kv_bytes: u64,
    pub expert_bytes: u64,
    pub prompt_tokens: u64,
    pub output_tokens: u64,
    pub runs: u64,
    pub cancelled: u64,
    pub failed: u64,
    pub running: u32,
    pub queued: u32,
    pub sessions: u32,
    pub images_encoded: u64,
    pub image_hits: u64,
    pub expert_rows: u64,
    pub expert_rows_fp8: u64,
    pub fp8_workspace_bytes: u64,
}

/// Sizes of a session and what it is doing.
#[non_exhaustive]
#[derive(Clone, Debug)]
pub struct SessionInfo {
    pub state: SessionState,
    pub num_tokens: u32,
    pub max_tokens: u32,
    pub turns: u32,
    pub images: u32,
    pub host_bytes: u64,
}

/// An error says that it has not happened yet.
pub(crate) fn not_ended() -> Error {
    Error::new(ErrorKind::State, Fix::None, "the run has not ended".to_string())
}
