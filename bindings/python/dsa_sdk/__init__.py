"""DSA SDK: language models with sparse attention inside your own program.

    import dsa_sdk as dsa

    with dsa.Runtime().load("models/tiny") as model, model.session() as chat:
        for text in chat.run("Who are you?").text():
            print(text, end="", flush=True)
"""

from . import _c
from ._constants import (
    Advice,
    Bound,
    Channel,
    Finish,
    Fix,
    ModelState,
    NoticeKind,
    Role,
    SessionState,
    Stage,
    Status,
    Tier,
)
from ._errors import (
    AbiError,
    AccessDenied,
    ArgumentError,
    Busy,
    CallbackFailed,
    Cancelled,
    Closed,
    ContentError,
    ContextFull,
    DeadlineExceeded,
    DeviceFault,
    Error,
    FileFault,
    FlowError,
    Forked,
    InternalError,
    LimitExceeded,
    MemoryShort,
    NotFound,
    QueueFull,
    Reentrant,
    RoomError,
    StateError,
    Unsupported,
)
from ._image import Image, Operation
from ._library import api_level, has_feature, library_path, load, version
from ._prompt import Prompt
from ._run import Pieces, Run
from ._runtime import Model, Package, Runtime
from ._session import RunOptions, Session
from ._values import (
    DeviceInfo,
    Done,
    Event,
    ModelStats,
    Notice,
    PackageInfo,
    Prefill,
    Progress,
    PromptCost,
    Reasoning,
    Result,
    RunStats,
    Sampling,
    SessionInfo,
    Start,
    Text,
    ToolCall,
    Unknown,
)

__version__ = f"{_c.DSA_VERSION_MAJOR}.{_c.DSA_VERSION_MINOR}.{_c.DSA_VERSION_PATCH}"
__all__ = [name for name in dir() if not name.startswith("_")]
