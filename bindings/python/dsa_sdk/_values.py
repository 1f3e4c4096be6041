"""Events, results and options as frozen dataclasses."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from ._constants import Advice, Bound, Channel, Finish, ModelState, NoticeKind, SessionState, Stage, Status, Tier

# ---- events ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Start:
    """The run left the queue."""

    run_id: int


@dataclass(frozen=True, slots=True)
class Prefill:
    """Tokens of the prompt that are computed."""

    done: int
    total: int


@dataclass(frozen=True, slots=True)
class Text:
    """A piece of the answer: whole characters."""

    text: str
    num_tokens: int


@dataclass(frozen=True, slots=True)
class Reasoning:
    """A piece of what the model thinks before it answers."""

    text: str
    num_tokens: int


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A piece of a call that the model writes."""

    text: str
    num_tokens: int


@dataclass(frozen=True, slots=True)
class Notice:
    kind: NoticeKind


@dataclass(frozen=True, slots=True)
class Done:
    """The last event of every run."""

    finish: Finish
    stop_index: int


@dataclass(frozen=True, slots=True)
class Unknown:
    """An event of a later library."""

    type: int
    text: str


Event = Start | Prefill | Text | Reasoning | ToolCall | Notice | Done | Unknown

# ---- results --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Result:
    """How a run ended and what it used; `stop_index` says which stop text ended it."""

    status: Status
    finish: Finish
    stop_index: int
    prompt_tokens: int
    reused_tokens: int
    image_tokens: int
    output_tokens: int
    reasoning_tokens: int
    seed: int
    run_id: int


@dataclass(frozen=True, slots=True)
class RunStats:
    """Where the time of a run went."""

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
    bound: Bound
    advice: Advice


@dataclass(frozen=True, slots=True)
class Progress:
    """Bytes or tokens."""

    done: int
    total: int
    stage: Stage


@dataclass(frozen=True, slots=True)
class PromptCost:
    text_tokens: int
    image_tokens: int
    num_tokens: int
    reusable_tokens: int
    fits: bool
    prefill_seconds: float


@dataclass(frozen=True, slots=True)
class DeviceInfo:
    """`why_not` is empty if the device is usable."""

    id: str
    name: str
    driver: str
    usable: bool
    why_not: str
    why_not_code: Status
    integrated: bool
    drives_display: bool
    total_bytes: int
    free_bytes: int


@dataclass(frozen=True, slots=True)
class PackageInfo:
    name: str
    family: str
    license: str
    content_id: str
    parameters: int
    active_parameters: int
    weight_bytes: int
    expert_bytes: int
    layers: int
    experts: int
    experts_per_token: int
    max_context: int
    has_images: bool
    has_tools: bool
    has_reasoning: bool
    has_draft: bool
    kv_bytes_per_token: int
    checkpoint_bytes: int


@dataclass(frozen=True, slots=True)
class PlanSummary:
    """With full contexts; the experts that are on no device and not in memory are read from the disk."""

    feasible: bool
    bound: Bound
    context_tokens: int
    sessions: int
    device_bytes: int
    host_bytes: int
    disk_bytes_per_token: int
    experts_on_device: float
    experts_on_host: float


@dataclass(frozen=True, slots=True)
class ModelStats:
    state: ModelState
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
    expert_hit_rate: float
    draft_accept_rate: float
    images_encoded: int
    image_hits: int
    expert_rows: int
    expert_rows_fp8: int
    fp8_workspace_bytes: int


@dataclass(frozen=True, slots=True)
class SessionInfo:
    state: SessionState
    tier: Tier
    num_tokens: int
    max_tokens: int
    turns: int
    images: int
    checkpoints: int
    device_bytes: int
    host_bytes: int
    disk_bytes: int
    shared_bytes: int


# ---- options --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampling:
    """How the next token is drawn; the defaults change nothing. `bias` is added to the logits of single tokens."""

    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    repeat_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    repeat_window: int = 64
    bias: Mapping[int, float] = field(default_factory=dict)


TEXT_EVENTS: dict[int, type[Text] | type[Reasoning] | type[ToolCall]] = {
    int(Channel.ANSWER): Text,
    int(Channel.REASONING): Reasoning,
    int(Channel.TOOL): ToolCall,
}
