//! Runtime, package and model: from a folder to loaded weights.

use crate::codes::{Bound, ErrorKind, Fix, KvFormat, LogLevel, ModelState};
use crate::error::Error;
use crate::raw::{self, text_of, OnProgress, Ref};
use crate::session::SessionBuilder;
use crate::values::{DeviceInfo, ModelStats, PackageInfo, PlanSummary, Progress};
use dsa_sdk_sys as sys;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// The version of the library that is loaded, such as "0.1.0 (cpu)".
pub fn version() -> String {
    raw::version_text()
}

/// The API level of the library that is loaded; compare it with the level that you need.
pub fn api_level() -> u32 {
    raw::version().1
}

/// Says whether this build of the library can do something: "cpu", "cuda", "images", ...
pub fn has_feature(name: &str) -> bool {
    raw::has_feature(name)
}

/// Refuses a library of another major version, or one that is older than the header of this crate.
fn check_library() -> Result<(), Error> {
    let (version, level) = raw::version();
    if version / 10_000 == sys::DSA_VERSION_MAJOR && level >= sys::DSA_API_LEVEL {
        return Ok(());
    }
    let message = format!(
        "the library is DSA SDK {}, level {level}; this crate was made for {}.{}.{}, level {}",
        raw::version_text(),
        sys::DSA_VERSION_MAJOR,
        sys::DSA_VERSION_MINOR,
        sys::DSA_VERSION_PATCH,
        sys::DSA_API_LEVEL
    );
    Err(Error::new(ErrorKind::Abi, Fix::None, message))
}

/// Threads and log of one user of the library. Cheap; several may exist.
#[derive(Clone)]
pub struct Runtime {
    pub(crate) raw: Arc<raw::Runtime>,
}

/// Options of a runtime.
#[derive(Default)]
pub struct RuntimeBuilder {
    max_threads: u32,
    log: Option<(LogLevel, Box<raw::LogSink>)>,
}

impl RuntimeBuilder {
    /// Per model; 0: all cores but one.
    #[must_use]
    pub fn max_threads(mut self, threads: u32) -> Self {
        self.max_threads = threads;
        self
    }

    /// Receives level, place and line; from any thread, one call at a time. May call nothing of this crate.
    #[must_use]
    pub fn log(mut self, level: LogLevel, sink: impl FnMut(LogLevel, &str, &str) + Send + 'static) -> Self {
        self.log = Some((level, Box::new(Mutex::new(Box::new(sink)))));
        self
    }

    pub fn build(self) -> Result<Runtime, Error> {
        check_library()?;
        Ok(Runtime { raw: Arc::new(raw::Runtime::new(self.max_threads, self.log)?) })
    }
}

impl Runtime {
    /// A runtime with all defaults: silent.
    pub fn new() -> Result<Self, Error> {
        Self::builder().build()
    }

    pub fn builder() -> RuntimeBuilder {
        RuntimeBuilder::default()
    }

    /// Opens a model folder and loads it.
    pub fn load(&self, path: impl AsRef<Path>) -> Result<Model, Error> {
        Package::open(self, path)?.load()
    }

    /// All devices, also those that cannot be used, each with its reason.
    pub fn devices(&self) -> Result<Vec<DeviceInfo>, Error> {
        (0..raw::count_devices(&self.raw)?)
            .map(|index| {
                raw::device(&self.raw, index, |d| DeviceInfo {
                    id: text_of(d.id),
                    name: text_of(d.name),
                    driver: text_of(d.driver),
                    why_not: (d.usable == 0)
                        .then(|| (ErrorKind::from_code(d.why_not_code), text_of(d.why_not))),
                    integrated: d.integrated != 0,
                    drives_display: d.drives_display != 0,
                    total_bytes: d.total_bytes,
                    free_bytes: d.free_bytes,
                })
            })
            .collect()
    }
}

#[cfg(unix)]
pub(crate) fn path_bytes(path: &Path) -> Result<&[u8], Error> {
    use std::os::unix::ffi::OsStrExt;
    Ok(path.as_os_str().as_bytes())
}

#[cfg(not(unix))]
pub(crate) fn path_bytes(path: &Path) -> Result<&[u8], Error> {
    let text =
        path.to_str().ok_or_else(|| Error::argument(format!("'{}' is not Unicode", path.display())))?;
    Ok(text.as_bytes())
}

/// A model on disk: headers read, no weights.
#[derive(Clone)]
pub struct Package {
    raw: Ref<sys::dsa_package>,
    runtime: Arc<raw::Runtime>,
}

impl Package {
    /// Opens a model folder.
    pub fn open(runtime: &Runtime, path: impl AsRef<Path>) -> Result<Self, Error> {
        let raw = raw::open_package(&runtime.raw, path_bytes(path.as_ref())?)?;
        Ok(Package { raw, runtime: runtime.raw.clone() })
    }

    pub fn info(&self) -> Result<PackageInfo, Error> {
        raw::package_info(&self.raw, |i| PackageInfo {
            name: text_of(i.name),
            family: text_of(i.family),
            license: text_of(i.license),
            content_id: text_of(i.content_id),
            parameters: i.parameters,
            active_parameters: i.active_parameters,
            weight_bytes: i.weight_bytes,
            expert_bytes: i.expert_bytes,
            layers: i.layers,
            experts: i.experts,
            experts_per_token: i.experts_per_token,
            max_context: i.max_context,
            has_images: i.has_images != 0,
            has_tools: i.has_tools != 0,
            has_reasoning: i.has_reasoning != 0,
            has_draft: i.has_draft != 0,
            kv_bytes_per_token: i.kv_bytes_per_token,
            checkpoint_bytes: i.checkpoint_bytes,
        })
    }

    /// One value of config.json as text; nested keys are written with a dot.
    pub fn meta(&self, key: &str) -> Result<String, Error> {
        raw::package_meta(&self.raw, key)
    }

    /// What loading would cost on this machine as it is now.
    pub fn plan(&self) -> PlanBuilder<'_> {
        PlanBuilder {
            package: self,
            device: None,
            context_tokens: 0,
            sessions: 0,
            device_bytes: 0,
            leave_device_bytes: 0,
            host_bytes: 0,
            leave_host_bytes: 0,
            kv_format: KvFormat::Model,
        }
    }

    /// Loads the weights on this thread.
    pub fn load(&self) -> Result<Model, Error> {
        self.loader().load()
    }

    pub fn loader(&self) -> Loader<'_> {
        Loader { package: self, plan: None, queue_limit: 0, on_progress: None }
    }
}

/// What a plan has to hold. Zero: chosen from what is free.
pub struct PlanBuilder<'a> {
    package: &'a Package,
    device: Option<String>,
    context_tokens: u32,
    sessions: u32,
    device_bytes: u64,
    leave_device_bytes: u64,
    host_bytes: u64,
    leave_host_bytes: u64,
    kv_format: KvFormat,
}

impl PlanBuilder<'_> {
    /// An id of `Runtime::devices`, "cuda" or "cpu". Without it: the first GPU where it fits, else the CPU.
    #[must_use]
    pub fn device(mut self, id: &str) -> Self {
        self.device = Some(id.to_owned());
        self
    }

    /// 0: the longest that fits.
    #[must_use]
    pub fn context_tokens(mut self, tokens: u32) -> Self {
        self.context_tokens = tokens;
        self
    }

    /// Conversations at the same time; 0: 1.
    #[must_use]
    pub fn sessions(mut self, sessions: u32) -> Self {
        self.sessions = sessions;
        self
    }

    /// A ceiling of the device.
    #[must_use]
    pub fn device_bytes(mut self, bytes: u64) -> Self {
        self.device_bytes = bytes;
        self
    }

    /// Of the device, always left to others.
    #[must_use]
    pub fn leave_device_bytes(mut self, bytes: u64) -> Self {
        self.leave_device_bytes = bytes;
        self
    }

    /// A ceiling.
    #[must_use]
    pub fn host_bytes(mut self, bytes: u64) -> Self {
        self.host_bytes = bytes;
        self
    }

    /// Always left to others.
    #[must_use]
    pub fn leave_host_bytes(mut self, bytes: u64) -> Self {
        self.leave_host_bytes = bytes;
        self
    }

    /// How the cache keeps its values.
    #[must_use]
    pub fn kv_format(mut self, format: KvFormat) -> Self {
        self.kv_format = format;
        self
    }

    pub fn build(self) -> Result<Plan, Error> {
        let mut budget = sys::dsa_budget::init();
        budget.device_bytes = self.device_bytes;
        budget.leave_device_bytes = self.leave_device_bytes;
        budget.host_bytes = self.host_bytes;
        budget.leave_host_bytes = self.leave_host_bytes;
        let mut request = sys::dsa_plan_request::init();
        request.budget = &budget;
        request.context_tokens = self.context_tokens;
        request.sessions = self.sessions;
        request.kv_format = self.kv_format.code();
        Ok(Plan { raw: raw::Plan::new(&self.package.raw, self.device.as_deref(), request)? })
    }
}

/// Where a package would go on this machine. One that is not feasible says in `explain` what would help.
pub struct Plan {
    raw: raw::Plan,
}

impl Plan {
    pub fn summary(&self) -> Result<PlanSummary, Error> {
        self.raw.summary(|s| PlanSummary {
            feasible: s.feasible != 0,
            bound: Bound::from_code(s.bound),
            context_tokens: s.context_tokens,
            sessions: s.sessions,
            device_bytes: s.device_bytes,
            host_bytes: s.host_bytes,
            disk_bytes_per_token: s.disk_bytes_per_token,
            experts_on_device: s.experts_on_device,
            experts_on_host: s.experts_on_host,
        })
    }

    /// Kernels, tensors, parameters, bytes, state, precision and placement, as JSON.
    pub fn explain(&self) -> Result<String, Error> {
        self.raw.explain()
    }
}

type ProgressFn<'a> = Box<dyn FnMut(Progress) -> ControlFlow<()> + 'a>;

/// Options of loading.
pub struct Loader<'a> {
    package: &'a Package,
    plan: Option<&'a Plan>,
    queue_limit: u32,
    on_progress: Option<ProgressFn<'a>>,
}

impl<'a> Loader<'a> {
    /// Context and sessions as planned. A plan that is not feasible fails.
    #[must_use]
    pub fn plan(mut self, plan: &'a Plan) -> Self {
        self.plan = Some(plan);
        self
    }

    /// Runs that may wait; 0: 64.
    #[must_use]
    pub fn queue_limit(mut self, runs: u32) -> Self {
        self.queue_limit = runs;
        self
    }

    /// Called on this thread. `Break` stops the loading, which then fails with `ErrorKind::Cancelled`.
    #[must_use]
    pub fn on_progress(mut self, callback: impl FnMut(Progress) -> ControlFlow<()> + 'a) -> Self {
        self.on_progress = Some(Box::new(callback));
        self
    }

    pub fn load(mut self) -> Result<Model, Error> {
        let mut nobody = |_| ControlFlow::Continue(());
        let callback: OnProgress<'_> = match &mut self.on_progress {
            Some(callback) => callback,
            None => &mut nobody,
        };
        let raw =
            raw::load_model(&self.package.raw, self.plan.map(|plan| &plan.raw), self.queue_limit, callback)?;
        Ok(Model { raw, runtime: self.package.runtime.clone() })
    }
}

/// Loaded weights with their scheduler, shared by all sessions. Dropping it never waits; the last session frees it.
#[derive(Clone)]
pub struct Model {
    pub(crate) raw: Ref<sys::dsa_model>,
    pub(crate) runtime: Arc<raw::Runtime>,
}

impl Model {
    /// An empty conversation.
    pub fn session(&self) -> SessionBuilder<'_> {
        SessionBuilder::new(self)
    }

    pub fn stats(&self) -> Result<ModelStats, Error> {
        raw::model_stats(&self.raw, |s| ModelStats {
            state: ModelState::from_code(s.state),
            device_bytes: s.device_bytes,
            host_bytes: s.host_bytes,
            kv_bytes: s.kv_bytes,
            expert_bytes: s.expert_bytes,
            prompt_tokens: s.prompt_tokens,
            output_tokens: s.output_tokens,
            runs: s.runs,
            cancelled: s.cancelled,
            failed: s.failed,
            running: s.running,
            queued: s.queued,
            sessions: s.sessions,
            images_encoded: s.images_encoded,
            image_hits: s.image_hits,
            expert_rows: s.expert_rows,
            expert_rows_fp8: s.expert_rows_fp8,
            fp8_workspace_bytes: s.fp8_workspace_bytes,
        })
    }

    /// Text as tokens; control tokens in it stay plain text.
    pub fn tokenize(&self, text: &str) -> Result<Vec<i32>, Error> {
        raw::tokenize(&self.raw, text, 0)
    }

    /// Text that you wrote yourself as tokens: control tokens in it act.
    pub fn tokenize_markup(&self, text: &str) -> Result<Vec<i32>, Error> {
        raw::tokenize(&self.raw, text, sys::DSA_TEXT_CONTROL as u32)
    }

    /// Tokens as bytes: a cut character stays cut, control tokens are left out.
    pub fn detokenize(&self, tokens: &[i32]) -> Result<Vec<u8>, Error> {
        raw::detokenize(&self.raw, tokens, 0)
    }

    /// Cancels all runs, waits, and frees the memory now, whoever else still holds a session. `None` waits for ever.
    /// Answers `false` if the time passed first; the closing goes on.
    pub fn close(&self, timeout: Option<Duration>) -> Result<bool, Error> {
        raw::close_model(&self.raw, milliseconds(timeout))
    }
}

/// `None` waits for ever.
pub(crate) fn milliseconds(timeout: Option<Duration>) -> i64 {
    timeout.map_or(sys::DSA_FOREVER, |time| i64::try_from(time.as_millis()).unwrap_or(i64::MAX))
}
