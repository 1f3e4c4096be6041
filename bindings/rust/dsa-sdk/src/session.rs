//! Sessions, and the runs that answer in them.

use crate::codes::{Bound, Channel, ErrorKind, Finish, Overflow, SessionState, Stop};
use crate::error::Error;
use crate::options::RunOptions;
use crate::prompt::Prompt;
use crate::raw::{self, Next, Reader, Ref};
use crate::runtime::{milliseconds, Model};
use crate::values::{not_ended, Event, Progress, RunResult, RunStats, SessionInfo};
use dsa_sdk_sys as sys;
use std::cell::Cell;
use std::future::Future;
use std::iter::FusedIterator;
use std::marker::PhantomData;
use std::ops::{ControlFlow, Deref, DerefMut};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

/// Options of a session.
pub struct SessionBuilder<'a> {
    model: &'a Model,
    options: sys::dsa_session_options,
}

impl<'a> SessionBuilder<'a> {
    pub(crate) fn new(model: &'a Model) -> Self {
        SessionBuilder { model, options: sys::dsa_session_options::init() }
    }

    /// 0: the model's context.
    #[must_use]
    pub fn context_tokens(mut self, tokens: u32) -> Self {
        self.options.context_tokens = tokens;
        self
    }

    #[must_use]
    pub fn overflow(mut self, overflow: Overflow) -> Self {
        self.options.overflow = overflow.code();
        self
    }

    pub fn build(self) -> Result<Session, Error> {
        Ok(Session {
            raw: raw::create_session(&self.model.raw, &self.options)?,
            runtime: self.model.runtime.clone(),
            left: None,
            _one_thread: PhantomData,
        })
    }
}

/// One conversation. It keeps its model alive, so the two may be dropped in any order.
///
/// One run at a time:
/// ```compile_fail,E0499
/// fn two(chat: &mut dsa_sdk::Session, prompt: &dsa_sdk::Prompt) -> Result<(), dsa_sdk::Error> {
///     let first = chat.run(prompt)?;
///     let second = chat.run(prompt)?;
///     drop(first);
///     Ok(())
/// }
/// ```
/// It may go to another thread, but is not shared between threads:
/// ```compile_fail,E0277
/// fn needs_sync<T: Sync>() {}
/// needs_sync::<dsa_sdk::Session>();
/// ```
pub struct Session {
    pub(crate) raw: Ref<sys::dsa_session>,
    runtime: Arc<raw::Runtime>,
    left: Option<Reader>, // a run that was dropped in work; it still uses the session until its step ends
    _one_thread: PhantomData<Cell<()>>,
}

impl Session {
    /// Starts an answer. If the last run was dropped in work, its step in progress is waited for.
    pub fn run(&mut self, prompt: &Prompt) -> Result<Run<'_>, Error> {
        self.run_with(prompt, &RunOptions::default())
    }

    pub fn run_with(&mut self, prompt: &Prompt, options: &RunOptions) -> Result<Run<'_>, Error> {
        let reader = self.start(prompt, options)?;
        Ok(Run::new(reader, Some(self)))
    }

    /// A run that owns the session, for structs and tasks; `finish()` gives the session back. So does a failure.
    pub fn into_run(mut self, prompt: &Prompt, options: &RunOptions) -> Result<OwnedRun, (Error, Session)> {
        match self.start(prompt, options) {
            Ok(reader) => Ok(OwnedRun { run: Run::new(reader, None), session: self }),
            Err(error) => Err((error, self)),
        }
    }

    /// One message of the user; waits for the whole answer.
    pub fn ask(&mut self, text: &str) -> Result<String, Error> {
        let prompt = Prompt::with(&self.runtime)?.user(text)?;
        let mut run = self.run(&prompt)?;
        for event in &mut run {
            event?;
        }
        run.text(Channel::Answer)
    }

    /// Computes a prompt without answering; answers how many tokens that were.
    pub fn prefill(
        &mut self,
        prompt: &Prompt,
        mut on_progress: impl FnMut(Progress) -> ControlFlow<()>,
    ) -> Result<u32, Error> {
        self.settle()?;
        raw::prefill(&mut self.raw, prompt.raw_ref(), &mut on_progress)
    }

    pub fn info(&self) -> Result<SessionInfo, Error> {
        raw::session_info(&self.raw, |i| SessionInfo {
            state: SessionState::from_code(i.state),
            num_tokens: i.num_tokens,
            max_tokens: i.max_tokens,
            turns: i.turns,
            images: i.images,
            host_bytes: i.host_bytes,
        })
    }

    fn start(&mut self, prompt: &Prompt, options: &RunOptions) -> Result<Reader, Error> {
        self.settle()?;
        options.with(|options| Reader::start(&mut self.raw, prompt.raw_ref(), options))
    }

    /// Waits for a run that was left in work: it was cancelled, so this lasts one step at most.
    fn settle(&mut self) -> Result<(), Error> {
        if let Some(mut reader) = self.left.take() {
            while !reader.ended() {
                reader.next(sys::DSA_FOREVER)?;
            }
        }
        Ok(())
    }
}

impl Prompt {
    pub(crate) fn raw_ref(&self) -> &raw::Prompt {
        &self.raw
    }
}

/// One answer in progress: an iterator of events. Dropping it stops it and keeps what was said; that never waits.
///
/// After `Event::Done` comes one error more if the run failed.
///
/// A run may go to another thread, but is read by one:
/// ```compile_fail,E0277
/// fn needs_sync<T: Sync>() {}
/// needs_sync::<dsa_sdk::Run<'static>>();
/// ```
/// It cannot outlive the session that it borrows:
/// ```compile_fail,E0515
/// fn escape<'a>(model: &dsa_sdk::Model, prompt: &dsa_sdk::Prompt) -> dsa_sdk::Run<'a> {
///     let mut chat = model.session().build().ok().unwrap();
///     chat.run(prompt).ok().unwrap()
/// }
/// ```
pub struct Run<'s> {
    reader: Option<Reader>, // gone after finish()
    failure_told: bool,
    session: Option<&'s mut Session>, // none if an OwnedRun has it
    _one_thread: PhantomData<Cell<()>>,
}

impl<'s> Run<'s> {
    fn new(reader: Reader, session: Option<&'s mut Session>) -> Self {
        Run { reader: Some(reader), failure_told: false, session, _one_thread: PhantomData }
    }

    fn reader(&mut self) -> Result<&mut Reader, Error> {
        self.reader.as_mut().ok_or_else(not_ended)
    }

    fn shared(&self) -> Result<&raw::Shared, Error> {
        self.reader.as_ref().map(|reader| &**reader.shared()).ok_or_else(not_ended)
    }

    /// Waits at most this long; `None` if nothing came, or if there is nothing more.
    pub fn next_timeout(&mut self, timeout: Duration) -> Result<Option<Event>, Error> {
        match self.reader()?.next(milliseconds(Some(timeout)))? {
            Next::Event(event) => Ok(Some(event)),
            Next::Pending => Ok(None),
            Next::End => self.tell_failure().map_or(Ok(None), Err),
        }
    }

    /// The next event if it is there already.
    pub fn try_next(&mut self) -> Result<Option<Event>, Error> {
        self.next_timeout(Duration::ZERO)
    }

    /// The next event as a future. No runtime is assumed: the library wakes the task.
    pub fn next_async(&mut self) -> NextEvent<'_, 's> {
        NextEvent { run: self }
    }

    /// The last event was read.
    pub fn finished(&self) -> bool {
        self.reader.as_ref().map_or(true, Reader::ended)
    }

    /// Stops after the step in progress; the events up to `Done` still come.
    pub fn cancel(&self, how: Stop) -> Result<(), Error> {
        self.shared()?.cancel(how.code())
    }

    /// Stops the run from anywhere.
    pub fn cancel_token(&self) -> CancelToken {
        CancelToken { shared: self.reader.as_ref().map(|reader| reader.shared().clone()) }
    }

    /// How it ended; an error of kind `State` before that.
    pub fn result(&self) -> Result<RunResult, Error> {
        let read = |r: &sys::dsa_result| RunResult {
            failure: (r.status < 0).then(|| ErrorKind::from_code(r.status)),
            finish: Finish::from_code(r.finish),
            stop_index: r.stop_index,
            prompt_tokens: r.prompt_tokens,
            reused_tokens: r.reused_tokens,
            image_tokens: r.image_tokens,
            output_tokens: r.output_tokens,
            reasoning_tokens: r.reasoning_tokens,
            seed: r.seed,
            run_id: r.run_id,
        };
        self.shared()?.result(read)?.ok_or_else(not_ended)
    }

    /// Where the time went; an error of kind `State` before the end.
    pub fn stats(&self) -> Result<RunStats, Error> {
        let read = |s: &sys::dsa_run_stats| RunStats {
            queue_ms: s.queue_ms,
            prefill_ms: s.prefill_ms,
            first_token_ms: s.first_token_ms,
            decode_ms: s.decode_ms,
            total_ms: s.total_ms,
            compute_ms: s.compute_ms,
            copy_ms: s.copy_ms,
            disk_ms: s.disk_ms,
            sample_ms: s.sample_ms,
            consumer_ms: s.consumer_ms,
            bound: Bound::from_code(s.bound),
        };
        self.shared()?.stats(read)?.ok_or_else(not_ended)
    }

    /// The whole text of a channel; an error of kind `State` before the end.
    pub fn text(&self, channel: Channel) -> Result<String, Error> {
        self.shared()?.text(channel)?.ok_or_else(not_ended)
    }

    /// What the run failed with, once.
    fn tell_failure(&mut self) -> Option<Error> {
        if std::mem::replace(&mut self.failure_told, true) {
            return None;
        }
        self.shared().and_then(raw::Shared::failure).unwrap_or_else(Some)
    }

    /// Cancels a run in work, and answers its reader: the session is not free yet.
    fn stop(&mut self) -> Option<Reader> {
        let reader = self.reader.take().filter(|reader| !reader.ended())?;
        let _ = reader.shared().cancel(sys::DSA_STOP_KEEP); // fails in a forked child only
        Some(reader)
    }
}

impl Iterator for Run<'_> {
    type Item = Result<Event, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            match self.reader().and_then(|reader| reader.next(sys::DSA_FOREVER)) {
                Ok(Next::Event(event)) => return Some(Ok(event)),
                Ok(Next::Pending) => {}
                Ok(Next::End) => return self.tell_failure().map(Err),
                Err(error) => {
                    return (!std::mem::replace(&mut self.failure_told, true)).then_some(Err(error))
                }
            }
        }
    }
}

impl FusedIterator for Run<'_> {}

impl Drop for Run<'_> {
    fn drop(&mut self) {
        if let (Some(reader), Some(session)) = (self.stop(), self.session.take()) {
            session.left = Some(reader);
        }
    }
}

/// The future of [`Run::next_async`]: what the iterator would give.
pub struct NextEvent<'r, 's> {
    run: &'r mut Run<'s>,
}

impl Future for NextEvent<'_, '_> {
    type Output = Option<Result<Event, Error>>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let run = &mut *self.run;
        let next = run.reader().and_then(|reader| {
            reader.bell().set(context.waker().clone()); // before the look: finding nothing arms the bell
            reader.next(0)
        });
        match next {
            Ok(Next::Event(event)) => Poll::Ready(Some(Ok(event))),
            Ok(Next::Pending) => Poll::Pending,
            Ok(Next::End) => Poll::Ready(run.tell_failure().map(Err)),
            Err(error) => Poll::Ready(Some(Err(error))),
        }
    }
}

/// A run that owns its session; everything that [`Run`] can do.
pub struct OwnedRun {
    run: Run<'static>,
    session: Session,
}

impl OwnedRun {
    /// Stops the run if it is still going, and gives the session back.
    pub fn finish(self) -> Session {
        let OwnedRun { mut run, mut session } = self;
        session.left = run.stop();
        session
    }
}

impl Deref for OwnedRun {
    type Target = Run<'static>;
    fn deref(&self) -> &Self::Target {
        &self.run
    }
}

impl DerefMut for OwnedRun {
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.run
    }
}

/// Stops a run, from any thread and at any time; also after its end, when it does nothing.
#[derive(Clone)]
pub struct CancelToken {
    shared: Option<Arc<raw::Shared>>,
}

impl CancelToken {
    /// Stops after the step in progress and keeps what was said.
    pub fn cancel(&self) {
        self.stop(Stop::Keep);
    }

    pub fn stop(&self, how: Stop) {
        if let Some(shared) = &self.shared {
            let _ = shared.cancel(how.code()); // fails in a forked child only, where there is nothing to stop
        }
    }
}
