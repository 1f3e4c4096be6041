//! The constants of `dsa_sdk.h` as enumerations. A later library may answer with numbers that are not known here.

use dsa_sdk_sys as sys;

macro_rules! codes {
    ($(#[$note:meta])* $name:ident { $($variant:ident = $constant:ident),+ $(,)? }) => {
        $(#[$note])*
        #[non_exhaustive]
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum $name {
            $($variant,)+
            /// A number of a later library.
            Unknown(i32),
        }
        impl $name {
            /// What a number of `dsa_sdk.h` stands for.
            pub fn from_code(code: i32) -> Self {
                match code {
                    $(sys::$constant => Self::$variant,)+
                    other => Self::Unknown(other),
                }
            }
            /// The number in `dsa_sdk.h`.
            pub fn code(self) -> i32 {
                match self {
                    $(Self::$variant => sys::$constant,)+
                    Self::Unknown(code) => code,
                }
            }
        }
    };
}

codes! {
    /// What went wrong.
    ErrorKind {
        Argument = DSA_ERROR_ARGUMENT,
        Abi = DSA_ERROR_ABI,
        State = DSA_ERROR_STATE,
        Busy = DSA_ERROR_BUSY,
        Reentrant = DSA_ERROR_REENTRANT,
        Closed = DSA_ERROR_CLOSED,
        Forked = DSA_ERROR_FORKED,
        Unsupported = DSA_ERROR_UNSUPPORTED,
        OutOfMemory = DSA_ERROR_OUT_OF_MEMORY,
        OutOfDeviceMemory = DSA_ERROR_OUT_OF_DEVICE_MEMORY,
        OverBudget = DSA_ERROR_OVER_BUDGET,
        DiskFull = DSA_ERROR_DISK_FULL,
        ContextFull = DSA_ERROR_CONTEXT_FULL,
        Limit = DSA_ERROR_LIMIT,
        QueueFull = DSA_ERROR_QUEUE_FULL,
        NotFound = DSA_ERROR_NOT_FOUND,
        Access = DSA_ERROR_ACCESS,
        Io = DSA_ERROR_IO,
        Corrupt = DSA_ERROR_CORRUPT,
        Hash = DSA_ERROR_HASH,
        Format = DSA_ERROR_FORMAT,
        Model = DSA_ERROR_MODEL,
        Mismatch = DSA_ERROR_MISMATCH,
        NoDevice = DSA_ERROR_NO_DEVICE,
        Driver = DSA_ERROR_DRIVER,
        Backend = DSA_ERROR_BACKEND,
        DeviceLost = DSA_ERROR_DEVICE_LOST,
        DeviceFault = DSA_ERROR_DEVICE_FAULT,
        Numeric = DSA_ERROR_NUMERIC,
        Utf8 = DSA_ERROR_UTF8,
        Image = DSA_ERROR_IMAGE,
        Schema = DSA_ERROR_SCHEMA,
        Template = DSA_ERROR_TEMPLATE,
        Json = DSA_ERROR_JSON,
        Cancelled = DSA_ERROR_CANCELLED,
        Deadline = DSA_ERROR_DEADLINE,
        Callback = DSA_ERROR_CALLBACK,
        Internal = DSA_ERROR_INTERNAL,
        WorkerLost = DSA_ERROR_WORKER_LOST,
    }
}

codes! {
    /// What a program can do about an error.
    Fix {
        None = DSA_FIX_NONE,
        Input = DSA_FIX_INPUT,
        Shorten = DSA_FIX_SHORTEN,
        LowerBudget = DSA_FIX_LOWER_BUDGET,
        FreeMemory = DSA_FIX_FREE_MEMORY,
        UpdateDriver = DSA_FIX_UPDATE_DRIVER,
        DownloadAgain = DSA_FIX_DOWNLOAD_AGAIN,
        Resume = DSA_FIX_RESUME,
        RestartProcess = DSA_FIX_RESTART_PROCESS,
        Retry = DSA_FIX_RETRY,
        Report = DSA_FIX_REPORT,
    }
}

codes! {
    /// How a run ended.
    Finish {
        Stop = DSA_FINISH_STOP,
        StopText = DSA_FINISH_STOP_TEXT,
        Length = DSA_FINISH_LENGTH,
        Context = DSA_FINISH_CONTEXT,
        Tool = DSA_FINISH_TOOL,
        Grammar = DSA_FINISH_GRAMMAR,
        Cancelled = DSA_FINISH_CANCELLED,
        Deadline = DSA_FINISH_DEADLINE,
        Error = DSA_FINISH_ERROR,
    }
}

codes! {
    /// Where text belongs.
    Channel {
        Answer = DSA_CHANNEL_ANSWER,
        Reasoning = DSA_CHANNEL_REASONING,
        Tool = DSA_CHANNEL_TOOL,
    }
}

codes! {
    /// Who speaks in a message.
    Role {
        System = DSA_ROLE_SYSTEM,
        User = DSA_ROLE_USER,
        Assistant = DSA_ROLE_ASSISTANT,
        Tool = DSA_ROLE_TOOL,
    }
}

codes! {
    /// Something that the reader of a run should know.
    Notice {
        TurnsDropped = DSA_NOTICE_TURNS_DROPPED,
        Rebuilt = DSA_NOTICE_REBUILT,
        Parked = DSA_NOTICE_PARKED,
        Slower = DSA_NOTICE_SLOWER,
    }
}

codes! {
    /// What a progress callback reports on.
    Stage {
        Open = DSA_STAGE_OPEN,
        Weights = DSA_STAGE_WEIGHTS,
        Experts = DSA_STAGE_EXPERTS,
        WarmUp = DSA_STAGE_WARM_UP,
        Save = DSA_STAGE_SAVE,
        Restore = DSA_STAGE_RESTORE,
        Prefill = DSA_STAGE_PREFILL,
        Verify = DSA_STAGE_VERIFY,
        Image = DSA_STAGE_IMAGE,
    }
}

codes! {
    /// How a cache keeps its values: see `dsa_sdk.h`.
    KvFormat {
        Model = DSA_KV_MODEL,
        Bf16 = DSA_KV_BF16,
        Fp8 = DSA_KV_FP8,
    }
}

codes! {
    /// What limited a run.
    Bound {
        None = DSA_BOUND_NONE,
        Compute = DSA_BOUND_COMPUTE,
        DeviceMemory = DSA_BOUND_DEVICE_MEMORY,
        Copy = DSA_BOUND_COPY,
        Disk = DSA_BOUND_DISK,
        Host = DSA_BOUND_HOST,
        Queue = DSA_BOUND_QUEUE,
        Consumer = DSA_BOUND_CONSUMER,
    }
}

codes! {
    /// What a model is doing.
    ModelState {
        Loading = DSA_MODEL_LOADING,
        Ready = DSA_MODEL_READY,
        Suspended = DSA_MODEL_SUSPENDED,
        Lost = DSA_MODEL_LOST,
        Closed = DSA_MODEL_CLOSED,
    }
}

codes! {
    /// What a session is doing.
    SessionState {
        Idle = DSA_SESSION_IDLE,
        Running = DSA_SESSION_RUNNING,
        Rebuild = DSA_SESSION_REBUILD,
        Closed = DSA_SESSION_CLOSED,
    }
}

codes! {
    /// How much is written to the log.
    LogLevel {
        Off = DSA_LOG_OFF,
        Error = DSA_LOG_ERROR,
        Warning = DSA_LOG_WARNING,
        Info = DSA_LOG_INFO,
        Debug = DSA_LOG_DEBUG,
    }
}

codes! {
    /// Whether a run may think before it answers.
    Effort {
        Model = DSA_EFFORT_MODEL,
        None = DSA_EFFORT_NONE,
        Low = DSA_EFFORT_LOW,
        Medium = DSA_EFFORT_MEDIUM,
        High = DSA_EFFORT_HIGH,
    }
}

codes! {
    /// Which runs go first.
    Priority {
        Normal = DSA_PRIORITY_NORMAL,
        Interactive = DSA_PRIORITY_INTERACTIVE,
        Background = DSA_PRIORITY_BACKGROUND,
    }
}

codes! {
    /// What happens when the context is full.
    Overflow {
        Error = DSA_OVERFLOW_ERROR,
        Finish = DSA_OVERFLOW_FINISH,
        DropTurns = DSA_OVERFLOW_DROP_TURNS,
    }
}

/// What a stop leaves behind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// Prompt and answer so far stay in the session.
    Keep,
    /// The session is exactly as before the run.
    Rollback,
}

impl Stop {
    pub(crate) fn code(self) -> i32 {
        match self {
            Stop::Keep => sys::DSA_STOP_KEEP,
            Stop::Rollback => sys::DSA_STOP_ROLLBACK,
        }
    }
}
