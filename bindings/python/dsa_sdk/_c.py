"""Made by bindings/generate.py from dsa_sdk.h; a test compares it. One to one and private: dsa_sdk is the package to use."""

from __future__ import annotations

import ctypes as c
from collections.abc import Callable
from typing import Any

DSA_VERSION_MAJOR = 0
DSA_VERSION_MINOR = 2
DSA_VERSION_PATCH = 0
DSA_API_LEVEL = 4
DSA_EXT_REQUIRED = 2147483648
DSA_OK = 0
DSA_PENDING = 1
DSA_END = 2
DSA_PARTIAL = 3
DSA_REBUILT = 4
DSA_DEGRADED = 5
DSA_ERROR_ARGUMENT = -101
DSA_ERROR_ABI = -102
DSA_ERROR_STATE = -103
DSA_ERROR_BUSY = -104
DSA_ERROR_REENTRANT = -105
DSA_ERROR_CLOSED = -106
DSA_ERROR_FORKED = -107
DSA_ERROR_UNSUPPORTED = -108
DSA_ERROR_OUT_OF_MEMORY = -201
DSA_ERROR_OUT_OF_DEVICE_MEMORY = -202
DSA_ERROR_OVER_BUDGET = -203
DSA_ERROR_DISK_FULL = -204
DSA_ERROR_CONTEXT_FULL = -205
DSA_ERROR_LIMIT = -206
DSA_ERROR_QUEUE_FULL = -207
DSA_ERROR_NOT_FOUND = -301
DSA_ERROR_ACCESS = -302
DSA_ERROR_IO = -303
DSA_ERROR_CORRUPT = -304
DSA_ERROR_HASH = -305
DSA_ERROR_FORMAT = -306
DSA_ERROR_MODEL = -307
DSA_ERROR_MISMATCH = -308
DSA_ERROR_NO_DEVICE = -401
DSA_ERROR_DRIVER = -402
DSA_ERROR_BACKEND = -403
DSA_ERROR_DEVICE_LOST = -404
DSA_ERROR_DEVICE_FAULT = -405
DSA_ERROR_NUMERIC = -406
DSA_ERROR_UTF8 = -501
DSA_ERROR_IMAGE = -502
DSA_ERROR_SCHEMA = -503
DSA_ERROR_TEMPLATE = -504
DSA_ERROR_JSON = -505
DSA_ERROR_CANCELLED = -601
DSA_ERROR_DEADLINE = -602
DSA_ERROR_CALLBACK = -603
DSA_ERROR_INTERNAL = -901
DSA_ERROR_WORKER_LOST = -902
DSA_FIX_NONE = 0
DSA_FIX_INPUT = 1
DSA_FIX_SHORTEN = 2
DSA_FIX_LOWER_BUDGET = 3
DSA_FIX_FREE_MEMORY = 4
DSA_FIX_UPDATE_DRIVER = 5
DSA_FIX_DOWNLOAD_AGAIN = 6
DSA_FIX_RESUME = 7
DSA_FIX_RESTART_PROCESS = 8
DSA_FIX_RETRY = 9
DSA_FIX_REPORT = 10
DSA_CONTINUE = 0
DSA_STOP_KEEP = 1
DSA_STOP_ROLLBACK = 2
DSA_ISOLATE_NONE = 0
DSA_ISOLATE_PROCESS = 1
DSA_LOG_OFF = 0
DSA_LOG_ERROR = 1
DSA_LOG_WARNING = 2
DSA_LOG_INFO = 3
DSA_LOG_DEBUG = 4
DSA_TIER_DEVICE = 0
DSA_TIER_HOST = 1
DSA_TIER_DISK = 2
DSA_GOAL_BALANCED = 0
DSA_GOAL_FIRST_TOKEN = 1
DSA_GOAL_THROUGHPUT = 2
DSA_GOAL_QUIET = 3
DSA_KV_MODEL = 0
DSA_KV_BF16 = 1
DSA_KV_FP8 = 2
DSA_BOUND_NONE = 0
DSA_BOUND_COMPUTE = 1
DSA_BOUND_DEVICE_MEMORY = 2
DSA_BOUND_COPY = 3
DSA_BOUND_DISK = 4
DSA_BOUND_HOST = 5
DSA_BOUND_QUEUE = 6
DSA_BOUND_CONSUMER = 7
DSA_TEXT_CONTROL = 1
DSA_READY_FIRST_TOKEN = 0
DSA_READY_RESIDENT = 1
DSA_REPRO_FAST = 0
DSA_REPRO_STABLE = 1
DSA_VERIFY_HEADERS = 0
DSA_VERIFY_IN_BACKGROUND = 1
DSA_VERIFY_BEFORE_USE = 2
DSA_STAGE_OPEN = 0
DSA_STAGE_WEIGHTS = 1
DSA_STAGE_EXPERTS = 2
DSA_STAGE_WARM_UP = 3
DSA_STAGE_SAVE = 4
DSA_STAGE_RESTORE = 5
DSA_STAGE_PREFILL = 6
DSA_STAGE_VERIFY = 7
DSA_STAGE_IMAGE = 8
DSA_MODEL_LOADING = 0
DSA_MODEL_READY = 1
DSA_MODEL_SUSPENDED = 2
DSA_MODEL_LOST = 3
DSA_MODEL_CLOSED = 4
DSA_OVERFLOW_ERROR = 0
DSA_OVERFLOW_FINISH = 1
DSA_OVERFLOW_DROP_TURNS = 2
DSA_CACHE_SHARED = 0
DSA_CACHE_PRIVATE = 1
DSA_SESSION_IDLE = 0
DSA_SESSION_RUNNING = 1
DSA_SESSION_REBUILD = 2
DSA_SESSION_CLOSED = 3
DSA_PIXELS_RGB8 = 0
DSA_PIXELS_RGBA8 = 1
DSA_PIXELS_BGRA8 = 2
DSA_PIXELS_BGR8 = 3
DSA_PIXELS_GRAY8 = 4
DSA_ROLE_SYSTEM = 0
DSA_ROLE_USER = 1
DSA_ROLE_ASSISTANT = 2
DSA_ROLE_TOOL = 3
DSA_SAMPLE_MODEL = 0
DSA_SAMPLE_GREEDY = 1
DSA_SAMPLE_CUSTOM = 2
DSA_PRIORITY_NORMAL = 0
DSA_PRIORITY_INTERACTIVE = 1
DSA_PRIORITY_BACKGROUND = 2
DSA_FEED_APPEND = 0
DSA_FEED_FULL_HISTORY = 1
DSA_TOOLS_AUTO = 0
DSA_TOOLS_NONE = 1
DSA_TOOLS_REQUIRED = 2
DSA_EFFORT_MODEL = 0
DSA_EFFORT_NONE = 1
DSA_EFFORT_LOW = 2
DSA_EFFORT_MEDIUM = 3
DSA_EFFORT_HIGH = 4
DSA_EVENT_START = 1
DSA_EVENT_PREFILL = 2
DSA_EVENT_TEXT = 3
DSA_EVENT_TOOL_BEGIN = 4
DSA_EVENT_TOOL_ARGUMENTS = 5
DSA_EVENT_TOOL_END = 6
DSA_EVENT_NOTICE = 7
DSA_EVENT_DONE = 8
DSA_CHANNEL_ANSWER = 0
DSA_CHANNEL_REASONING = 1
DSA_CHANNEL_TOOL = 2
DSA_NOTICE_TURNS_DROPPED = 1
DSA_NOTICE_REBUILT = 2
DSA_NOTICE_PARKED = 3
DSA_NOTICE_SLOWER = 4
DSA_FINISH_STOP = 1
DSA_FINISH_STOP_TEXT = 2
DSA_FINISH_LENGTH = 3
DSA_FINISH_CONTEXT = 4
DSA_FINISH_TOOL = 5
DSA_FINISH_GRAMMAR = 6
DSA_FINISH_CANCELLED = 7
DSA_FINISH_DEADLINE = 8
DSA_FINISH_ERROR = 9
DSA_ADVICE_NONE = 0
DSA_ADVICE_MORE_DEVICE_MEMORY = 1
DSA_ADVICE_MORE_HOST_MEMORY = 2
DSA_ADVICE_FASTER_DISK = 3
DSA_ADVICE_SHORTER_CONTEXT = 4
DSA_ADVICE_FEWER_SESSIONS = 5
DSA_ADVICE_READ_FASTER = 6
DSA_ADVICE_SAVE_PROFILE = 7
DSA_NTS = c.c_size_t(-1).value
DSA_FOREVER = -1


class Str(c.Structure):
    """dsa_str: a view of UTF-8 text."""

    ptr: int | None
    len: int


class Sized(c.Structure):
    """A struct that begins with its own size, as DSA_INIT makes it."""

    struct_size: int
    flags: int

    def __init__(self, **values: Any) -> None:
        super().__init__(struct_size=c.sizeof(type(self)), **values)


def _bind(library: c.CDLL, name: str, result: Any, *parameters: Any) -> Any:
    function = getattr(library, name)
    function.restype = result
    function.argtypes = parameters
    return function


class dsa_ext(c.Structure):
    type: int
    struct_size: int
    next: Any


class dsa_error(Sized):
    code: int
    fix: int
    native: int
    needed: int
    available: int
    position: int
    message: Str


class dsa_allocator(c.Structure):
    ud: Any
    alloc: Any
    release: Any


class dsa_runtime_options(Sized):
    next: Any
    isolation: int
    log_level: int
    log: Any
    log_ud: Any
    on_thread: Any
    on_thread_ud: Any
    host_allocator: Any
    module_dir: Str
    cache_dir: Str
    max_threads: int
    reserved: int


class dsa_device_info(Sized):
    id: Str
    name: Str
    driver: Str
    why_not: Str
    why_not_code: int
    usable: int
    integrated: int
    drives_display: int
    total_bytes: int
    free_bytes: int


class dsa_source(Sized):
    next: Any
    path: Str
    read: Any
    read_ud: Any
    read_done: Any
    sha256: Str


class dsa_package_info(Sized):
    name: Str
    family: Str
    license: Str
    content_id: Str
    parameters: int
    active_parameters: int
    weight_bytes: int
    expert_bytes: int
    layers: int
    experts: int
    experts_per_token: int
    max_context: int
    has_images: int
    has_tools: int
    has_reasoning: int
    has_draft: int
    kv_bytes_per_token: int
    checkpoint_bytes: int


class dsa_budget(Sized):
    next: Any
    device_bytes: int
    host_bytes: int
    disk_cache_bytes: int
    leave_device_bytes: int
    leave_host_bytes: int


class dsa_plan_request(Sized):
    next: Any
    budget: Any
    device_ids: Any
    num_device_ids: int
    context_tokens: int
    sessions: int
    images_per_turn: int
    typical_prompt_tokens: int
    kv_format: int
    goal: int


class dsa_plan_summary(Sized):
    feasible: int
    bound: int
    context_tokens: int
    sessions: int
    device_bytes: int
    host_bytes: int
    disk_bytes_per_token: int
    load_seconds: float
    first_token_seconds: float
    tokens_per_second: float
    forecast_error: float
    experts_on_device: float
    experts_on_host: float


class dsa_load_options(Sized):
    next: Any
    ready_when: int
    repro: int
    allow_fallback: int
    verify: int
    queue_limit: int
    checkpoint_limit: int
    expert_profile: Str
    chat_template: Str


class dsa_progress(Sized):
    done: int
    total: int
    stage: int
    usable: int


class dsa_model_stats(Sized):
    device_bytes: int
    host_bytes: int
    disk_cache_bytes: int
    kv_bytes: int
    checkpoint_bytes: int
    expert_bytes: int
    prompt_tokens: int
    output_tokens: int
    runs: int
    cancelled: int
    failed: int
    running: int
    queued: int
    sessions: int
    state: int
    expert_hit_rate: float
    draft_accept_rate: float
    images_encoded: int
    image_hits: int
    expert_rows: int
    expert_rows_fp8: int
    fp8_workspace_bytes: int


class dsa_session_options(Sized):
    next: Any
    context_tokens: int
    keep_messages: int
    overflow: int
    keep_reasoning: int
    cache: int
    reserved: int
    journal: Str


class dsa_session_info(Sized):
    num_tokens: int
    max_tokens: int
    turns: int
    images: int
    checkpoints: int
    state: int
    tier: int
    reserved: int
    device_bytes: int
    host_bytes: int
    disk_bytes: int
    shared_bytes: int


class dsa_pixels(Sized):
    next: Any
    data: Any
    width: int
    height: int
    stride: int
    format: int
    orientation: int
    release: Any
    release_ud: Any


class dsa_image_options(Sized):
    next: Any
    max_side: int
    max_tokens: int
    refuse_too_large: int
    reserved: int
    max_encoded_bytes: int
    max_pixels: int


class dsa_prompt_cost(Sized):
    text_tokens: int
    image_tokens: int
    num_tokens: int
    reusable_tokens: int
    fits: int
    prefill_seconds: float


class dsa_sampling(Sized):
    next: Any
    mode: int
    top_k: int
    temperature: float
    top_p: float
    min_p: float
    typical_p: float
    repeat_penalty: float
    presence_penalty: float
    frequency_penalty: float
    dry_strength: float
    repeat_window: int
    num_bias: int
    bias_tokens: Any
    bias_values: Any


class dsa_run_options(Sized):
    next: Any
    sampling: Any
    grammar: Any
    stops: Any
    num_stops: int
    seed: int
    max_tokens: int
    max_reasoning_tokens: int
    deadline_ms: int
    effort: int
    tools: int
    feed: int
    priority: int
    speculation: int
    top_logprobs: int
    reserved: int
    on_ready: Any
    on_ready_ud: Any


class dsa_event(Sized):
    run_id: int
    type: int
    channel: int
    finish: int
    notice: int
    text: Str
    index: int
    num_tokens: int
    done: int
    total: int


class dsa_result(Sized):
    status: int
    finish: int
    stop_index: int
    tool_calls: int
    prompt_tokens: int
    reused_tokens: int
    image_tokens: int
    output_tokens: int
    reasoning_tokens: int
    reserved: int
    seed: int
    run_id: int


class dsa_tool_call(Sized):
    id: Str
    name: Str
    arguments: Str
    complete: int
    valid: int


class dsa_run_stats(Sized):
    queue_ms: float
    prefill_ms: float
    first_token_ms: float
    decode_ms: float
    total_ms: float
    compute_ms: float
    copy_ms: float
    disk_ms: float
    sample_ms: float
    consumer_ms: float
    disk_bytes: int
    expert_hits: int
    expert_misses: int
    drafted: int
    accepted: int
    bound: int
    advice: int


dsa_log_fn = c.CFUNCTYPE(None, c.c_void_p, c.c_int32, c.c_char_p, c.c_char_p)
dsa_wakeup_fn = c.CFUNCTYPE(None, c.c_void_p)
dsa_thread_fn = c.CFUNCTYPE(None, c.c_void_p, c.c_char_p, c.c_int32)
dsa_free_fn = c.CFUNCTYPE(None, c.c_void_p, c.c_void_p)
dsa_read_fn = c.CFUNCTYPE(c.c_int64, c.c_void_p, c.c_char_p, c.c_uint64, c.c_void_p, c.c_size_t)
dsa_progress_fn = c.CFUNCTYPE(c.c_int32, c.c_void_p, c.POINTER(dsa_progress))
dsa_event_fn = c.CFUNCTYPE(c.c_int32, c.c_void_p, c.POINTER(dsa_event))

Str._fields_ = [("ptr", c.c_void_p), ("len", c.c_size_t)]
dsa_ext._fields_ = [("type", c.c_uint32), ("struct_size", c.c_uint32), ("next", c.POINTER(dsa_ext))]
dsa_error._fields_ = [
    ("struct_size", c.c_uint32), ("flags", c.c_uint32), ("code", c.c_int32), ("fix", c.c_int32),
    ("native", c.c_int64), ("needed", c.c_uint64), ("available", c.c_uint64), ("position", c.c_uint64),
    ("message", Str),
]
dsa_allocator._fields_ = [
    ("ud", c.c_void_p), ("alloc", c.CFUNCTYPE(c.c_void_p, c.c_void_p, c.c_size_t, c.c_size_t, c.c_uint32)),
    ("release", c.CFUNCTYPE(None, c.c_void_p, c.c_void_p, c.c_size_t, c.c_size_t, c.c_uint32)),
]
dsa_runtime_options._fields_ = [
    ("struct_size", c.c_uint32), ("flags", c.c_uint32), ("next", c.POINTER(dsa_ext)),
    ("isolation", c.c_int32), ("log_level", c.c_int32), ("log", dsa_log_fn), ("log_ud", c.c_void_p),
    ("on_thread", dsa_thread_fn), ("on_thread_ud", c.c_void_p), ("host_allocator", c.POINTER(dsa_allocator)),
    ("module_dir", Str), ("cache_dir", Str), ("max_threads", c.c_uint32), ("reserved", c.c_uint32),
]
dsa_device_info._fields_ = [
    ("struct_size", c.c_uint32), ("flags", c.c_uint32), ("id", Str), ("name", Str), ("driver", Str),
    ("why_not", Str), ("why_not_code", c.c_int32), ("usable", c.c_int32), ("integrated", c.c_int32),
    ("drives_display", c.c_int32), ("total_bytes", c.c_uint64), ("free_bytes", c.c_uint64),
]
dsa_source._fields_ = [
    ("struct_size", c.c_uint32), ("flags", c.c_uint32), ("next", c.POINTER(dsa_ext)), ("path", Str),
    ("read", dsa_read_fn), ("read_ud", c.c_void_p), ("read_done", dsa_free_fn), ("sha256", Str),
]
dsa_package_info._fields_ = [
    ("struct_size", c.c_uint32), ("flags", c.c_uint32), ("name", Str), ("family", Str), ("license", Str),
    ("content_id", Str), ("parameters", c.c_uint64), ("active_parameters", c.c_uint64),
    ("weight_bytes", c.c_uint64), ("expert_bytes", c.c_uint64), ("layers", c.c_uint32),
    ("experts", c.c_uint32), ("experts_per_token", c.c_uint32), ("max_context", c.c_uint32),
    ("has_images", c.c_uint32), ("has_tools", c.c_uint32), ("has_reasoning", c.c_uint32),
    ("has_draft", c.c_uint32), ("kv_bytes_per_token", c.c_uint64), ("checkpoint_bytes", c.c_uint64),
]
dsa_budget._fields_ = [
    ("struct_size", c.c_uint32), ("flags", c.c_uint32), ("next", c.POINTER(dsa_ext)),
    ("device_bytes", c.c_uint64), ("host_bytes", c.c_uint64), ("disk_cache_bytes", c.c_uint64),
    ("leave_device_bytes", c.c_uint64), ("leave_host_bytes", c.c_uint64),
]
dsa_plan_request._fields_ = [
    ("struct_size", c.c_uint32), ("flags", c.c_uint32), ("next", c.POINTER(dsa_ext)),
    ("budget", c.POINTER(dsa_budget)), ("device_ids", c.POINTER(Str)), ("num_device_ids", c.c_size_t),
    ("context_tokens", c.c_uint32), ("sessions", c.c_uint32), ("images_per_turn", c.c_uint32),
    ("typical_prompt_tokens", c.c_uint32), ("kv_format", c.c_int32), ("goal", c.c_int32),
]
dsa_plan_summary._fields_ = [
    ("struct_size", c.c_uint32), ("flags", c.c_uint32), ("feasible", c.c_int32), ("bound", c.c_int32),
    ("context_tokens", c.c_uint32), ("sessions", c.c_uint32), ("device_bytes", c.c_uint64),
    ("host_bytes", c.c_uint64), ("disk_bytes_per_token", c.c_uint64), ("load_seconds", c.c_float),
    ("first_token_seconds", c.c_float), ("tokens_per_second", c.c_float), ("forecast_error", c.c_float),
    ("experts_on_device", c.c_float), ("experts_on_host", c.c_float),
]
dsa_load_options._fields_ = [
    ("struct_size", c.c_uint32), ("flags", c.c_uint32), ("next", c.POINTER(dsa_ext)),
    ("ready_when", c.c_int32), ("repro", c.c_int32), ("allow_fallback", c.c_int32), ("verify", c.c_int32),
    ("queue_limit", c.c_uint32), ("checkpoint_limit", c.c_uint32), ("expert_profile", Str),
    ("chat_template", Str),
]
dsa_progress._fields_ = [
    ("struct_size", c.c_uint32), ("flags", c.c_uint32), ("done", c.c_uint64), ("total", c.c_uint64),
    ("stage", c.c_int32), ("usable", c.c_int32),
]
dsa_model_stats._fields_ = [
    ("struct_size", c.c_uint32), ("flags", c.c_uint32), ("device_bytes", c.c_uint64),
    ("host_bytes", c.c_uint64), ("disk_cache_bytes", c.c_uint64), ("kv_bytes", c.c_uint64),
    ("checkpoint_bytes", c.c_uint64), ("expert_bytes", c.c_uint64), ("prompt_tokens", c.c_uint64),
    ("output_tokens", c.c_uint64), ("runs", c.c_uint64), ("cancelled", c.c_uint64), ("failed", c.c_uint64),
    ("running", c.c_uint32), ("queued", c.c_uint32), ("sessions", c.c_uint32), ("state", c.c_int32),
    ("expert_hit_rate", c.c_float), ("draft_accept_rate", c.c_float), ("images_encoded", c.c_uint64),
    ("image_hits", c.c_uint64), ("expert_rows", c.c_uint64), ("expert_rows_fp8", c.c_uint64),
    ("fp8_workspace_bytes", c.c_uint64),
]
dsa_session_options._fields_ = [
    ("struct_size", c.c_uint32), ("flags", c.c_uint32), ("next", c.POINTER(dsa_ext)),
    ("context_tokens", c.c_uint32), ("keep_messages", c.c_uint32), ("overflow", c.c_int32),
    ("keep_reasoning", c.c_int32), ("cache", c.c_int32), ("reserved", c.c_uint32), ("journal", Str),
]
dsa_session_info._fields_ = [
    ("struct_size", c.c_uint32), ("flags", c.c_uint32), ("num_tokens", c.c_uint32),
    ("max_tokens", c.c_uint32), ("turns", c.c_uint32), ("images", c.c_uint32), ("checkpoints", c.c_uint32),
    ("state", c.c_int32), ("tier", c.c_int32), ("reserved", c.c_uint32), ("device_bytes", c.c_uint64),
    ("host_bytes", c.c_uint64), ("disk_bytes", c.c_uint64), ("shared_bytes", c.c_uint64),
]
dsa_pixels._fields_ = [
    ("struct_size", c.c_uint32), ("flags", c.c_uint32), ("next", c.POINTER(dsa_ext)), ("data", c.c_void_p),
    ("width", c.c_uint32), ("height", c.c_uint32), ("stride", c.c_size_t), ("format", c.c_int32),
    ("orientation", c.c_int32), ("release", dsa_free_fn), ("release_ud", c.c_void_p),
]
dsa_image_options._fields_ = [
    ("struct_size", c.c_uint32), ("flags", c.c_uint32), ("next", c.POINTER(dsa_ext)),
    ("max_side", c.c_uint32), ("max_tokens", c.c_uint32), ("refuse_too_large", c.c_int32),
    ("reserved", c.c_uint32), ("max_encoded_bytes", c.c_uint64), ("max_pixels", c.c_uint64),
]
dsa_prompt_cost._fields_ = [
    ("struct_size", c.c_uint32), ("flags", c.c_uint32), ("text_tokens", c.c_uint32),
    ("image_tokens", c.c_uint32), ("num_tokens", c.c_uint32), ("reusable_tokens", c.c_uint32),
    ("fits", c.c_int32), ("prefill_seconds", c.c_float),
]
dsa_sampling._fields_ = [
    ("struct_size", c.c_uint32), ("flags", c.c_uint32), ("next", c.POINTER(dsa_ext)), ("mode", c.c_int32),
    ("top_k", c.c_uint32), ("temperature", c.c_float), ("top_p", c.c_float), ("min_p", c.c_float),
    ("typical_p", c.c_float), ("repeat_penalty", c.c_float), ("presence_penalty", c.c_float),
    ("frequency_penalty", c.c_float), ("dry_strength", c.c_float), ("repeat_window", c.c_uint32),
    ("num_bias", c.c_uint32), ("bias_tokens", c.POINTER(c.c_int32)), ("bias_values", c.POINTER(c.c_float)),
]
dsa_run_options._fields_ = [
    ("struct_size", c.c_uint32), ("flags", c.c_uint32), ("next", c.POINTER(dsa_ext)),
    ("sampling", c.POINTER(dsa_sampling)), ("grammar", c.c_void_p), ("stops", c.POINTER(Str)),
    ("num_stops", c.c_size_t), ("seed", c.c_uint64), ("max_tokens", c.c_uint32),
    ("max_reasoning_tokens", c.c_uint32), ("deadline_ms", c.c_uint32), ("effort", c.c_int32),
    ("tools", c.c_int32), ("feed", c.c_int32), ("priority", c.c_int32), ("speculation", c.c_int32),
    ("top_logprobs", c.c_uint32), ("reserved", c.c_uint32), ("on_ready", dsa_wakeup_fn),
    ("on_ready_ud", c.c_void_p),
]
dsa_event._fields_ = [
    ("struct_size", c.c_uint32), ("flags", c.c_uint32), ("run_id", c.c_uint64), ("type", c.c_int32),
    ("channel", c.c_int32), ("finish", c.c_int32), ("notice", c.c_int32), ("text", Str),
    ("index", c.c_uint32), ("num_tokens", c.c_uint32), ("done", c.c_uint64), ("total", c.c_uint64),
]
dsa_result._fields_ = [
    ("struct_size", c.c_uint32), ("flags", c.c_uint32), ("status", c.c_int32), ("finish", c.c_int32),
    ("stop_index", c.c_uint32), ("tool_calls", c.c_uint32), ("prompt_tokens", c.c_uint32),
    ("reused_tokens", c.c_uint32), ("image_tokens", c.c_uint32), ("output_tokens", c.c_uint32),
    ("reasoning_tokens", c.c_uint32), ("reserved", c.c_uint32), ("seed", c.c_uint64), ("run_id", c.c_uint64),
]
dsa_tool_call._fields_ = [
    ("struct_size", c.c_uint32), ("flags", c.c_uint32), ("id", Str), ("name", Str), ("arguments", Str),
    ("complete", c.c_int32), ("valid", c.c_int32),
]
dsa_run_stats._fields_ = [
    ("struct_size", c.c_uint32), ("flags", c.c_uint32), ("queue_ms", c.c_double), ("prefill_ms", c.c_double),
    ("first_token_ms", c.c_double), ("decode_ms", c.c_double), ("total_ms", c.c_double),
    ("compute_ms", c.c_double), ("copy_ms", c.c_double), ("disk_ms", c.c_double), ("sample_ms", c.c_double),
    ("consumer_ms", c.c_double), ("disk_bytes", c.c_uint64), ("expert_hits", c.c_uint64),
    ("expert_misses", c.c_uint64), ("drafted", c.c_uint64), ("accepted", c.c_uint64), ("bound", c.c_int32),
    ("advice", c.c_int32),
]

STRUCTS: dict[str, type[c.Structure]] = {
    "dsa_str": Str,
    "dsa_ext": dsa_ext,
    "dsa_error": dsa_error,
    "dsa_allocator": dsa_allocator,
    "dsa_runtime_options": dsa_runtime_options,
    "dsa_device_info": dsa_device_info,
    "dsa_source": dsa_source,
    "dsa_package_info": dsa_package_info,
    "dsa_budget": dsa_budget,
    "dsa_plan_request": dsa_plan_request,
    "dsa_plan_summary": dsa_plan_summary,
    "dsa_load_options": dsa_load_options,
    "dsa_progress": dsa_progress,
    "dsa_model_stats": dsa_model_stats,
    "dsa_session_options": dsa_session_options,
    "dsa_session_info": dsa_session_info,
    "dsa_pixels": dsa_pixels,
    "dsa_image_options": dsa_image_options,
    "dsa_prompt_cost": dsa_prompt_cost,
    "dsa_sampling": dsa_sampling,
    "dsa_run_options": dsa_run_options,
    "dsa_event": dsa_event,
    "dsa_result": dsa_result,
    "dsa_tool_call": dsa_tool_call,
    "dsa_run_stats": dsa_run_stats,
}
CONSTANTS = {
    "DSA_VERSION_MAJOR": DSA_VERSION_MAJOR,
    "DSA_VERSION_MINOR": DSA_VERSION_MINOR,
    "DSA_VERSION_PATCH": DSA_VERSION_PATCH,
    "DSA_API_LEVEL": DSA_API_LEVEL,
    "DSA_EXT_REQUIRED": DSA_EXT_REQUIRED,
    "DSA_OK": DSA_OK,
    "DSA_PENDING": DSA_PENDING,
    "DSA_END": DSA_END,
    "DSA_PARTIAL": DSA_PARTIAL,
    "DSA_REBUILT": DSA_REBUILT,
    "DSA_DEGRADED": DSA_DEGRADED,
    "DSA_ERROR_ARGUMENT": DSA_ERROR_ARGUMENT,
    "DSA_ERROR_ABI": DSA_ERROR_ABI,
    "DSA_ERROR_STATE": DSA_ERROR_STATE,
    "DSA_ERROR_BUSY": DSA_ERROR_BUSY,
    "DSA_ERROR_REENTRANT": DSA_ERROR_REENTRANT,
    "DSA_ERROR_CLOSED": DSA_ERROR_CLOSED,
    "DSA_ERROR_FORKED": DSA_ERROR_FORKED,
    "DSA_ERROR_UNSUPPORTED": DSA_ERROR_UNSUPPORTED,
    "DSA_ERROR_OUT_OF_MEMORY": DSA_ERROR_OUT_OF_MEMORY,
    "DSA_ERROR_OUT_OF_DEVICE_MEMORY": DSA_ERROR_OUT_OF_DEVICE_MEMORY,
    "DSA_ERROR_OVER_BUDGET": DSA_ERROR_OVER_BUDGET,
    "DSA_ERROR_DISK_FULL": DSA_ERROR_DISK_FULL,
    "DSA_ERROR_CONTEXT_FULL": DSA_ERROR_CONTEXT_FULL,
    "DSA_ERROR_LIMIT": DSA_ERROR_LIMIT,
    "DSA_ERROR_QUEUE_FULL": DSA_ERROR_QUEUE_FULL,
    "DSA_ERROR_NOT_FOUND": DSA_ERROR_NOT_FOUND,
    "DSA_ERROR_ACCESS": DSA_ERROR_ACCESS,
    "DSA_ERROR_IO": DSA_ERROR_IO,
    "DSA_ERROR_CORRUPT": DSA_ERROR_CORRUPT,
    "DSA_ERROR_HASH": DSA_ERROR_HASH,
    "DSA_ERROR_FORMAT": DSA_ERROR_FORMAT,
    "DSA_ERROR_MODEL": DSA_ERROR_MODEL,
    "DSA_ERROR_MISMATCH": DSA_ERROR_MISMATCH,
    "DSA_ERROR_NO_DEVICE": DSA_ERROR_NO_DEVICE,
    "DSA_ERROR_DRIVER": DSA_ERROR_DRIVER,
    "DSA_ERROR_BACKEND": DSA_ERROR_BACKEND,
    "DSA_ERROR_DEVICE_LOST": DSA_ERROR_DEVICE_LOST,
    "DSA_ERROR_DEVICE_FAULT": DSA_ERROR_DEVICE_FAULT,
    "DSA_ERROR_NUMERIC": DSA_ERROR_NUMERIC,
    "DSA_ERROR_UTF8": DSA_ERROR_UTF8,
    "DSA_ERROR_IMAGE": DSA_ERROR_IMAGE,
    "DSA_ERROR_SCHEMA": DSA_ERROR_SCHEMA,
    "DSA_ERROR_TEMPLATE": DSA_ERROR_TEMPLATE,
    "DSA_ERROR_JSON": DSA_ERROR_JSON,
    "DSA_ERROR_CANCELLED": DSA_ERROR_CANCELLED,
    "DSA_ERROR_DEADLINE": DSA_ERROR_DEADLINE,
    "DSA_ERROR_CALLBACK": DSA_ERROR_CALLBACK,
    "DSA_ERROR_INTERNAL": DSA_ERROR_INTERNAL,
    "DSA_ERROR_WORKER_LOST": DSA_ERROR_WORKER_LOST,
    "DSA_FIX_NONE": DSA_FIX_NONE,
    "DSA_FIX_INPUT": DSA_FIX_INPUT,
    "DSA_FIX_SHORTEN": DSA_FIX_SHORTEN,
    "DSA_FIX_LOWER_BUDGET": DSA_FIX_LOWER_BUDGET,
    "DSA_FIX_FREE_MEMORY": DSA_FIX_FREE_MEMORY,
    "DSA_FIX_UPDATE_DRIVER": DSA_FIX_UPDATE_DRIVER,
    "DSA_FIX_DOWNLOAD_AGAIN": DSA_FIX_DOWNLOAD_AGAIN,
    "DSA_FIX_RESUME": DSA_FIX_RESUME,
    "DSA_FIX_RESTART_PROCESS": DSA_FIX_RESTART_PROCESS,
    "DSA_FIX_RETRY": DSA_FIX_RETRY,
    "DSA_FIX_REPORT": DSA_FIX_REPORT,
    "DSA_CONTINUE": DSA_CONTINUE,
    "DSA_STOP_KEEP": DSA_STOP_KEEP,
    "DSA_STOP_ROLLBACK": DSA_STOP_ROLLBACK,
    "DSA_ISOLATE_NONE": DSA_ISOLATE_NONE,
    "DSA_ISOLATE_PROCESS": DSA_ISOLATE_PROCESS,
    "DSA_LOG_OFF": DSA_LOG_OFF,
    "DSA_LOG_ERROR": DSA_LOG_ERROR,
    "DSA_LOG_WARNING": DSA_LOG_WARNING,
    "DSA_LOG_INFO": DSA_LOG_INFO,
    "DSA_LOG_DEBUG": DSA_LOG_DEBUG,
    "DSA_TIER_DEVICE": DSA_TIER_DEVICE,
    "DSA_TIER_HOST": DSA_TIER_HOST,
    "DSA_TIER_DISK": DSA_TIER_DISK,
    "DSA_GOAL_BALANCED": DSA_GOAL_BALANCED,
    "DSA_GOAL_FIRST_TOKEN": DSA_GOAL_FIRST_TOKEN,
    "DSA_GOAL_THROUGHPUT": DSA_GOAL_THROUGHPUT,
    "DSA_GOAL_QUIET": DSA_GOAL_QUIET,
    "DSA_KV_MODEL": DSA_KV_MODEL,
    "DSA_KV_BF16": DSA_KV_BF16,
    "DSA_KV_FP8": DSA_KV_FP8,
    "DSA_BOUND_NONE": DSA_BOUND_NONE,
    "DSA_BOUND_COMPUTE": DSA_BOUND_COMPUTE,
    "DSA_BOUND_DEVICE_MEMORY": DSA_BOUND_DEVICE_MEMORY,
    "DSA_BOUND_COPY": DSA_BOUND_COPY,
    "DSA_BOUND_DISK": DSA_BOUND_DISK,
    "DSA_BOUND_HOST": DSA_BOUND_HOST,
    "DSA_BOUND_QUEUE": DSA_BOUND_QUEUE,
    "DSA_BOUND_CONSUMER": DSA_BOUND_CONSUMER,
    "DSA_TEXT_CONTROL": DSA_TEXT_CONTROL,
    "DSA_READY_FIRST_TOKEN": DSA_READY_FIRST_TOKEN,
    "DSA_READY_RESIDENT": DSA_READY_RESIDENT,
    "DSA_REPRO_FAST": DSA_REPRO_FAST,
    "DSA_REPRO_STABLE": DSA_REPRO_STABLE,
    "DSA_VERIFY_HEADERS": DSA_VERIFY_HEADERS,
    "DSA_VERIFY_IN_BACKGROUND": DSA_VERIFY_IN_BACKGROUND,
    "DSA_VERIFY_BEFORE_USE": DSA_VERIFY_BEFORE_USE,
    "DSA_STAGE_OPEN": DSA_STAGE_OPEN,
    "DSA_STAGE_WEIGHTS": DSA_STAGE_WEIGHTS,
    "DSA_STAGE_EXPERTS": DSA_STAGE_EXPERTS,
    "DSA_STAGE_WARM_UP": DSA_STAGE_WARM_UP,
    "DSA_STAGE_SAVE": DSA_STAGE_SAVE,
    "DSA_STAGE_RESTORE": DSA_STAGE_RESTORE,
    "DSA_STAGE_PREFILL": DSA_STAGE_PREFILL,
    "DSA_STAGE_VERIFY": DSA_STAGE_VERIFY,
    "DSA_STAGE_IMAGE": DSA_STAGE_IMAGE,
    "DSA_MODEL_LOADING": DSA_MODEL_LOADING,
    "DSA_MODEL_READY": DSA_MODEL_READY,
    "DSA_MODEL_SUSPENDED": DSA_MODEL_SUSPENDED,
    "DSA_MODEL_LOST": DSA_MODEL_LOST,
    "DSA_MODEL_CLOSED": DSA_MODEL_CLOSED,
    "DSA_OVERFLOW_ERROR": DSA_OVERFLOW_ERROR,
    "DSA_OVERFLOW_FINISH": DSA_OVERFLOW_FINISH,
    "DSA_OVERFLOW_DROP_TURNS": DSA_OVERFLOW_DROP_TURNS,
    "DSA_CACHE_SHARED": DSA_CACHE_SHARED,
    "DSA_CACHE_PRIVATE": DSA_CACHE_PRIVATE,
    "DSA_SESSION_IDLE": DSA_SESSION_IDLE,
    "DSA_SESSION_RUNNING": DSA_SESSION_RUNNING,
    "DSA_SESSION_REBUILD": DSA_SESSION_REBUILD,
    "DSA_SESSION_CLOSED": DSA_SESSION_CLOSED,
    "DSA_PIXELS_RGB8": DSA_PIXELS_RGB8,
    "DSA_PIXELS_RGBA8": DSA_PIXELS_RGBA8,
    "DSA_PIXELS_BGRA8": DSA_PIXELS_BGRA8,
    "DSA_PIXELS_BGR8": DSA_PIXELS_BGR8,
    "DSA_PIXELS_GRAY8": DSA_PIXELS_GRAY8,
    "DSA_ROLE_SYSTEM": DSA_ROLE_SYSTEM,
    "DSA_ROLE_USER": DSA_ROLE_USER,
    "DSA_ROLE_ASSISTANT": DSA_ROLE_ASSISTANT,
    "DSA_ROLE_TOOL": DSA_ROLE_TOOL,
    "DSA_SAMPLE_MODEL": DSA_SAMPLE_MODEL,
    "DSA_SAMPLE_GREEDY": DSA_SAMPLE_GREEDY,
    "DSA_SAMPLE_CUSTOM": DSA_SAMPLE_CUSTOM,
    "DSA_PRIORITY_NORMAL": DSA_PRIORITY_NORMAL,
    "DSA_PRIORITY_INTERACTIVE": DSA_PRIORITY_INTERACTIVE,
    "DSA_PRIORITY_BACKGROUND": DSA_PRIORITY_BACKGROUND,
    "DSA_FEED_APPEND": DSA_FEED_APPEND,
    "DSA_FEED_FULL_HISTORY": DSA_FEED_FULL_HISTORY,
    "DSA_TOOLS_AUTO": DSA_TOOLS_AUTO,
    "DSA_TOOLS_NONE": DSA_TOOLS_NONE,
    "DSA_TOOLS_REQUIRED": DSA_TOOLS_REQUIRED,
    "DSA_EFFORT_MODEL": DSA_EFFORT_MODEL,
    "DSA_EFFORT_NONE": DSA_EFFORT_NONE,
    "DSA_EFFORT_LOW": DSA_EFFORT_LOW,
    "DSA_EFFORT_MEDIUM": DSA_EFFORT_MEDIUM,
    "DSA_EFFORT_HIGH": DSA_EFFORT_HIGH,
    "DSA_EVENT_START": DSA_EVENT_START,
    "DSA_EVENT_PREFILL": DSA_EVENT_PREFILL,
    "DSA_EVENT_TEXT": DSA_EVENT_TEXT,
    "DSA_EVENT_TOOL_BEGIN": DSA_EVENT_TOOL_BEGIN,
    "DSA_EVENT_TOOL_ARGUMENTS": DSA_EVENT_TOOL_ARGUMENTS,
    "DSA_EVENT_TOOL_END": DSA_EVENT_TOOL_END,
    "DSA_EVENT_NOTICE": DSA_EVENT_NOTICE,
    "DSA_EVENT_DONE": DSA_EVENT_DONE,
    "DSA_CHANNEL_ANSWER": DSA_CHANNEL_ANSWER,
    "DSA_CHANNEL_REASONING": DSA_CHANNEL_REASONING,
    "DSA_CHANNEL_TOOL": DSA_CHANNEL_TOOL,
    "DSA_NOTICE_TURNS_DROPPED": DSA_NOTICE_TURNS_DROPPED,
    "DSA_NOTICE_REBUILT": DSA_NOTICE_REBUILT,
    "DSA_NOTICE_PARKED": DSA_NOTICE_PARKED,
    "DSA_NOTICE_SLOWER": DSA_NOTICE_SLOWER,
    "DSA_FINISH_STOP": DSA_FINISH_STOP,
    "DSA_FINISH_STOP_TEXT": DSA_FINISH_STOP_TEXT,
    "DSA_FINISH_LENGTH": DSA_FINISH_LENGTH,
    "DSA_FINISH_CONTEXT": DSA_FINISH_CONTEXT,
    "DSA_FINISH_TOOL": DSA_FINISH_TOOL,
    "DSA_FINISH_GRAMMAR": DSA_FINISH_GRAMMAR,
    "DSA_FINISH_CANCELLED": DSA_FINISH_CANCELLED,
    "DSA_FINISH_DEADLINE": DSA_FINISH_DEADLINE,
    "DSA_FINISH_ERROR": DSA_FINISH_ERROR,
    "DSA_ADVICE_NONE": DSA_ADVICE_NONE,
    "DSA_ADVICE_MORE_DEVICE_MEMORY": DSA_ADVICE_MORE_DEVICE_MEMORY,
    "DSA_ADVICE_MORE_HOST_MEMORY": DSA_ADVICE_MORE_HOST_MEMORY,
    "DSA_ADVICE_FASTER_DISK": DSA_ADVICE_FASTER_DISK,
    "DSA_ADVICE_SHORTER_CONTEXT": DSA_ADVICE_SHORTER_CONTEXT,
    "DSA_ADVICE_FEWER_SESSIONS": DSA_ADVICE_FEWER_SESSIONS,
    "DSA_ADVICE_READ_FASTER": DSA_ADVICE_READ_FASTER,
    "DSA_ADVICE_SAVE_PROFILE": DSA_ADVICE_SAVE_PROFILE,
}


class Library:
    """The functions of one loaded library."""

    dsa_version: Callable[[], int]
    dsa_version_string: Callable[[], bytes]
    dsa_api_level: Callable[[], int]
    dsa_abi_json: Callable[[], bytes]
    dsa_has_feature: Callable[[Any], int]
    dsa_status_name: Callable[[int], bytes]
    dsa_last_error: Callable[[Any], int]
    dsa_runtime_create: Callable[[Any, Any], int]
    dsa_runtime_retain: Callable[[Any], None]
    dsa_runtime_release: Callable[[Any], None]
    dsa_runtime_set_log: Callable[[Any, int, Any, Any], int]
    dsa_runtime_count_devices: Callable[[Any, Any], int]
    dsa_runtime_get_device: Callable[[Any, int, Any], int]
    dsa_package_open: Callable[[Any, Any, Any], int]
    dsa_package_retain: Callable[[Any], None]
    dsa_package_release: Callable[[Any], None]
    dsa_package_get_info: Callable[[Any, Any], int]
    dsa_package_get_meta: Callable[[Any, Any, Any], int]
    dsa_plan_create: Callable[[Any, Any, Any], int]
    dsa_plan_release: Callable[[Any], None]
    dsa_plan_get: Callable[[Any, Any], int]
    dsa_plan_explain: Callable[[Any, Any], int]
    dsa_model_load: Callable[[Any, Any, Any, Any, Any, Any], int]
    dsa_model_load_path: Callable[[Any, Any, Any, Any, Any], int]
    dsa_model_retain: Callable[[Any], None]
    dsa_model_release: Callable[[Any], None]
    dsa_model_close: Callable[[Any, int], int]
    dsa_model_get_stats: Callable[[Any, Any], int]
    dsa_model_tokenize: Callable[[Any, Any, int, int, Any, int, Any], int]
    dsa_model_detokenize: Callable[[Any, Any, int, int, Any, int, Any], int]
    dsa_op_wait: Callable[[Any, int, Any], int]
    dsa_op_cancel: Callable[[Any], int]
    dsa_op_get_error: Callable[[Any, Any], int]
    dsa_op_release: Callable[[Any], None]
    dsa_image_from_file: Callable[[Any, Any, Any, Any], int]
    dsa_image_from_memory: Callable[[Any, Any, int, Any, Any], int]
    dsa_image_from_pixels: Callable[[Any, Any, Any, Any], int]
    dsa_image_retain: Callable[[Any], None]
    dsa_image_release: Callable[[Any], None]
    dsa_image_get_size: Callable[[Any, Any, Any], int]
    dsa_image_get_id: Callable[[Any, Any], int]
    dsa_image_prepare: Callable[[Any, Any, Any], int]
    dsa_prompt_create: Callable[[Any, Any], int]
    dsa_prompt_release: Callable[[Any], None]
    dsa_prompt_clear: Callable[[Any], int]
    dsa_prompt_message: Callable[[Any, int], int]
    dsa_prompt_text: Callable[[Any, Any, int], int]
    dsa_prompt_markup: Callable[[Any, Any, int], int]
    dsa_prompt_tokens: Callable[[Any, Any, int], int]
    dsa_prompt_add_json: Callable[[Any, Any, int], int]
    dsa_prompt_reasoning: Callable[[Any, Any, int], int]
    dsa_prompt_tool_call: Callable[[Any, Any, Any, Any, int], int]
    dsa_prompt_tool_result: Callable[[Any, Any, Any, int], int]
    dsa_prompt_set_tools: Callable[[Any, Any, int], int]
    dsa_prompt_image: Callable[[Any, Any], int]
    dsa_prompt_bind_image: Callable[[Any, Any, Any], int]
    dsa_prompt_measure: Callable[[Any, Any, Any, int, Any], int]
    dsa_prompt_render: Callable[[Any, Any, Any, int, Any], int]
    dsa_session_create: Callable[[Any, Any, Any], int]
    dsa_session_retain: Callable[[Any], None]
    dsa_session_release: Callable[[Any], None]
    dsa_session_get_info: Callable[[Any, Any], int]
    dsa_session_cancel: Callable[[Any, int], int]
    dsa_session_prefill: Callable[[Any, Any, Any, Any, Any], int]
    dsa_session_generate: Callable[[Any, Any, Any, Any, Any, Any], int]
    dsa_session_ask: Callable[[Any, Any, int, Any, Any], int]
    dsa_run_start: Callable[[Any, Any, Any, Any], int]
    dsa_run_next: Callable[[Any, int, Any], int]
    dsa_run_cancel: Callable[[Any, int], int]
    dsa_run_get_result: Callable[[Any, Any], int]
    dsa_run_get_error: Callable[[Any, Any], int]
    dsa_run_get_text: Callable[[Any, int, Any], int]
    dsa_run_get_tool_call: Callable[[Any, int, Any], int]
    dsa_run_get_stats: Callable[[Any, Any], int]
    dsa_run_retain: Callable[[Any], None]
    dsa_run_release: Callable[[Any], None]

    def __init__(self, library: c.CDLL) -> None:
        self.dsa_version = _bind(library, "dsa_version", c.c_uint32)
        self.dsa_version_string = _bind(library, "dsa_version_string", c.c_char_p)
        self.dsa_api_level = _bind(library, "dsa_api_level", c.c_uint32)
        self.dsa_abi_json = _bind(library, "dsa_abi_json", c.c_char_p)
        self.dsa_has_feature = _bind(library, "dsa_has_feature", c.c_int32, c.c_char_p)
        self.dsa_status_name = _bind(library, "dsa_status_name", c.c_char_p, c.c_int32)
        self.dsa_last_error = _bind(library, "dsa_last_error", c.c_int32, c.POINTER(dsa_error))
        self.dsa_runtime_create = _bind(
            library, "dsa_runtime_create", c.c_int32, c.POINTER(dsa_runtime_options), c.POINTER(c.c_void_p),
        )
        self.dsa_runtime_retain = _bind(library, "dsa_runtime_retain", None, c.c_void_p)
        self.dsa_runtime_release = _bind(library, "dsa_runtime_release", None, c.c_void_p)
        self.dsa_runtime_set_log = _bind(
            library, "dsa_runtime_set_log", c.c_int32, c.c_void_p, c.c_int32, dsa_log_fn, c.c_void_p,
        )
        self.dsa_runtime_count_devices = _bind(
            library, "dsa_runtime_count_devices", c.c_int32, c.c_void_p, c.POINTER(c.c_size_t),
        )
        self.dsa_runtime_get_device = _bind(
            library, "dsa_runtime_get_device", c.c_int32, c.c_void_p, c.c_size_t, c.POINTER(dsa_device_info),
        )
        self.dsa_package_open = _bind(
            library, "dsa_package_open", c.c_int32, c.c_void_p, c.POINTER(dsa_source), c.POINTER(c.c_void_p),
        )
        self.dsa_package_retain = _bind(library, "dsa_package_retain", None, c.c_void_p)
        self.dsa_package_release = _bind(library, "dsa_package_release", None, c.c_void_p)
        self.dsa_package_get_info = _bind(
            library, "dsa_package_get_info", c.c_int32, c.c_void_p, c.POINTER(dsa_package_info),
        )
        self.dsa_package_get_meta = _bind(
            library, "dsa_package_get_meta", c.c_int32, c.c_void_p, c.c_char_p, c.POINTER(Str),
        )
        self.dsa_plan_create = _bind(
            library, "dsa_plan_create", c.c_int32, c.c_void_p, c.POINTER(dsa_plan_request),
            c.POINTER(c.c_void_p),
        )
        self.dsa_plan_release = _bind(library, "dsa_plan_release", None, c.c_void_p)
        self.dsa_plan_get = _bind(library, "dsa_plan_get", c.c_int32, c.c_void_p, c.POINTER(dsa_plan_summary))
        self.dsa_plan_explain = _bind(library, "dsa_plan_explain", c.c_int32, c.c_void_p, c.POINTER(Str))
        self.dsa_model_load = _bind(
            library, "dsa_model_load", c.c_int32, c.c_void_p, c.c_void_p, c.POINTER(dsa_load_options),
            dsa_progress_fn, c.c_void_p, c.POINTER(c.c_void_p),
        )
        self.dsa_model_load_path = _bind(
            library, "dsa_model_load_path", c.c_int32, c.c_void_p, c.c_char_p, dsa_progress_fn, c.c_void_p,
            c.POINTER(c.c_void_p),
        )
        self.dsa_model_retain = _bind(library, "dsa_model_retain", None, c.c_void_p)
        self.dsa_model_release = _bind(library, "dsa_model_release", None, c.c_void_p)
        self.dsa_model_close = _bind(library, "dsa_model_close", c.c_int32, c.c_void_p, c.c_int64)
        self.dsa_model_get_stats = _bind(
            library, "dsa_model_get_stats", c.c_int32, c.c_void_p, c.POINTER(dsa_model_stats),
        )
        self.dsa_model_tokenize = _bind(
            library, "dsa_model_tokenize", c.c_int32, c.c_void_p, c.c_char_p, c.c_size_t, c.c_uint32,
            c.POINTER(c.c_int32), c.c_size_t, c.POINTER(c.c_size_t),
        )
        self.dsa_model_detokenize = _bind(
            library, "dsa_model_detokenize", c.c_int32, c.c_void_p, c.POINTER(c.c_int32), c.c_size_t,
            c.c_uint32, c.POINTER(c.c_char), c.c_size_t, c.POINTER(c.c_size_t),
        )
        self.dsa_op_wait = _bind(
            library, "dsa_op_wait", c.c_int32, c.c_void_p, c.c_int64, c.POINTER(dsa_progress),
        )
        self.dsa_op_cancel = _bind(library, "dsa_op_cancel", c.c_int32, c.c_void_p)
        self.dsa_op_get_error = _bind(
            library, "dsa_op_get_error", c.c_int32, c.c_void_p, c.POINTER(dsa_error),
        )
        self.dsa_op_release = _bind(library, "dsa_op_release", None, c.c_void_p)
        self.dsa_image_from_file = _bind(
            library, "dsa_image_from_file", c.c_int32, c.c_void_p, c.c_char_p, c.POINTER(dsa_image_options),
            c.POINTER(c.c_void_p),
        )
        self.dsa_image_from_memory = _bind(
            library, "dsa_image_from_memory", c.c_int32, c.c_void_p, c.c_void_p, c.c_size_t,
            c.POINTER(dsa_image_options), c.POINTER(c.c_void_p),
        )
        self.dsa_image_from_pixels = _bind(
            library, "dsa_image_from_pixels", c.c_int32, c.c_void_p, c.POINTER(dsa_pixels),
            c.POINTER(dsa_image_options), c.POINTER(c.c_void_p),
        )
        self.dsa_image_retain = _bind(library, "dsa_image_retain", None, c.c_void_p)
        self.dsa_image_release = _bind(library, "dsa_image_release", None, c.c_void_p)
        self.dsa_image_get_size = _bind(
            library, "dsa_image_get_size", c.c_int32, c.c_void_p, c.POINTER(c.c_uint32),
            c.POINTER(c.c_uint32),
        )
        self.dsa_image_get_id = _bind(library, "dsa_image_get_id", c.c_int32, c.c_void_p, c.POINTER(Str))
        self.dsa_image_prepare = _bind(
            library, "dsa_image_prepare", c.c_int32, c.c_void_p, c.c_void_p, c.POINTER(c.c_void_p),
        )
        self.dsa_prompt_create = _bind(
            library, "dsa_prompt_create", c.c_int32, c.c_void_p, c.POINTER(c.c_void_p),
        )
        self.dsa_prompt_release = _bind(library, "dsa_prompt_release", None, c.c_void_p)
        self.dsa_prompt_clear = _bind(library, "dsa_prompt_clear", c.c_int32, c.c_void_p)
        self.dsa_prompt_message = _bind(library, "dsa_prompt_message", c.c_int32, c.c_void_p, c.c_int32)
        self.dsa_prompt_text = _bind(
            library, "dsa_prompt_text", c.c_int32, c.c_void_p, c.c_char_p, c.c_size_t,
        )
        self.dsa_prompt_markup = _bind(
            library, "dsa_prompt_markup", c.c_int32, c.c_void_p, c.c_char_p, c.c_size_t,
        )
        self.dsa_prompt_tokens = _bind(
            library, "dsa_prompt_tokens", c.c_int32, c.c_void_p, c.POINTER(c.c_int32), c.c_size_t,
        )
        self.dsa_prompt_add_json = _bind(
            library, "dsa_prompt_add_json", c.c_int32, c.c_void_p, c.c_char_p, c.c_size_t,
        )
        self.dsa_prompt_reasoning = _bind(
            library, "dsa_prompt_reasoning", c.c_int32, c.c_void_p, c.c_char_p, c.c_size_t,
        )
        self.dsa_prompt_tool_call = _bind(
            library, "dsa_prompt_tool_call", c.c_int32, c.c_void_p, c.c_char_p, c.c_char_p, c.c_char_p,
            c.c_size_t,
        )
        self.dsa_prompt_tool_result = _bind(
            library, "dsa_prompt_tool_result", c.c_int32, c.c_void_p, c.c_char_p, c.c_char_p, c.c_size_t,
        )
        self.dsa_prompt_set_tools = _bind(
            library, "dsa_prompt_set_tools", c.c_int32, c.c_void_p, c.c_char_p, c.c_size_t,
        )
        self.dsa_prompt_image = _bind(library, "dsa_prompt_image", c.c_int32, c.c_void_p, c.c_void_p)
        self.dsa_prompt_bind_image = _bind(
            library, "dsa_prompt_bind_image", c.c_int32, c.c_void_p, c.c_char_p, c.c_void_p,
        )
        self.dsa_prompt_measure = _bind(
            library, "dsa_prompt_measure", c.c_int32, c.c_void_p, c.c_void_p, c.c_void_p, c.c_int32,
            c.POINTER(dsa_prompt_cost),
        )
        self.dsa_prompt_render = _bind(
            library, "dsa_prompt_render", c.c_int32, c.c_void_p, c.c_void_p, c.POINTER(c.c_char), c.c_size_t,
            c.POINTER(c.c_size_t),
        )
        self.dsa_session_create = _bind(
            library, "dsa_session_create", c.c_int32, c.c_void_p, c.POINTER(dsa_session_options),
            c.POINTER(c.c_void_p),
        )
        self.dsa_session_retain = _bind(library, "dsa_session_retain", None, c.c_void_p)
        self.dsa_session_release = _bind(library, "dsa_session_release", None, c.c_void_p)
        self.dsa_session_get_info = _bind(
            library, "dsa_session_get_info", c.c_int32, c.c_void_p, c.POINTER(dsa_session_info),
        )
        self.dsa_session_cancel = _bind(library, "dsa_session_cancel", c.c_int32, c.c_void_p, c.c_int32)
        self.dsa_session_prefill = _bind(
            library, "dsa_session_prefill", c.c_int32, c.c_void_p, c.c_void_p, dsa_progress_fn, c.c_void_p,
            c.POINTER(c.c_uint32),
        )
        self.dsa_session_generate = _bind(
            library, "dsa_session_generate", c.c_int32, c.c_void_p, c.c_void_p, c.POINTER(dsa_run_options),
            dsa_event_fn, c.c_void_p, c.POINTER(dsa_result),
        )
        self.dsa_session_ask = _bind(
            library, "dsa_session_ask", c.c_int32, c.c_void_p, c.c_char_p, c.c_size_t, dsa_event_fn,
            c.c_void_p,
        )
        self.dsa_run_start = _bind(
            library, "dsa_run_start", c.c_int32, c.c_void_p, c.c_void_p, c.POINTER(dsa_run_options),
            c.POINTER(c.c_void_p),
        )
        self.dsa_run_next = _bind(
            library, "dsa_run_next", c.c_int32, c.c_void_p, c.c_int64, c.POINTER(dsa_event),
        )
        self.dsa_run_cancel = _bind(library, "dsa_run_cancel", c.c_int32, c.c_void_p, c.c_int32)
        self.dsa_run_get_result = _bind(
            library, "dsa_run_get_result", c.c_int32, c.c_void_p, c.POINTER(dsa_result),
        )
        self.dsa_run_get_error = _bind(
            library, "dsa_run_get_error", c.c_int32, c.c_void_p, c.POINTER(dsa_error),
        )
        self.dsa_run_get_text = _bind(
            library, "dsa_run_get_text", c.c_int32, c.c_void_p, c.c_int32, c.POINTER(Str),
        )
        self.dsa_run_get_tool_call = _bind(
            library, "dsa_run_get_tool_call", c.c_int32, c.c_void_p, c.c_uint32, c.POINTER(dsa_tool_call),
        )
        self.dsa_run_get_stats = _bind(
            library, "dsa_run_get_stats", c.c_int32, c.c_void_p, c.POINTER(dsa_run_stats),
        )
        self.dsa_run_retain = _bind(library, "dsa_run_retain", None, c.c_void_p)
        self.dsa_run_release = _bind(library, "dsa_run_release", None, c.c_void_p)
