// Made by bindings/generate.py from dsa_sdk.h; a test compares it.
use std::os::raw::{c_char, c_void};

pub type dsa_status = i32;
pub type dsa_token = i32;

pub const DSA_VERSION_MAJOR: u32 = 0;
pub const DSA_VERSION_MINOR: u32 = 2;
pub const DSA_VERSION_PATCH: u32 = 0;
pub const DSA_API_LEVEL: u32 = 4;
pub const DSA_EXT_REQUIRED: u32 = 2147483648;
pub const DSA_NTS: usize = usize::MAX;
pub const DSA_FOREVER: i64 = -1;
pub const DSA_OK: i32 = 0;
pub const DSA_PENDING: i32 = 1;
pub const DSA_END: i32 = 2;
pub const DSA_PARTIAL: i32 = 3;
pub const DSA_REBUILT: i32 = 4;
pub const DSA_DEGRADED: i32 = 5;
pub const DSA_ERROR_ARGUMENT: i32 = -101;
pub const DSA_ERROR_ABI: i32 = -102;
pub const DSA_ERROR_STATE: i32 = -103;
pub const DSA_ERROR_BUSY: i32 = -104;
pub const DSA_ERROR_REENTRANT: i32 = -105;
pub const DSA_ERROR_CLOSED: i32 = -106;
pub const DSA_ERROR_FORKED: i32 = -107;
pub const DSA_ERROR_UNSUPPORTED: i32 = -108;
pub const DSA_ERROR_OUT_OF_MEMORY: i32 = -201;
pub const DSA_ERROR_OUT_OF_DEVICE_MEMORY: i32 = -202;
pub const DSA_ERROR_OVER_BUDGET: i32 = -203;
pub const DSA_ERROR_DISK_FULL: i32 = -204;
pub const DSA_ERROR_CONTEXT_FULL: i32 = -205;
pub const DSA_ERROR_LIMIT: i32 = -206;
pub const DSA_ERROR_QUEUE_FULL: i32 = -207;
pub const DSA_ERROR_NOT_FOUND: i32 = -301;
pub const DSA_ERROR_ACCESS: i32 = -302;
pub const DSA_ERROR_IO: i32 = -303;
pub const DSA_ERROR_CORRUPT: i32 = -304;
pub const DSA_ERROR_HASH: i32 = -305;
pub const DSA_ERROR_FORMAT: i32 = -306;
pub const DSA_ERROR_MODEL: i32 = -307;
pub const DSA_ERROR_MISMATCH: i32 = -308;
pub const DSA_ERROR_NO_DEVICE: i32 = -401;
pub const DSA_ERROR_DRIVER: i32 = -402;
pub const DSA_ERROR_BACKEND: i32 = -403;
pub const DSA_ERROR_DEVICE_LOST: i32 = -404;
pub const DSA_ERROR_DEVICE_FAULT: i32 = -405;
pub const DSA_ERROR_NUMERIC: i32 = -406;
pub const DSA_ERROR_UTF8: i32 = -501;
pub const DSA_ERROR_IMAGE: i32 = -502;
pub const DSA_ERROR_SCHEMA: i32 = -503;
pub const DSA_ERROR_TEMPLATE: i32 = -504;
pub const DSA_ERROR_JSON: i32 = -505;
pub const DSA_ERROR_CANCELLED: i32 = -601;
pub const DSA_ERROR_DEADLINE: i32 = -602;
pub const DSA_ERROR_CALLBACK: i32 = -603;
pub const DSA_ERROR_INTERNAL: i32 = -901;
pub const DSA_ERROR_WORKER_LOST: i32 = -902;
pub const DSA_FIX_NONE: i32 = 0;
pub const DSA_FIX_INPUT: i32 = 1;
pub const DSA_FIX_SHORTEN: i32 = 2;
pub const DSA_FIX_LOWER_BUDGET: i32 = 3;
pub const DSA_FIX_FREE_MEMORY: i32 = 4;
pub const DSA_FIX_UPDATE_DRIVER: i32 = 5;
pub const DSA_FIX_DOWNLOAD_AGAIN: i32 = 6;
pub const DSA_FIX_RESUME: i32 = 7;
pub const DSA_FIX_RESTART_PROCESS: i32 = 8;
pub const DSA_FIX_RETRY: i32 = 9;
pub const DSA_FIX_REPORT: i32 = 10;
pub const DSA_CONTINUE: i32 = 0;
pub const DSA_STOP_KEEP: i32 = 1;
pub const DSA_STOP_ROLLBACK: i32 = 2;
pub const DSA_ISOLATE_NONE: i32 = 0;
pub const DSA_ISOLATE_PROCESS: i32 = 1;
pub const DSA_LOG_OFF: i32 = 0;
pub const DSA_LOG_ERROR: i32 = 1;
pub const DSA_LOG_WARNING: i32 = 2;
pub const DSA_LOG_INFO: i32 = 3;
pub const DSA_LOG_DEBUG: i32 = 4;
pub const DSA_TIER_DEVICE: i32 = 0;
pub const DSA_TIER_HOST: i32 = 1;
pub const DSA_TIER_DISK: i32 = 2;
pub const DSA_GOAL_BALANCED: i32 = 0;
pub const DSA_GOAL_FIRST_TOKEN: i32 = 1;
pub const DSA_GOAL_THROUGHPUT: i32 = 2;
pub const DSA_GOAL_QUIET: i32 = 3;
pub const DSA_KV_MODEL: i32 = 0;
pub const DSA_KV_BF16: i32 = 1;
pub const DSA_KV_FP8: i32 = 2;
pub const DSA_BOUND_NONE: i32 = 0;
pub const DSA_BOUND_COMPUTE: i32 = 1;
pub const DSA_BOUND_DEVICE_MEMORY: i32 = 2;
pub const DSA_BOUND_COPY: i32 = 3;
pub const DSA_BOUND_DISK: i32 = 4;
pub const DSA_BOUND_HOST: i32 = 5;
pub const DSA_BOUND_QUEUE: i32 = 6;
pub const DSA_BOUND_CONSUMER: i32 = 7;
pub const DSA_TEXT_CONTROL: i32 = 1;
pub const DSA_READY_FIRST_TOKEN: i32 = 0;
pub const DSA_READY_RESIDENT: i32 = 1;
pub const DSA_REPRO_FAST: i32 = 0;
pub const DSA_REPRO_STABLE: i32 = 1;
pub const DSA_VERIFY_HEADERS: i32 = 0;
pub const DSA_VERIFY_IN_BACKGROUND: i32 = 1;
pub const DSA_VERIFY_BEFORE_USE: i32 = 2;
pub const DSA_STAGE_OPEN: i32 = 0;
pub const DSA_STAGE_WEIGHTS: i32 = 1;
pub const DSA_STAGE_EXPERTS: i32 = 2;
pub const DSA_STAGE_WARM_UP: i32 = 3;
pub const DSA_STAGE_SAVE: i32 = 4;
pub const DSA_STAGE_RESTORE: i32 = 5;
pub const DSA_STAGE_PREFILL: i32 = 6;
pub const DSA_STAGE_VERIFY: i32 = 7;
pub const DSA_STAGE_IMAGE: i32 = 8;
pub const DSA_MODEL_LOADING: i32 = 0;
pub const DSA_MODEL_READY: i32 = 1;
pub const DSA_MODEL_SUSPENDED: i32 = 2;
pub const DSA_MODEL_LOST: i32 = 3;
pub const DSA_MODEL_CLOSED: i32 = 4;
pub const DSA_OVERFLOW_ERROR: i32 = 0;
pub const DSA_OVERFLOW_FINISH: i32 = 1;
pub const DSA_OVERFLOW_DROP_TURNS: i32 = 2;
pub const DSA_CACHE_SHARED: i32 = 0;
pub const DSA_CACHE_PRIVATE: i32 = 1;
pub const DSA_SESSION_IDLE: i32 = 0;
pub const DSA_SESSION_RUNNING: i32 = 1;
pub const DSA_SESSION_REBUILD: i32 = 2;
pub const DSA_SESSION_CLOSED: i32 = 3;
pub const DSA_PIXELS_RGB8: i32 = 0;
pub const DSA_PIXELS_RGBA8: i32 = 1;
pub const DSA_PIXELS_BGRA8: i32 = 2;
pub const DSA_PIXELS_BGR8: i32 = 3;
pub const DSA_PIXELS_GRAY8: i32 = 4;
pub const DSA_ROLE_SYSTEM: i32 = 0;
pub const DSA_ROLE_USER: i32 = 1;
pub const DSA_ROLE_ASSISTANT: i32 = 2;
pub const DSA_ROLE_TOOL: i32 = 3;
pub const DSA_SAMPLE_MODEL: i32 = 0;
pub const DSA_SAMPLE_GREEDY: i32 = 1;
pub const DSA_SAMPLE_CUSTOM: i32 = 2;
pub const DSA_PRIORITY_NORMAL: i32 = 0;
pub const DSA_PRIORITY_INTERACTIVE: i32 = 1;
pub const DSA_PRIORITY_BACKGROUND: i32 = 2;
pub const DSA_FEED_APPEND: i32 = 0;
pub const DSA_FEED_FULL_HISTORY: i32 = 1;
pub const DSA_TOOLS_AUTO: i32 = 0;
pub const DSA_TOOLS_NONE: i32 = 1;
pub const DSA_TOOLS_REQUIRED: i32 = 2;
pub const DSA_EFFORT_MODEL: i32 = 0;
pub const DSA_EFFORT_NONE: i32 = 1;
pub const DSA_EFFORT_LOW: i32 = 2;
pub const DSA_EFFORT_MEDIUM: i32 = 3;
pub const DSA_EFFORT_HIGH: i32 = 4;
pub const DSA_EVENT_START: i32 = 1;
pub const DSA_EVENT_PREFILL: i32 = 2;
pub const DSA_EVENT_TEXT: i32 = 3;
pub const DSA_EVENT_TOOL_BEGIN: i32 = 4;
pub const DSA_EVENT_TOOL_ARGUMENTS: i32 = 5;
pub const DSA_EVENT_TOOL_END: i32 = 6;
pub const DSA_EVENT_NOTICE: i32 = 7;
pub const DSA_EVENT_DONE: i32 = 8;
pub const DSA_CHANNEL_ANSWER: i32 = 0;
pub const DSA_CHANNEL_REASONING: i32 = 1;
pub const DSA_CHANNEL_TOOL: i32 = 2;
pub const DSA_NOTICE_TURNS_DROPPED: i32 = 1;
pub const DSA_NOTICE_REBUILT: i32 = 2;
pub const DSA_NOTICE_PARKED: i32 = 3;
pub const DSA_NOTICE_SLOWER: i32 = 4;
pub const DSA_FINISH_STOP: i32 = 1;
pub const DSA_FINISH_STOP_TEXT: i32 = 2;
pub const DSA_FINISH_LENGTH: i32 = 3;
pub const DSA_FINISH_CONTEXT: i32 = 4;
pub const DSA_FINISH_TOOL: i32 = 5;
pub const DSA_FINISH_GRAMMAR: i32 = 6;
pub const DSA_FINISH_CANCELLED: i32 = 7;
pub const DSA_FINISH_DEADLINE: i32 = 8;
pub const DSA_FINISH_ERROR: i32 = 9;
pub const DSA_ADVICE_NONE: i32 = 0;
pub const DSA_ADVICE_MORE_DEVICE_MEMORY: i32 = 1;
pub const DSA_ADVICE_MORE_HOST_MEMORY: i32 = 2;
pub const DSA_ADVICE_FASTER_DISK: i32 = 3;
pub const DSA_ADVICE_SHORTER_CONTEXT: i32 = 4;
pub const DSA_ADVICE_FEWER_SESSIONS: i32 = 5;
pub const DSA_ADVICE_READ_FASTER: i32 = 6;
pub const DSA_ADVICE_SAVE_PROFILE: i32 = 7;

#[repr(C)]
pub struct dsa_runtime {
    _private: [u8; 0],
}

#[repr(C)]
pub struct dsa_package {
    _private: [u8; 0],
}

#[repr(C)]
pub struct dsa_plan {
    _private: [u8; 0],
}

#[repr(C)]
pub struct dsa_model {
    _private: [u8; 0],
}

#[repr(C)]
pub struct dsa_session {
    _private: [u8; 0],
}

#[repr(C)]
pub struct dsa_prompt {
    _private: [u8; 0],
}

#[repr(C)]
pub struct dsa_image {
    _private: [u8; 0],
}

#[repr(C)]
pub struct dsa_grammar {
    _private: [u8; 0],
}

#[repr(C)]
pub struct dsa_run {
    _private: [u8; 0],
}

#[repr(C)]
pub struct dsa_op {
    _private: [u8; 0],
}

pub type dsa_log_fn = Option<unsafe extern "C" fn(ud: *mut c_void, level: i32, r#where: *const c_char, line: *const c_char)>;
pub type dsa_wakeup_fn = Option<unsafe extern "C" fn(ud: *mut c_void)>;
pub type dsa_thread_fn = Option<unsafe extern "C" fn(ud: *mut c_void, name: *const c_char, entering: i32)>;
pub type dsa_free_fn = Option<unsafe extern "C" fn(ud: *mut c_void, data: *const c_void)>;
pub type dsa_read_fn = Option<unsafe extern "C" fn(ud: *mut c_void, name: *const c_char, at: u64, dst: *mut c_void, n: usize) -> i64>;
pub type dsa_progress_fn = Option<unsafe extern "C" fn(ud: *mut c_void, p: *const dsa_progress) -> i32>;
pub type dsa_event_fn = Option<unsafe extern "C" fn(ud: *mut c_void, e: *const dsa_event) -> i32>;

#[repr(C)]
#[derive(Clone, Copy)]
pub struct dsa_str {
    pub ptr: *const c_char,
    pub len: usize,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct dsa_ext {
    pub r#type: u32,
    pub struct_size: u32,
    pub next: *const dsa_ext,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct dsa_error {
    pub struct_size: u32,
    pub flags: u32,
    pub code: i32,
    pub fix: i32,
    pub native: i64,
    pub needed: u64,
    pub available: u64,
    pub position: u64,
    pub message: dsa_str,
}
impl dsa_error {
    /// All zero but `struct_size`, as DSA_INIT makes it.
    pub fn init() -> Self {
        // Every field is a number, a pointer or an optional function: zero is a value of each.
        let mut value: Self = unsafe { std::mem::zeroed() };
        value.struct_size = std::mem::size_of::<Self>() as u32;
        value
    }
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct dsa_allocator {
    pub ud: *mut c_void,
    pub alloc: Option<unsafe extern "C" fn(ud: *mut c_void, n: usize, align: usize, tag: u32) -> *mut c_void>,
    pub release: Option<unsafe extern "C" fn(ud: *mut c_void, p: *mut c_void, n: usize, align: usize, tag: u32)>,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct dsa_runtime_options {
    pub struct_size: u32,
    pub flags: u32,
    pub next: *const dsa_ext,
    pub isolation: i32,
    pub log_level: i32,
    pub log: dsa_log_fn,
    pub log_ud: *mut c_void,
    pub on_thread: dsa_thread_fn,
    pub on_thread_ud: *mut c_void,
    pub host_allocator: *const dsa_allocator,
    pub module_dir: dsa_str,
    pub cache_dir: dsa_str,
    pub max_threads: u32,
    pub reserved: u32,
}
impl dsa_runtime_options {
    /// All zero but `struct_size`, as DSA_INIT makes it.
    pub fn init() -> Self {
        // Every field is a number, a pointer or an optional function: zero is a value of each.
        let mut value: Self = unsafe { std::mem::zeroed() };
        value.struct_size = std::mem::size_of::<Self>() as u32;
        value
    }
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct dsa_device_info {
    pub struct_size: u32,
    pub flags: u32,
    pub id: dsa_str,
    pub name: dsa_str,
    pub driver: dsa_str,
    pub why_not: dsa_str,
    pub why_not_code: i32,
    pub usable: i32,
    pub integrated: i32,
    pub drives_display: i32,
    pub total_bytes: u64,
    pub free_bytes: u64,
}
impl dsa_device_info {
    /// All zero but `struct_size`, as DSA_INIT makes it.
    pub fn init() -> Self {
        // Every field is a number, a pointer or an optional function: zero is a value of each.
        let mut value: Self = unsafe { std::mem::zeroed() };
        value.struct_size = std::mem::size_of::<Self>() as u32;
        value
    }
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct dsa_source {
    pub struct_size: u32,
    pub flags: u32,
    pub next: *const dsa_ext,
    pub path: dsa_str,
    pub read: dsa_read_fn,
    pub read_ud: *mut c_void,
    pub read_done: dsa_free_fn,
    pub sha256: dsa_str,
}
impl dsa_source {
    /// All zero but `struct_size`, as DSA_INIT makes it.
    pub fn init() -> Self {
        // Every field is a number, a pointer or an optional function: zero is a value of each.
        let mut value: Self = unsafe { std::mem::zeroed() };
        value.struct_size = std::mem::size_of::<Self>() as u32;
        value
    }
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct dsa_package_info {
    pub struct_size: u32,
    pub flags: u32,
    pub name: dsa_str,
    pub family: dsa_str,
    pub license: dsa_str,
    pub content_id: dsa_str,
    pub parameters: u64,
    pub active_parameters: u64,
    pub weight_bytes: u64,
    pub expert_bytes: u64,
    pub layers: u32,
    pub experts: u32,
    pub experts_per_token: u32,
    pub max_context: u32,
    pub has_images: u32,
    pub has_tools: u32,
    pub has_reasoning: u32,
    pub has_draft: u32,
    pub kv_bytes_per_token: u64,
    pub checkpoint_bytes: u64,
}
impl dsa_package_info {
    /// All zero but `struct_size`, as DSA_INIT makes it.
    pub fn init() -> Self {
        // Every field is a number, a pointer or an optional function: zero is a value of each.
        let mut value: Self = unsafe { std::mem::zeroed() };
        value.struct_size = std::mem::size_of::<Self>() as u32;
        value
    }
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct dsa_budget {
    pub struct_size: u32,
    pub flags: u32,
    pub next: *const dsa_ext,
    pub device_bytes: u64,
    pub host_bytes: u64,
    pub disk_cache_bytes: u64,
    pub leave_device_bytes: u64,
    pub leave_host_bytes: u64,
}
impl dsa_budget {
    /// All zero but `struct_size`, as DSA_INIT makes it.
    pub fn init() -> Self {
        // Every field is a number, a pointer or an optional function: zero is a value of each.
        let mut value: Self = unsafe { std::mem::zeroed() };
        value.struct_size = std::mem::size_of::<Self>() as u32;
        value
    }
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct dsa_plan_request {
    pub struct_size: u32,
    pub flags: u32,
    pub next: *const dsa_ext,
    pub budget: *const dsa_budget,
    pub device_ids: *const dsa_str,
    pub num_device_ids: usize,
    pub context_tokens: u32,
    pub sessions: u32,
    pub images_per_turn: u32,
    pub typical_prompt_tokens: u32,
    pub kv_format: i32,
    pub goal: i32,
}
impl dsa_plan_request {
    /// All zero but `struct_size`, as DSA_INIT makes it.
    pub fn init() -> Self {
        // Every field is a number, a pointer or an optional function: zero is a value of each.
        let mut value: Self = unsafe { std::mem::zeroed() };
        value.struct_size = std::mem::size_of::<Self>() as u32;
        value
    }
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct dsa_plan_summary {
    pub struct_size: u32,
    pub flags: u32,
    pub feasible: i32,
    pub bound: i32,
    pub context_tokens: u32,
    pub sessions: u32,
    pub device_bytes: u64,
    pub host_bytes: u64,
    pub disk_bytes_per_token: u64,
    pub load_seconds: f32,
    pub first_token_seconds: f32,
    pub tokens_per_second: f32,
    pub forecast_error: f32,
    pub experts_on_device: f32,
    pub experts_on_host: f32,
}
impl dsa_plan_summary {
    /// All zero but `struct_size`, as DSA_INIT makes it.
    pub fn init() -> Self {
        // Every field is a number, a pointer or an optional function: zero is a value of each.
        let mut value: Self = unsafe { std::mem::zeroed() };
        value.struct_size = std::mem::size_of::<Self>() as u32;
        value
    }
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct dsa_load_options {
    pub struct_size: u32,
    pub flags: u32,
    pub next: *const dsa_ext,
    pub ready_when: i32,
    pub repro: i32,
    pub allow_fallback: i32,
    pub verify: i32,
    pub queue_limit: u32,
    pub checkpoint_limit: u32,
    pub expert_profile: dsa_str,
    pub chat_template: dsa_str,
}
impl dsa_load_options {
    /// All zero but `struct_size`, as DSA_INIT makes it.
    pub fn init() -> Self {
        // Every field is a number, a pointer or an optional function: zero is a value of each.
        let mut value: Self = unsafe { std::mem::zeroed() };
        value.struct_size = std::mem::size_of::<Self>() as u32;
        value
    }
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct dsa_progress {
    pub struct_size: u32,
    pub flags: u32,
    pub done: u64,
    pub total: u64,
    pub stage: i32,
    pub usable: i32,
}
impl dsa_progress {
    /// All zero but `struct_size`, as DSA_INIT makes it.
    pub fn init() -> Self {
        // Every field is a number, a pointer or an optional function: zero is a value of each.
        let mut value: Self = unsafe { std::mem::zeroed() };
        value.struct_size = std::mem::size_of::<Self>() as u32;
        value
    }
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct dsa_model_stats {
    pub struct_size: u32,
    pub flags: u32,
    pub device_bytes: u64,
    pub host_bytes: u64,
    pub disk_cache_bytes: u64,
    pub kv_bytes: u64,
    pub checkpoint_bytes: u64,
    pub expert_bytes: u64,
    pub prompt_tokens: u64,
    pub output_tokens: u64,
    pub runs: u64,
    pub cancelled: u64,
    pub failed: u64,
    pub running: u32,
    pub queued: u32,
    pub sessions: u32,
    pub state: i32,
    pub expert_hit_rate: f32,
    pub draft_accept_rate: f32,
    pub images_encoded: u64,
    pub image_hits: u64,
    pub expert_rows: u64,
    pub expert_rows_fp8: u64,
    pub fp8_workspace_bytes: u64,
}
impl dsa_model_stats {
    /// All zero but `struct_size`, as DSA_INIT makes it.
    pub fn init() -> Self {
        // Every field is a number, a pointer or an optional function: zero is a value of each.
        let mut value: Self = unsafe { std::mem::zeroed() };
        value.struct_size = std::mem::size_of::<Self>() as u32;
        value
    }
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct dsa_session_options {
    pub struct_size: u32,
    pub flags: u32,
    pub next: *const dsa_ext,
    pub context_tokens: u32,
    pub keep_messages: u32,
    pub overflow: i32,
    pub keep_reasoning: i32,
    pub cache: i32,
    pub reserved: u32,
    pub journal: dsa_str,
}
impl dsa_session_options {
    /// All zero but `struct_size`, as DSA_INIT makes it.
    pub fn init() -> Self {
        // Every field is a number, a pointer or an optional function: zero is a value of each.
        let mut value: Self = unsafe { std::mem::zeroed() };
        value.struct_size = std::mem::size_of::<Self>() as u32;
        value
    }
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct dsa_session_info {
    pub struct_size: u32,
    pub flags: u32,
    pub num_tokens: u32,
    pub max_tokens: u32,
    pub turns: u32,
    pub images: u32,
    pub checkpoints: u32,
    pub state: i32,
    pub tier: i32,
    pub reserved: u32,
    pub device_bytes: u64,
    pub host_bytes: u64,
    pub disk_bytes: u64,
    pub shared_bytes: u64,
}
impl dsa_session_info {
    /// All zero but `struct_size`, as DSA_INIT makes it.
    pub fn init() -> Self {
        // Every field is a number, a pointer or an optional function: zero is a value of each.
        let mut value: Self = unsafe { std::mem::zeroed() };
        value.struct_size = std::mem::size_of::<Self>() as u32;
        value
    }
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct dsa_pixels {
    pub struct_size: u32,
    pub flags: u32,
    pub next: *const dsa_ext,
    pub data: *const c_void,
    pub width: u32,
    pub height: u32,
    pub stride: usize,
    pub format: i32,
    pub orientation: i32,
    pub release: dsa_free_fn,
    pub release_ud: *mut c_void,
}
impl dsa_pixels {
    /// All zero but `struct_size`, as DSA_INIT makes it.
    pub fn init() -> Self {
        // Every field is a number, a pointer or an optional function: zero is a value of each.
        let mut value: Self = unsafe { std::mem::zeroed() };
        value.struct_size = std::mem::size_of::<Self>() as u32;
        value
    }
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct dsa_image_options {
    pub struct_size: u32,
    pub flags: u32,
    pub next: *const dsa_ext,
    pub max_side: u32,
    pub max_tokens: u32,
    pub refuse_too_large: i32,
    pub reserved: u32,
    pub max_encoded_bytes: u64,
    pub max_pixels: u64,
}
impl dsa_image_options {
    /// All zero but `struct_size`, as DSA_INIT makes it.
    pub fn init() -> Self {
        // Every field is a number, a pointer or an optional function: zero is a value of each.
        let mut value: Self = unsafe { std::mem::zeroed() };
        value.struct_size = std::mem::size_of::<Self>() as u32;
        value
    }
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct dsa_prompt_cost {
    pub struct_size: u32,
    pub flags: u32,
    pub text_tokens: u32,
    pub image_tokens: u32,
    pub num_tokens: u32,
    pub reusable_tokens: u32,
    pub fits: i32,
    pub prefill_seconds: f32,
}
impl dsa_prompt_cost {
    /// All zero but `struct_size`, as DSA_INIT makes it.
    pub fn init() -> Self {
        // Every field is a number, a pointer or an optional function: zero is a value of each.
        let mut value: Self = unsafe { std::mem::zeroed() };
        value.struct_size = std::mem::size_of::<Self>() as u32;
        value
    }
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct dsa_sampling {
    pub struct_size: u32,
    pub flags: u32,
    pub next: *const dsa_ext,
    pub mode: i32,
    pub top_k: u32,
    pub temperature: f32,
    pub top_p: f32,
    pub min_p: f32,
    pub typical_p: f32,
    pub repeat_penalty: f32,
    pub presence_penalty: f32,
    pub frequency_penalty: f32,
    pub dry_strength: f32,
    pub repeat_window: u32,
    pub num_bias: u32,
    pub bias_tokens: *const dsa_token,
    pub bias_values: *const f32,
}
impl dsa_sampling {
    /// All zero but `struct_size`, as DSA_INIT makes it.
    pub fn init() -> Self {
        // Every field is a number, a pointer or an optional function: zero is a value of each.
        let mut value: Self = unsafe { std::mem::zeroed() };
        value.struct_size = std::mem::size_of::<Self>() as u32;
        value
    }
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct dsa_run_options {
    pub struct_size: u32,
    pub flags: u32,
    pub next: *const dsa_ext,
    pub sampling: *const dsa_sampling,
    pub grammar: *const dsa_grammar,
    pub stops: *const dsa_str,
    pub num_stops: usize,
    pub seed: u64,
    pub max_tokens: u32,
    pub max_reasoning_tokens: u32,
    pub deadline_ms: u32,
    pub effort: i32,
    pub tools: i32,
    pub feed: i32,
    pub priority: i32,
    pub speculation: i32,
    pub top_logprobs: u32,
    pub reserved: u32,
    pub on_ready: dsa_wakeup_fn,
    pub on_ready_ud: *mut c_void,
}
impl dsa_run_options {
    /// All zero but `struct_size`, as DSA_INIT makes it.
    pub fn init() -> Self {
        // Every field is a number, a pointer or an optional function: zero is a value of each.
        let mut value: Self = unsafe { std::mem::zeroed() };
        value.struct_size = std::mem::size_of::<Self>() as u32;
        value
    }
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct dsa_event {
    pub struct_size: u32,
    pub flags: u32,
    pub run_id: u64,
    pub r#type: i32,
    pub channel: i32,
    pub finish: i32,
    pub notice: i32,
    pub text: dsa_str,
    pub index: u32,
    pub num_tokens: u32,
    pub done: u64,
    pub total: u64,
}
impl dsa_event {
    /// All zero but `struct_size`, as DSA_INIT makes it.
    pub fn init() -> Self {
        // Every field is a number, a pointer or an optional function: zero is a value of each.
        let mut value: Self = unsafe { std::mem::zeroed() };
        value.struct_size = std::mem::size_of::<Self>() as u32;
        value
    }
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct dsa_result {
    pub struct_size: u32,
    pub flags: u32,
    pub status: dsa_status,
    pub finish: i32,
    pub stop_index: u32,
    pub tool_calls: u32,
    pub prompt_tokens: u32,
    pub reused_tokens: u32,
    pub image_tokens: u32,
    pub output_tokens: u32,
    pub reasoning_tokens: u32,
    pub reserved: u32,
    pub seed: u64,
    pub run_id: u64,
}
impl dsa_result {
    /// All zero but `struct_size`, as DSA_INIT makes it.
    pub fn init() -> Self {
        // Every field is a number, a pointer or an optional function: zero is a value of each.
        let mut value: Self = unsafe { std::mem::zeroed() };
        value.struct_size = std::mem::size_of::<Self>() as u32;
        value
    }
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct dsa_tool_call {
    pub struct_size: u32,
    pub flags: u32,
    pub id: dsa_str,
    pub name: dsa_str,
    pub arguments: dsa_str,
    pub complete: i32,
    pub valid: i32,
}
impl dsa_tool_call {
    /// All zero but `struct_size`, as DSA_INIT makes it.
    pub fn init() -> Self {
        // Every field is a number, a pointer or an optional function: zero is a value of each.
        let mut value: Self = unsafe { std::mem::zeroed() };
        value.struct_size = std::mem::size_of::<Self>() as u32;
        value
    }
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct dsa_run_stats {
    pub struct_size: u32,
    pub flags: u32,
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
    pub disk_bytes: u64,
    pub expert_hits: u64,
    pub expert_misses: u64,
    pub drafted: u64,
    pub accepted: u64,
    pub bound: i32,
    pub advice: i32,
}
impl dsa_run_stats {
    /// All zero but `struct_size`, as DSA_INIT makes it.
    pub fn init() -> Self {
        // Every field is a number, a pointer or an optional function: zero is a value of each.
        let mut value: Self = unsafe { std::mem::zeroed() };
        value.struct_size = std::mem::size_of::<Self>() as u32;
        value
    }
}

extern "C" {
    pub fn dsa_version() -> u32;
    pub fn dsa_version_string() -> *const c_char;
    pub fn dsa_api_level() -> u32;
    pub fn dsa_abi_json() -> *const c_char;
    pub fn dsa_has_feature(name: *const c_char) -> i32;
    pub fn dsa_status_name(status: dsa_status) -> *const c_char;
    pub fn dsa_last_error(out: *mut dsa_error) -> dsa_status;
    pub fn dsa_runtime_create(options: *const dsa_runtime_options, out: *mut *mut dsa_runtime) -> dsa_status;
    pub fn dsa_runtime_retain(runtime: *const dsa_runtime);
    pub fn dsa_runtime_release(runtime: *const dsa_runtime);
    pub fn dsa_runtime_set_log(runtime: *const dsa_runtime, level: i32, log: dsa_log_fn, ud: *mut c_void) -> dsa_status;
    pub fn dsa_runtime_count_devices(runtime: *const dsa_runtime, out: *mut usize) -> dsa_status;
    pub fn dsa_runtime_get_device(runtime: *const dsa_runtime, index: usize, out: *mut dsa_device_info) -> dsa_status;
    pub fn dsa_package_open(runtime: *const dsa_runtime, source: *const dsa_source, out: *mut *mut dsa_package) -> dsa_status;
    pub fn dsa_package_retain(package: *const dsa_package);
    pub fn dsa_package_release(package: *const dsa_package);
    pub fn dsa_package_get_info(package: *const dsa_package, out: *mut dsa_package_info) -> dsa_status;
    pub fn dsa_package_get_meta(package: *const dsa_package, key: *const c_char, out: *mut dsa_str) -> dsa_status;
    pub fn dsa_plan_create(package: *const dsa_package, request: *const dsa_plan_request, out: *mut *mut dsa_plan) -> dsa_status;
    pub fn dsa_plan_release(plan: *mut dsa_plan);
    pub fn dsa_plan_get(plan: *const dsa_plan, out: *mut dsa_plan_summary) -> dsa_status;
    pub fn dsa_plan_explain(plan: *const dsa_plan, json: *mut dsa_str) -> dsa_status;
    pub fn dsa_model_load(package: *const dsa_package, plan: *const dsa_plan, options: *const dsa_load_options, progress: dsa_progress_fn, ud: *mut c_void, out: *mut *mut dsa_model) -> dsa_status;
    pub fn dsa_model_load_path(runtime: *const dsa_runtime, path: *const c_char, progress: dsa_progress_fn, ud: *mut c_void, out: *mut *mut dsa_model) -> dsa_status;
    pub fn dsa_model_retain(model: *const dsa_model);
    pub fn dsa_model_release(model: *const dsa_model);
    pub fn dsa_model_close(model: *const dsa_model, timeout_ms: i64) -> dsa_status;
    pub fn dsa_model_get_stats(model: *const dsa_model, out: *mut dsa_model_stats) -> dsa_status;
    pub fn dsa_model_tokenize(model: *const dsa_model, text: *const c_char, len: usize, flags: u32, out: *mut dsa_token, cap: usize, count: *mut usize) -> dsa_status;
    pub fn dsa_model_detokenize(model: *const dsa_model, tokens: *const dsa_token, n: usize, flags: u32, out: *mut c_char, cap: usize, len: *mut usize) -> dsa_status;
    pub fn dsa_op_wait(op: *const dsa_op, timeout_ms: i64, progress: *mut dsa_progress) -> dsa_status;
    pub fn dsa_op_cancel(op: *const dsa_op) -> dsa_status;
    pub fn dsa_op_get_error(op: *const dsa_op, out: *mut dsa_error) -> dsa_status;
    pub fn dsa_op_release(op: *mut dsa_op);
    pub fn dsa_image_from_file(runtime: *const dsa_runtime, path: *const c_char, options: *const dsa_image_options, out: *mut *mut dsa_image) -> dsa_status;
    pub fn dsa_image_from_memory(runtime: *const dsa_runtime, data: *const c_void, len: usize, options: *const dsa_image_options, out: *mut *mut dsa_image) -> dsa_status;
    pub fn dsa_image_from_pixels(runtime: *const dsa_runtime, pixels: *const dsa_pixels, options: *const dsa_image_options, out: *mut *mut dsa_image) -> dsa_status;
    pub fn dsa_image_retain(image: *const dsa_image);
    pub fn dsa_image_release(image: *const dsa_image);
    pub fn dsa_image_get_size(image: *const dsa_image, width: *mut u32, height: *mut u32) -> dsa_status;
    pub fn dsa_image_get_id(image: *const dsa_image, out: *mut dsa_str) -> dsa_status;
    pub fn dsa_image_prepare(image: *const dsa_image, model: *const dsa_model, out: *mut *mut dsa_op) -> dsa_status;
    pub fn dsa_prompt_create(runtime: *const dsa_runtime, out: *mut *mut dsa_prompt) -> dsa_status;
    pub fn dsa_prompt_release(prompt: *mut dsa_prompt);
    pub fn dsa_prompt_clear(prompt: *mut dsa_prompt) -> dsa_status;
    pub fn dsa_prompt_message(prompt: *mut dsa_prompt, role: i32) -> dsa_status;
    pub fn dsa_prompt_text(prompt: *mut dsa_prompt, text: *const c_char, len: usize) -> dsa_status;
    pub fn dsa_prompt_markup(prompt: *mut dsa_prompt, text: *const c_char, len: usize) -> dsa_status;
    pub fn dsa_prompt_tokens(prompt: *mut dsa_prompt, tokens: *const dsa_token, n: usize) -> dsa_status;
    pub fn dsa_prompt_add_json(prompt: *mut dsa_prompt, json: *const c_char, len: usize) -> dsa_status;
    pub fn dsa_prompt_reasoning(prompt: *mut dsa_prompt, text: *const c_char, len: usize) -> dsa_status;
    pub fn dsa_prompt_tool_call(prompt: *mut dsa_prompt, id: *const c_char, name: *const c_char, arguments_json: *const c_char, len: usize) -> dsa_status;
    pub fn dsa_prompt_tool_result(prompt: *mut dsa_prompt, id: *const c_char, text: *const c_char, len: usize) -> dsa_status;
    pub fn dsa_prompt_set_tools(prompt: *mut dsa_prompt, json: *const c_char, len: usize) -> dsa_status;
    pub fn dsa_prompt_image(prompt: *mut dsa_prompt, image: *const dsa_image) -> dsa_status;
    pub fn dsa_prompt_bind_image(prompt: *mut dsa_prompt, name: *const c_char, image: *const dsa_image) -> dsa_status;
    pub fn dsa_prompt_measure(prompt: *const dsa_prompt, model: *const dsa_model, session: *const dsa_session, feed: i32, out: *mut dsa_prompt_cost) -> dsa_status;
    pub fn dsa_prompt_render(prompt: *const dsa_prompt, model: *const dsa_model, out: *mut c_char, cap: usize, len: *mut usize) -> dsa_status;
    pub fn dsa_session_create(model: *const dsa_model, options: *const dsa_session_options, out: *mut *mut dsa_session) -> dsa_status;
    pub fn dsa_session_retain(session: *const dsa_session);
    pub fn dsa_session_release(session: *const dsa_session);
    pub fn dsa_session_get_info(session: *const dsa_session, out: *mut dsa_session_info) -> dsa_status;
    pub fn dsa_session_cancel(session: *const dsa_session, how: i32) -> dsa_status;
    pub fn dsa_session_prefill(session: *mut dsa_session, prompt: *const dsa_prompt, progress: dsa_progress_fn, ud: *mut c_void, num_tokens: *mut u32) -> dsa_status;
    pub fn dsa_session_generate(session: *mut dsa_session, prompt: *const dsa_prompt, options: *const dsa_run_options, on_event: dsa_event_fn, ud: *mut c_void, out: *mut dsa_result) -> dsa_status;
    pub fn dsa_session_ask(session: *mut dsa_session, text: *const c_char, len: usize, on_event: dsa_event_fn, ud: *mut c_void) -> dsa_status;
    pub fn dsa_run_start(session: *mut dsa_session, prompt: *const dsa_prompt, options: *const dsa_run_options, out: *mut *mut dsa_run) -> dsa_status;
    pub fn dsa_run_next(run: *mut dsa_run, timeout_ms: i64, out: *mut dsa_event) -> dsa_status;
    pub fn dsa_run_cancel(run: *const dsa_run, how: i32) -> dsa_status;
    pub fn dsa_run_get_result(run: *const dsa_run, out: *mut dsa_result) -> dsa_status;
    pub fn dsa_run_get_error(run: *const dsa_run, out: *mut dsa_error) -> dsa_status;
    pub fn dsa_run_get_text(run: *const dsa_run, channel: i32, out: *mut dsa_str) -> dsa_status;
    pub fn dsa_run_get_tool_call(run: *const dsa_run, index: u32, out: *mut dsa_tool_call) -> dsa_status;
    pub fn dsa_run_get_stats(run: *const dsa_run, out: *mut dsa_run_stats) -> dsa_status;
    pub fn dsa_run_retain(run: *const dsa_run);
    pub fn dsa_run_release(run: *const dsa_run);
}
