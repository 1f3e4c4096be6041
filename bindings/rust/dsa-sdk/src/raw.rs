//! Every call of the library, and all `unsafe` of this crate. The rules named below are those at the top of `dsa_sdk.h`.
//!
//! A function that takes `&` calls a C function with a const handle: callable from many threads at once. One that takes
//! `&mut` calls a C function that wants one thread at a time.
#![allow(unsafe_code)]

use crate::codes::{Channel, ErrorKind, Finish, Fix, LogLevel, Notice, Stage};
use crate::error::Error;
use crate::values::{Event, Progress};
use dsa_sdk_sys as sys;
use std::any::Any;
use std::ffi::{CStr, CString};
use std::ops::ControlFlow;
use std::os::raw::{c_char, c_void};
use std::panic::{catch_unwind, resume_unwind, AssertUnwindSafe};
use std::ptr::{null, null_mut, NonNull};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::Waker;

pub(crate) type LogSink = Mutex<Box<dyn FnMut(LogLevel, &str, &str) + Send>>;
pub(crate) type OnProgress<'a> = &'a mut dyn FnMut(Progress) -> ControlFlow<()>;

// ---- errors and text ------------------------------------------------------------------------------------------------

pub(crate) fn text_of(view: sys::dsa_str) -> String {
    String::from_utf8_lossy(bytes_of(&view)).into_owned()
}

fn bytes_of(view: &sys::dsa_str) -> &[u8] {
    if view.ptr.is_null() {
        return &[];
    }
    // SAFETY: views of the library are `len` readable bytes; callers copy them before their lifetime ends.
    unsafe { std::slice::from_raw_parts(view.ptr.cast(), view.len) }
}

/// A view of text that the caller keeps while the view is used.
pub(crate) fn view_of(text: &[u8]) -> sys::dsa_str {
    sys::dsa_str { ptr: text.as_ptr().cast(), len: text.len() }
}

fn c_string(text: &str) -> Result<CString, Error> {
    CString::new(text).map_err(|e| Error::argument(format!("a NUL at byte {} of '{text}'", e.nul_position())))
}

pub(crate) fn error_of(details: &sys::dsa_error) -> Error {
    let is_file = details.code <= -300 && details.code > -400;
    let system = match i32::try_from(details.native) {
        Ok(number) if number > 0 && is_file => Some(std::io::Error::from_raw_os_error(number)),
        _ => None,
    };
    Error {
        kind: ErrorKind::from_code(details.code),
        fix: Fix::from_code(details.fix),
        needed: details.needed,
        available: details.available,
        position: details.position,
        message: text_of(details.message),
        system,
    }
}

/// What the last call of this thread came to.
pub(crate) fn check(status: sys::dsa_status) -> Result<sys::dsa_status, Error> {
    if status >= 0 {
        return Ok(status);
    }
    let mut details = sys::dsa_error::init();
    // SAFETY: `details` is a struct of this size; its message is copied before this thread calls again.
    unsafe { sys::dsa_last_error(&mut details) };
    if details.code != status {
        details.code = status;
        details.message = sys::dsa_str { ptr: null(), len: 0 };
    }
    Err(error_of(&details))
}

pub(crate) fn version() -> (u32, u32) {
    // SAFETY: callable at any time on any thread.
    unsafe { (sys::dsa_version(), sys::dsa_api_level()) }
}

pub(crate) fn version_text() -> String {
    // SAFETY: never NULL, and lives as long as the library.
    unsafe { CStr::from_ptr(sys::dsa_version_string()) }.to_string_lossy().into_owned()
}

pub(crate) fn has_feature(name: &str) -> bool {
    // SAFETY: the name is borrowed for the call.
    c_string(name).map_or(false, |name| unsafe { sys::dsa_has_feature(name.as_ptr()) } == 1)
}

// ---- handles --------------------------------------------------------------------------------------------------------

/// A handle that counts its owners in C.
pub(crate) trait Counted: Sized {
    const RETAIN: unsafe extern "C" fn(*const Self);
    const RELEASE: unsafe extern "C" fn(*const Self);
}

macro_rules! counted {
    ($($name:ident $retain:ident $release:ident),+ $(,)?) => {
        $(impl Counted for sys::$name {
            const RETAIN: unsafe extern "C" fn(*const Self) = sys::$retain;
            const RELEASE: unsafe extern "C" fn(*const Self) = sys::$release;
        })+
    };
}

counted! {
    dsa_runtime dsa_runtime_retain dsa_runtime_release,
    dsa_package dsa_package_retain dsa_package_release,
    dsa_model dsa_model_retain dsa_model_release,
    dsa_session dsa_session_retain dsa_session_release,
    dsa_run dsa_run_retain dsa_run_release,
    dsa_image dsa_image_retain dsa_image_release,
}

/// One reference to such a handle.
pub(crate) struct Ref<T: Counted>(NonNull<T>);

// SAFETY: handles are bound to no thread, and through `&` only functions with a const handle can be reached.
unsafe impl<T: Counted> Send for Ref<T> {}
unsafe impl<T: Counted> Sync for Ref<T> {}

impl<T: Counted> Ref<T> {
    /// Calls a function that gives one reference.
    fn made(call: impl FnOnce(*mut *mut T) -> sys::dsa_status) -> Result<Self, Error> {
        let mut out = null_mut();
        check(call(&mut out))?;
        NonNull::new(out).map(Ref).ok_or_else(no_handle)
    }

    pub(crate) fn get(&self) -> *const T {
        self.0.as_ptr()
    }
}

impl<T: Counted> Clone for Ref<T> {
    fn clone(&self) -> Self {
        // SAFETY: we hold a reference, so the handle lives; retain may be called on any thread.
        unsafe { T::RETAIN(self.get()) };
        Ref(self.0)
    }
}

impl<T: Counted> Drop for Ref<T> {
    fn drop(&mut self) {
        // SAFETY: gives back the one reference that is ours; never waits, any thread.
        unsafe { T::RELEASE(self.get()) };
    }
}

fn no_handle() -> Error {
    Error::new(ErrorKind::Internal, Fix::Report, "the library gave no handle".to_string())
}

// ---- runtime, package, model ----------------------------------------------------------------------------------------

/// A runtime with its log sink. Everything made from it holds it, so the sink outlives their calls of it.
pub(crate) struct Runtime {
    pub(crate) handle: Ref<sys::dsa_runtime>,
    sink: Option<Box<LogSink>>,
}

impl Runtime {
    pub(crate) fn new(max_threads: u32, log: Option<(LogLevel, Box<LogSink>)>) -> Result<Self, Error> {
        let mut options = sys::dsa_runtime_options::init();
        options.max_threads = max_threads;
        let mut sink = None;
        if let Some((level, given)) = log {
            options.log_level = level.code();
            options.log = Some(on_log);
            options.log_ud = &*given as *const LogSink as *mut c_void;
            sink = Some(given);
        }
        // SAFETY: options are borrowed for the call; the sink lives until Drop has taken it from the runtime.
        let handle = Ref::made(|out| unsafe { sys::dsa_runtime_create(&options, out) })?;
        Ok(Runtime { handle, sink })
    }
}

impl Drop for Runtime {
    fn drop(&mut self) {
        if let Some(sink) = self.sink.take() {
            // SAFETY: when the call returns the sink is not called again. It is refused inside of a log call: then the sink
            // stays for ever, as the library may still use it.
            let status =
                unsafe { sys::dsa_runtime_set_log(self.handle.get(), sys::DSA_LOG_OFF, None, null_mut()) };
            if status < 0 {
                std::mem::forget(sink);
            }
        }
    }
}

unsafe extern "C" fn on_log(ud: *mut c_void, level: i32, place: *const c_char, line: *const c_char) {
    // SAFETY: `ud` is the sink of Runtime, the texts are C strings for the time of this call. No panic leaves.
    let _ = catch_unwind(|| {
        let sink = &*(ud as *const LogSink);
        let (place, line) = (CStr::from_ptr(place).to_string_lossy(), CStr::from_ptr(line).to_string_lossy());
        (sink.lock().unwrap_or_else(PoisonError::into_inner))(LogLevel::from_code(level), &place, &line);
    });
}

pub(crate) fn count_devices(runtime: &Runtime) -> Result<usize, Error> {
    let mut count = 0;
    // SAFETY: plain values.
    check(unsafe { sys::dsa_runtime_count_devices(runtime.handle.get(), &mut count) })?;
    Ok(count)
}

/// Fills an output struct and hands it to `read`, which copies what it wants before the owner of its views can go.
fn filled<S, R>(
    mut out: S,
    call: impl FnOnce(*mut S) -> sys::dsa_status,
    read: impl FnOnce(&S) -> R,
) -> Result<R, Error> {
    check(call(&mut out))?;
    Ok(read(&out))
}

pub(crate) fn device<R>(
    runtime: &Runtime,
    index: usize,
    read: impl FnOnce(&sys::dsa_device_info) -> R,
) -> Result<R, Error> {
    // SAFETY: the views live as long as the runtime, which outlives `read`.
    let call = |out: *mut _| unsafe { sys::dsa_runtime_get_device(runtime.handle.get(), index, out) };
    filled(sys::dsa_device_info::init(), call, read)
}

pub(crate) fn open_package(runtime: &Runtime, path: &[u8]) -> Result<Ref<sys::dsa_package>, Error> {
    let mut source = sys::dsa_source::init();
    source.path = view_of(path);
    // SAFETY: `source` is borrowed for the call.
    Ref::made(|out| unsafe { sys::dsa_package_open(runtime.handle.get(), &source, out) })
}

pub(crate) fn package_info<R>(
    package: &Ref<sys::dsa_package>,
    read: impl FnOnce(&sys::dsa_package_info) -> R,
) -> Result<R, Error> {
    // SAFETY: the views live as long as the package, which outlives `read`.
    let call = |out: *mut _| unsafe { sys::dsa_package_get_info(package.get(), out) };
    filled(sys::dsa_package_info::init(), call, read)
}

pub(crate) fn package_meta(package: &Ref<sys::dsa_package>, key: &str) -> Result<String, Error> {
    let key = c_string(key)?;
    let mut out = sys::dsa_str { ptr: null(), len: 0 };
    // SAFETY: the view lives as long as the package; it is copied here.
    check(unsafe { sys::dsa_package_get_meta(package.get(), key.as_ptr(), &mut out) })?;
    Ok(text_of(out))
}

/// A plan has one owner; reading it is free.
pub(crate) struct Plan(NonNull<sys::dsa_plan>);

// SAFETY: not bound to a thread, and every function with a const plan may be called from many.
unsafe impl Send for Plan {}
unsafe impl Sync for Plan {}

impl Plan {
    pub(crate) fn new(
        package: &Ref<sys::dsa_package>,
        device: Option<&str>,
        mut request: sys::dsa_plan_request,
    ) -> Result<Self, Error> {
        let id = device.map(|id| view_of(id.as_bytes()));
        if let Some(id) = &id {
            request.device_ids = id;
            request.num_device_ids = 1;
        }
        let mut out = null_mut();
        // SAFETY: the request and what it points to are borrowed for the call.
        check(unsafe { sys::dsa_plan_create(package.get(), &request, &mut out) })?;
        NonNull::new(out).map(Plan).ok_or_else(no_handle)
    }

    pub(crate) fn summary<R>(&self, read: impl FnOnce(&sys::dsa_plan_summary) -> R) -> Result<R, Error> {
        // SAFETY: plain values.
        let call = |out: *mut _| unsafe { sys::dsa_plan_get(self.0.as_ptr(), out) };
        filled(sys::dsa_plan_summary::init(), call, read)
    }

    pub(crate) fn explain(&self) -> Result<String, Error> {
        let mut out = sys::dsa_str { ptr: null(), len: 0 };
        // SAFETY: the view lives as long as the plan; it is copied here.
        check(unsafe { sys::dsa_plan_explain(self.0.as_ptr(), &mut out) })?;
        Ok(text_of(out))
    }
}

impl Drop for Plan {
    fn drop(&mut self) {
        // SAFETY: the one owner goes; nobody else uses it.
        unsafe { sys::dsa_plan_release(self.0.as_ptr()) };
    }
}

/// A progress callback of one blocking call, and the panic that it ended with.
struct Watch<'a> {
    callback: OnProgress<'a>,
    panic: Option<Box<dyn Any + Send>>,
}

fn progress_of(p: &sys::dsa_progress) -> Progress {
    Progress { done: p.done, total: p.total, stage: Stage::from_code(p.stage) }
}

unsafe extern "C" fn on_progress(ud: *mut c_void, p: *const sys::dsa_progress) -> i32 {
    // SAFETY: called on the thread of the blocking call, which holds the Watch; `p` lives for the time of this call.
    let (watch, p) = (&mut *(ud as *mut Watch<'_>), &*p);
    match catch_unwind(AssertUnwindSafe(|| (watch.callback)(progress_of(p)))) {
        Ok(ControlFlow::Continue(())) => sys::DSA_CONTINUE,
        Ok(ControlFlow::Break(())) => sys::DSA_STOP_ROLLBACK,
        Err(panic) => {
            watch.panic = Some(panic); // unwinding never crosses C: it goes on in `watched`
            -1
        }
    }
}

fn watched<R>(callback: OnProgress<'_>, call: impl FnOnce(*mut c_void) -> R) -> R {
    let mut watch = Watch { callback, panic: None };
    let done = call(&mut watch as *mut Watch<'_> as *mut c_void);
    match watch.panic.take() {
        Some(panic) => resume_unwind(panic),
        None => done,
    }
}

pub(crate) fn load_model(
    package: &Ref<sys::dsa_package>,
    plan: Option<&Plan>,
    queue_limit: u32,
    callback: OnProgress<'_>,
) -> Result<Ref<sys::dsa_model>, Error> {
    let mut options = sys::dsa_load_options::init();
    options.queue_limit = queue_limit;
    let plan = plan.map_or(null(), |plan| plan.0.as_ptr().cast_const());
    watched(callback, |ud| {
        // SAFETY: plan and options are borrowed for the call, and the callback is called during it only.
        Ref::made(|out| unsafe {
            sys::dsa_model_load(package.get(), plan, &options, Some(on_progress), ud, out)
        })
    })
}

/// Answers whether the model was closed in time.
pub(crate) fn close_model(model: &Ref<sys::dsa_model>, timeout_ms: i64) -> Result<bool, Error> {
    // SAFETY: any thread, any number of them.
    Ok(check(unsafe { sys::dsa_model_close(model.get(), timeout_ms) })? == sys::DSA_OK)
}

pub(crate) fn model_stats<R>(
    model: &Ref<sys::dsa_model>,
    read: impl FnOnce(&sys::dsa_model_stats) -> R,
) -> Result<R, Error> {
    // SAFETY: plain values.
    let call = |out: *mut _| unsafe { sys::dsa_model_get_stats(model.get(), out) };
    filled(sys::dsa_model_stats::init(), call, read)
}

/// Calls a function that fills a buffer until it fits.
fn fitted<T: Clone + Default>(
    mut room: usize,
    call: impl Fn(*mut T, usize, *mut usize) -> sys::dsa_status,
) -> Result<Vec<T>, Error> {
    loop {
        let (mut out, mut count) = (vec![T::default(); room], 0);
        if check(call(out.as_mut_ptr(), room, &mut count))? != sys::DSA_PARTIAL {
            out.truncate(count);
            return Ok(out);
        }
        room = count;
    }
}

pub(crate) fn tokenize(model: &Ref<sys::dsa_model>, text: &str, flags: u32) -> Result<Vec<i32>, Error> {
    fitted(text.len() + 8, |out, room, count| {
        let bytes = text.as_ptr().cast();
        // SAFETY: `text` is borrowed for the call; at most `room` tokens are written.
        unsafe { sys::dsa_model_tokenize(model.get(), bytes, text.len(), flags, out, room, count) }
    })
}

pub(crate) fn detokenize(model: &Ref<sys::dsa_model>, tokens: &[i32], flags: u32) -> Result<Vec<u8>, Error> {
    fitted(tokens.len().saturating_mul(16).saturating_add(16), |out: *mut u8, room, size| {
        // SAFETY: `tokens` is borrowed for the call; at most `room` bytes are written.
        unsafe {
            sys::dsa_model_detokenize(
                model.get(),
                tokens.as_ptr(),
                tokens.len(),
                flags,
                out.cast(),
                room,
                size,
            )
        }
    })
}

// ---- images ---------------------------------------------------------------------------------------------------------

pub(crate) fn image_from_file(
    runtime: &Runtime,
    path: &[u8],
    options: &sys::dsa_image_options,
) -> Result<Ref<sys::dsa_image>, Error> {
    let path =
        CString::new(path).map_err(|_| Error::argument("a NUL in the path of a picture".to_string()))?;
    // SAFETY: path and options are borrowed for the call. So it is below.
    Ref::made(|out| unsafe { sys::dsa_image_from_file(runtime.handle.get(), path.as_ptr(), options, out) })
}

pub(crate) fn image_from_memory(
    runtime: &Runtime,
    data: &[u8],
    options: &sys::dsa_image_options,
) -> Result<Ref<sys::dsa_image>, Error> {
    let bytes = data.as_ptr().cast();
    // SAFETY: the data is borrowed for the call.
    Ref::made(|out| unsafe {
        sys::dsa_image_from_memory(runtime.handle.get(), bytes, data.len(), options, out)
    })
}

/// `pixels` must describe memory that is there: image.rs checks it against a slice.
pub(crate) fn image_from_pixels(
    runtime: &Runtime,
    pixels: &sys::dsa_pixels,
    options: &sys::dsa_image_options,
) -> Result<Ref<sys::dsa_image>, Error> {
    // SAFETY: the pixels are copied before the call returns, as `release` is not set.
    Ref::made(|out| unsafe { sys::dsa_image_from_pixels(runtime.handle.get(), pixels, options, out) })
}

pub(crate) fn image_size(image: &Ref<sys::dsa_image>) -> Result<(u32, u32), Error> {
    let (mut width, mut height) = (0, 0);
    // SAFETY: plain values.
    check(unsafe { sys::dsa_image_get_size(image.get(), &mut width, &mut height) })?;
    Ok((width, height))
}

pub(crate) fn image_id(image: &Ref<sys::dsa_image>) -> Result<String, Error> {
    let mut out = sys::dsa_str { ptr: null(), len: 0 };
    // SAFETY: the view lives as long as the picture; it is copied here.
    check(unsafe { sys::dsa_image_get_id(image.get(), &mut out) })?;
    Ok(text_of(out))
}

/// A long operation has one owner; waiting and cancelling may be done by anybody.
pub(crate) struct Operation(NonNull<sys::dsa_op>);

// SAFETY: bound to no thread, and its functions take const handles.
unsafe impl Send for Operation {}
unsafe impl Sync for Operation {}

impl Operation {
    pub(crate) fn prepare(image: &Ref<sys::dsa_image>, model: &Ref<sys::dsa_model>) -> Result<Self, Error> {
        let mut out = null_mut();
        // SAFETY: receives the one reference; the library keeps picture and model meanwhile.
        check(unsafe { sys::dsa_image_prepare(image.get(), model.get(), &mut out) })?;
        NonNull::new(out).map(Operation).ok_or_else(no_handle)
    }

    /// The progress if it goes on.
    pub(crate) fn wait(&self, timeout_ms: i64) -> Result<Option<Progress>, Error> {
        let mut progress = sys::dsa_progress::init();
        // SAFETY: plain values.
        let status = unsafe { sys::dsa_op_wait(self.0.as_ptr(), timeout_ms, &mut progress) };
        if status < 0 {
            let mut details = sys::dsa_error::init();
            // SAFETY: the message lives as long as the operation; it is copied here.
            let known = unsafe { sys::dsa_op_get_error(self.0.as_ptr(), &mut details) } == sys::DSA_OK;
            if known && details.code == status {
                return Err(error_of(&details));
            }
        }
        let pending = check(status)? == sys::DSA_PENDING;
        Ok(pending.then(|| progress_of(&progress)))
    }

    pub(crate) fn cancel(&self) -> Result<(), Error> {
        // SAFETY: any thread, any time.
        check(unsafe { sys::dsa_op_cancel(self.0.as_ptr()) }).map(drop)
    }
}

impl Drop for Operation {
    fn drop(&mut self) {
        // SAFETY: gives back the one reference; never waits.
        unsafe { sys::dsa_op_release(self.0.as_ptr()) };
    }
}

// ---- prompt ---------------------------------------------------------------------------------------------------------

/// A prompt has one owner.
pub(crate) struct Prompt(NonNull<sys::dsa_prompt>);

// SAFETY: not bound to a thread.
unsafe impl Send for Prompt {}

impl Prompt {
    pub(crate) fn new(runtime: &Runtime) -> Result<Self, Error> {
        let mut out = null_mut();
        // SAFETY: receives the one reference.
        check(unsafe { sys::dsa_prompt_create(runtime.handle.get(), &mut out) })?;
        NonNull::new(out).map(Prompt).ok_or_else(no_handle)
    }

    pub(crate) fn get(&self) -> *const sys::dsa_prompt {
        self.0.as_ptr()
    }

    pub(crate) fn message(&mut self, role: i32) -> Result<(), Error> {
        // SAFETY: `&mut` is one thread at a time. So it is below.
        check(unsafe { sys::dsa_prompt_message(self.0.as_ptr(), role) }).map(drop)
    }

    pub(crate) fn text(&mut self, text: &str) -> Result<(), Error> {
        // SAFETY: the text is copied.
        check(unsafe { sys::dsa_prompt_text(self.0.as_ptr(), text.as_ptr().cast(), text.len()) }).map(drop)
    }

    pub(crate) fn markup(&mut self, text: &str) -> Result<(), Error> {
        // SAFETY: the text is copied.
        check(unsafe { sys::dsa_prompt_markup(self.0.as_ptr(), text.as_ptr().cast(), text.len()) }).map(drop)
    }

    pub(crate) fn tokens(&mut self, tokens: &[i32]) -> Result<(), Error> {
        // SAFETY: the tokens are copied.
        check(unsafe { sys::dsa_prompt_tokens(self.0.as_ptr(), tokens.as_ptr(), tokens.len()) }).map(drop)
    }

    pub(crate) fn json(&mut self, json: &str) -> Result<(), Error> {
        // SAFETY: the text is copied.
        check(unsafe { sys::dsa_prompt_add_json(self.0.as_ptr(), json.as_ptr().cast(), json.len()) })
            .map(drop)
    }

    pub(crate) fn image(&mut self, image: &Ref<sys::dsa_image>) -> Result<(), Error> {
        // SAFETY: the prompt keeps a reference of its own.
        check(unsafe { sys::dsa_prompt_image(self.0.as_ptr(), image.get()) }).map(drop)
    }

    pub(crate) fn bind_image(&mut self, name: &str, image: &Ref<sys::dsa_image>) -> Result<(), Error> {
        let name = c_string(name)?;
        // SAFETY: the name is copied, and the prompt keeps a reference of its own.
        check(unsafe { sys::dsa_prompt_bind_image(self.0.as_ptr(), name.as_ptr(), image.get()) }).map(drop)
    }

    pub(crate) fn clear(&mut self) -> Result<(), Error> {
        // SAFETY: as above.
        check(unsafe { sys::dsa_prompt_clear(self.0.as_ptr()) }).map(drop)
    }

    pub(crate) fn measure<R>(
        &self,
        model: &Ref<sys::dsa_model>,
        session: Option<&Ref<sys::dsa_session>>,
        read: impl FnOnce(&sys::dsa_prompt_cost) -> R,
    ) -> Result<R, Error> {
        let session = session.map_or(null(), Ref::get);
        // SAFETY: const handles, plain values.
        let call = |out: *mut _| unsafe {
            sys::dsa_prompt_measure(self.get(), model.get(), session, sys::DSA_FEED_APPEND, out)
        };
        filled(sys::dsa_prompt_cost::init(), call, read)
    }

    pub(crate) fn render(&self, model: &Ref<sys::dsa_model>) -> Result<String, Error> {
        let bytes = fitted(0, |out: *mut u8, room, size| {
            // SAFETY: at most `room` bytes are written.
            unsafe { sys::dsa_prompt_render(self.get(), model.get(), out.cast(), room, size) }
        })?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }
}

impl Drop for Prompt {
    fn drop(&mut self) {
        // SAFETY: the one owner goes; nobody else uses it.
        unsafe { sys::dsa_prompt_release(self.0.as_ptr()) };
    }
}

// ---- session --------------------------------------------------------------------------------------------------------

pub(crate) fn create_session(
    model: &Ref<sys::dsa_model>,
    options: &sys::dsa_session_options,
) -> Result<Ref<sys::dsa_session>, Error> {
    // SAFETY: options are borrowed for the call; they hold no pointers.
    Ref::made(|out| unsafe { sys::dsa_session_create(model.get(), options, out) })
}

pub(crate) fn session_info<R>(
    session: &Ref<sys::dsa_session>,
    read: impl FnOnce(&sys::dsa_session_info) -> R,
) -> Result<R, Error> {
    // SAFETY: plain values.
    let call = |out: *mut _| unsafe { sys::dsa_session_get_info(session.get(), out) };
    filled(sys::dsa_session_info::init(), call, read)
}

pub(crate) fn prefill(
    session: &mut Ref<sys::dsa_session>,
    prompt: &Prompt,
    callback: OnProgress<'_>,
) -> Result<u32, Error> {
    let (mut count, session) = (0, session.0.as_ptr());
    watched(callback, |ud| {
        // SAFETY: `&mut` is one call at a time; the prompt is borrowed, and the callback is called during the call only.
        check(unsafe { sys::dsa_session_prefill(session, prompt.get(), Some(on_progress), ud, &mut count) })
    })?;
    Ok(count)
}

// ---- run ------------------------------------------------------------------------------------------------------------

/// Who wants to hear that an event is there.
#[derive(Default)]
pub(crate) struct Bell(Mutex<Option<Waker>>);

impl Bell {
    pub(crate) fn set(&self, waker: Waker) {
        let old = self.0.lock().unwrap_or_else(PoisonError::into_inner).replace(waker);
        drop(old); // with no lock held, as a waker may do anything when it goes
    }
}

unsafe extern "C" fn on_ready(ud: *mut c_void) {
    // SAFETY: `ud` is the Bell of a Shared, which lives until dsa_run_release has returned. No panic leaves.
    let _ = catch_unwind(AssertUnwindSafe(|| {
        let bell = &*(ud as *const Bell);
        let waker = bell.0.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(waker) = waker {
            waker.wake();
        }
    }));
}

/// A run, shared by its reader and its cancel tokens.
pub(crate) struct Shared {
    handle: Option<Ref<sys::dsa_run>>,
    bell: Arc<Bell>,
}

impl Drop for Shared {
    fn drop(&mut self) {
        // The run first: afterwards on_ready is never called again, and its bell may go.
        self.handle = None;
    }
}

impl Shared {
    fn get(&self) -> *const sys::dsa_run {
        self.handle.as_ref().map_or(null(), Ref::get)
    }

    pub(crate) fn cancel(&self, how: i32) -> Result<(), Error> {
        // SAFETY: any thread, any time.
        check(unsafe { sys::dsa_run_cancel(self.get(), how) }).map(drop)
    }

    /// `None` if the run has not ended.
    fn ended<S, R>(
        &self,
        mut out: S,
        call: unsafe extern "C" fn(*const sys::dsa_run, *mut S) -> sys::dsa_status,
        read: impl FnOnce(&S) -> R,
    ) -> Result<Option<R>, Error> {
        // SAFETY: any thread; views live as long as the run, and are copied by `read`.
        let status = check(unsafe { call(self.get(), &mut out) })?;
        Ok((status != sys::DSA_PENDING).then(|| read(&out)))
    }

    pub(crate) fn result<R>(&self, read: impl FnOnce(&sys::dsa_result) -> R) -> Result<Option<R>, Error> {
        self.ended(sys::dsa_result::init(), sys::dsa_run_get_result, read)
    }

    pub(crate) fn stats<R>(&self, read: impl FnOnce(&sys::dsa_run_stats) -> R) -> Result<Option<R>, Error> {
        self.ended(sys::dsa_run_stats::init(), sys::dsa_run_get_stats, read)
    }

    /// What the run failed with.
    pub(crate) fn failure(&self) -> Result<Option<Error>, Error> {
        let read = |out: &sys::dsa_error| (out.code < 0).then(|| error_of(out));
        Ok(self.ended(sys::dsa_error::init(), sys::dsa_run_get_error, read)?.flatten())
    }

    pub(crate) fn text(&self, channel: Channel) -> Result<Option<String>, Error> {
        let mut out = sys::dsa_str { ptr: null(), len: 0 };
        // SAFETY: the view lives as long as the run; it is copied here.
        let status = check(unsafe { sys::dsa_run_get_text(self.get(), channel.code(), &mut out) })?;
        Ok((status != sys::DSA_PENDING).then(|| text_of(out)))
    }
}

/// The one reader of a run.
pub(crate) struct Reader {
    shared: Arc<Shared>,
    ended: bool,
}

pub(crate) enum Next {
    Event(Event),
    Pending,
    End,
}

impl Reader {
    pub(crate) fn start(
        session: &mut Ref<sys::dsa_session>,
        prompt: &Prompt,
        options: &mut sys::dsa_run_options,
    ) -> Result<Self, Error> {
        let bell = Arc::new(Bell::default());
        options.on_ready = Some(on_ready);
        options.on_ready_ud = Arc::as_ptr(&bell) as *mut c_void;
        // SAFETY: `&mut` is one call at a time. Prompt and options, with what they point to, are borrowed for the call; the
        // bell lives until the run was released, see Shared.
        let handle =
            Ref::made(|out| unsafe { sys::dsa_run_start(session.0.as_ptr(), prompt.get(), options, out) })?;
        Ok(Reader { shared: Arc::new(Shared { handle: Some(handle), bell }), ended: false })
    }

    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    pub(crate) fn bell(&self) -> &Bell {
        &self.shared.bell
    }

    pub(crate) fn ended(&self) -> bool {
        self.ended
    }

    pub(crate) fn next(&mut self, timeout_ms: i64) -> Result<Next, Error> {
        if self.ended {
            return Ok(Next::End);
        }
        let mut out = sys::dsa_event::init();
        // SAFETY: `&mut` and the one Reader make this one thread at a time; the text is copied before the next call.
        match check(unsafe { sys::dsa_run_next(self.shared.get() as *mut _, timeout_ms, &mut out) })? {
            sys::DSA_PENDING => Ok(Next::Pending),
            sys::DSA_END => {
                self.ended = true;
                Ok(Next::End)
            }
            _ => {
                self.ended = out.r#type == sys::DSA_EVENT_DONE;
                Ok(Next::Event(event_of(&out)))
            }
        }
    }
}

fn event_of(e: &sys::dsa_event) -> Event {
    let num_tokens = e.num_tokens;
    match (e.r#type, Channel::from_code(e.channel)) {
        (sys::DSA_EVENT_TEXT, Channel::Answer) => Event::Text { text: text_of(e.text), num_tokens },
        (sys::DSA_EVENT_TEXT, Channel::Reasoning) => Event::Reasoning { text: text_of(e.text), num_tokens },
        (sys::DSA_EVENT_TEXT, Channel::Tool) => Event::ToolCall { text: text_of(e.text), num_tokens },
        (sys::DSA_EVENT_START, _) => Event::Start { run_id: e.run_id },
        (sys::DSA_EVENT_PREFILL, _) => Event::Prefill { done: e.done, total: e.total },
        (sys::DSA_EVENT_NOTICE, _) => Event::Notice(Notice::from_code(e.notice)),
        (sys::DSA_EVENT_DONE, _) => Event::Done { finish: Finish::from_code(e.finish), stop_index: e.index },
        (kind, _) => Event::Unknown { kind },
    }
}
